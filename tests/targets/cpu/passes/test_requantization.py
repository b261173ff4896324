"""Sums that are brought to bytes by one product, addition and shift are those of two roundings."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_text import print_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.ir.types import I8, I16, I32, TensorType
from modelcc.ops.activation import Clip
from modelcc.ops.elementwise import Add, Cast, Mul
from modelcc.ops.fixed_point import FixedPointMultiply
from modelcc.ops.quant import Recentre
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.passes.tensor.inline import InlineStages
from modelcc.targets.cpu.passes.requantization import Requantization

MULTIPLIERS = [0, 1, (1 << 30) - 1, 1 << 30, (1 << 30) + 1, 1_518_500_250, (1 << 31) - 1]
ROWS = 300


def scaled(times: int, shifts: list[int], zero: int, unsigned: bool) -> Graph:
    """``x * times`` by multipliers and shifts, a column each, as bytes of a zero point."""
    make = GraphBuilder()
    x = make.emit(Cast(I32), make.input("x", TensorType((ROWS, 7), I16)))
    sums = make.emit(Mul(), x, make.constant(np.full(7, times, np.int32)))
    factors = (make.constant(np.array(data, np.int32)) for data in (MULTIPLIERS, shifts))
    y = make.emit(FixedPointMultiply(), sums, *factors)
    y = make.emit(Add(), y, make.constant(np.asarray(zero, np.int32)))
    y = make.emit(Cast(I8), make.emit(Clip(-100.0, 127.0), y))
    return make.build([make.emit(Recentre(), y) if unsigned else y])


def expected(sums: int, multiplier: int, shift: int, zero: int) -> int:
    """By gemmlowp's definitions, in exact numbers."""
    high = floor(Fraction(sums * multiplier, 1 << 31) + Fraction(1, 2))
    size = floor(Fraction(abs(high), 1 << shift) + Fraction(1, 2))
    return min(max((size if high >= 0 else -size) + zero, -100), 127)


@pytest.mark.parametrize(
    ("times", "shifts", "zero", "unsigned", "rewritten"),
    [
        (1, [8, 9, 8, 9, 8, 9, 8], -7, True, True),
        (3, [0, 1, 2, 0, 0, 1, 0], 5, False, True),
        (16383, [20, 21, 19, 20, 21, 20, 19], -100, True, True),
        (16383, [0, 1, 20, 21, 22, 22, 22], 3, False, True),
        (16384, [20, 21, 19, 20, 21, 20, 19], 0, True, False),
        (1, [31, 9, 8, 9, 8, 9, 8], 0, False, False),
    ],
)
def test_results_are_those_of_two_roundings(
    times: int, shifts: list[int], zero: int, unsigned: bool, rewritten: bool
) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-32768, 32768, (ROWS, 7)).astype(np.int16)
    x[:9] = np.array([-32768, -32767, -2, -1, 0, 1, 2, 32766, 32767])[:, None]
    program = FuseKernels()(InlineStages()(lower_graph(scaled(times, shifts, zero, unsigned))))
    found = Requantization()(program)
    verify_tensor_program(found)
    assert ("rounding_shr" not in print_tensor_program(found)) == rewritten
    (y,) = run_program(found, {"x": x}, {}).values()
    columns = list(zip(MULTIPLIERS, shifts, strict=True))
    wanted = [
        [expected(v * times, *c, zero) for v, c in zip(row, columns, strict=True)]
        for row in x.tolist()
    ]
    np.testing.assert_array_equal(y.astype(np.int32) - (128 if unsigned else 0), wanted)
