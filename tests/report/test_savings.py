"""Channels that are left out are told of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from modelcc.driver import compile_model, report_in
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.types import U8, TensorType
from modelcc.ops.elementwise import Cast
from modelcc.ops.quant_matmul import MatMulInteger
from modelcc.options import Options
from modelcc.report.report import report_from_json
from modelcc.report.savings import ChannelSaving


def test_the_report_lists_what_layers_lost() -> None:
    """Sixteen of 32 columns have no readers: 3 weights each, and 2 weights that read them."""
    b, rng = GraphBuilder("net"), np.random.default_rng(0)
    first, second = (rng.integers(1, 9, shape).astype(np.int8) for shape in ((3, 32), (32, 2)))
    second[::2] = 0
    x = b.emit(MatMulInteger(), b.input("x", TensorType((2, 3), U8)), b.constant(first))
    y = b.emit(MatMulInteger(), b.emit(Cast(U8), x), b.constant(second))
    options = Options(cpu="x86-64-v3", threads=1)
    report = report_in(compile_model(b.build([y]), options).artifact)
    assert report is not None
    assert report.savings == (ChannelSaving((), 16, 32, 16 * 3 + 16 * 2),)
    assert report_from_json(report.to_json()) == report
    assert "16 channels and 80 bytes" in repr(report)
    assert "16 channels" not in repr(replace(report, savings=()))
