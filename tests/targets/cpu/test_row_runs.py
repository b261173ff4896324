"""Copies of short runs of rows: which they are, the order of their loops, and what they copy."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from onnx import TensorProto, helper

import modelcc
from modelcc.ir.index import Range
from modelcc.ir.library import meaning_of
from modelcc.ir.loop_text import print_function
from modelcc.ir.tensor_parser import parse_kernel
from modelcc.schedule.canonical import canonical
from modelcc.targets.cpu.lower import schedule_kernel
from tests.machines import cpu_named

LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


def loops(level: str, rows: object, columns: object, layout: str = "<d1/16 d0 d1%16>") -> list[str]:
    """Extents of the loops of a copy into ``layout``, outermost first, ends of extents apart."""
    machine = cpu_named(level)
    x = f"f32[{rows}, {columns}]"
    stage = f"%y: {x}{layout} = [i < {rows}, j < {columns}] %x[i, j]"
    kernel, types = parse_kernel(f"kernel @pack(%x: {x}) -> (%y: {x}{layout}) {{ {stage} }}")
    dims = {name: Range(0, None) for name in (rows, columns) if isinstance(name, str)}
    key, _ = canonical(kernel, types, frozenset(), dims)
    text = print_function(meaning_of(schedule_kernel(key, "pack", machine).function))
    return re.findall(r"(?:parallel|for) \w+ in 0 \.\. (.*) {", text)


@pytest.mark.parametrize("level", LEVELS)
def test_rows_go_around_blocks(level: str) -> None:
    """Where a block is one vector, too."""
    assert loops(level, 1024, 512) == ["128", "32"]
    assert [extent for extent in loops(level, "k", 512) if "k" not in extent] == ["32", "32"]


@pytest.mark.parametrize("level", LEVELS)
def test_near_rows_and_long_runs_keep_their_order(level: str) -> None:
    assert "128" not in loops(level, 1024, 64)
    assert "128" not in loops(level, 1024, 512, "<d1/64 d0 d1%64>")


RUNS = (3, 8, 16, 24, 33)
DTYPES = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.UINT8)
SIZES = ((19, 40), (8, 1), (1, 70), (0, 5), (64, 129))


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_transposed_rows_of_runs_of_named_extents(run: int, dtype: int) -> None:
    check_transposed(("n", "m", run), dtype, SIZES)


@pytest.mark.share(3, "run", "dtype", "sizes")
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_transposed_rows_of_runs(run: int, dtype: int, sizes: tuple[int, int]) -> None:
    check_transposed((*sizes, run), dtype, [sizes])


def check_transposed(
    shape: tuple[int | str, ...], dtype: int, cases: Sequence[tuple[int, int]]
) -> None:
    x = helper.make_tensor_value_info("x", dtype, shape)
    y = helper.make_tensor_value_info("y", dtype, None)
    node = helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0, 2])
    graph = helper.make_graph([node], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    net = modelcc.compile(model, threads=1, cache=None)
    for sizes in cases:
        full = (*sizes, int(shape[-1]))
        given = np.arange(np.prod(full)).reshape(full)
        given = given.astype(helper.tensor_dtype_to_np_dtype(dtype))
        np.testing.assert_array_equal(net(given), given.transpose(1, 0, 2))
