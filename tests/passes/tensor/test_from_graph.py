"""What cannot be lowered is refused with the op and its place."""

from __future__ import annotations

import pytest

import modelcc
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.types import C64, TensorType
from modelcc.ops.shape import Transpose
from modelcc.passes.tensor.from_graph import lower_graph


def test_complex_numbers_are_refused() -> None:
    build = GraphBuilder("complex")
    build.input("x", TensorType((2, 3), C64))
    (y,) = build.add(Transpose((1, 0)), "x", source=("turn",))
    with pytest.raises(modelcc.ModelError, match=r"complex numbers: Transpose \(turn\)"):
        lower_graph(build.build([y]))
