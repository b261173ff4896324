"""What ops say about operands that break their rules."""

from __future__ import annotations

import pytest

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Sym
from modelcc.ir.op import Op
from modelcc.ir.types import BOOL, F16, F32, I64, STRING, TensorType
from modelcc.ops import activation, elementwise, gather, padding, reduce, shape
from modelcc.ops.samples import tensor

N = Sym("n")
FAULTS: list[tuple[Op, tuple[TensorType, ...], str]] = [
    (elementwise.Add(), (tensor(3), tensor(4)), r"\[3\] and \[4\] do not broadcast: extent 3"),
    (elementwise.Add(), (tensor(3), tensor(3, dtype=F16)), "different dtypes: f32 and f16"),
    (elementwise.Add(), (tensor(3, dtype=BOOL),) * 2, "Add needs float or integer operands"),
    (elementwise.Exp(), (tensor(3, dtype=I64),), "Exp needs float operands, not i64"),
    (elementwise.And(), (tensor(3), tensor(3)), "And needs bool operands, not f32"),
    (elementwise.BitwiseNot(), (tensor(3),), "BitwiseNot needs integer operands, not f32"),
    (elementwise.Where(), (tensor(3), tensor(3), tensor(3)), "condition of Where must be bool"),
    (elementwise.Cast(F32), (tensor(3, dtype=STRING),), "cannot cast string to f32"),
    (activation.Gelu(), (tensor(3, dtype=I64),), "Gelu needs float operands, not i64"),
    (reduce.ReduceSum((2,)), (tensor(3, 4),), r"axis 2 of f32\[3, 4\], which has rank 2"),
    (reduce.ReduceSum((1, 1)), (tensor(3, 4),), "repeat an axis"),
    (reduce.ReduceL2((0,)), (tensor(3, dtype=I64),), "ReduceL2 needs float operands"),
    (reduce.ArgMax(0), (tensor(0, 2),), "over the empty axis"),
    (shape.Reshape((5,)), (tensor(2, 3),), r"\(6 elements\) to \[5\] \(5 elements\)"),
    (shape.Reshape((N, 5)), (tensor("n", 3),), r"3\*n elements"),
    (shape.Expand((2, 3)), (tensor(2, 2),), "do not broadcast"),
    (shape.Expand((1,)), (tensor(2),), r"does not broadcast to \[1\]"),
    (shape.Transpose((0, 0)), (tensor(2, 3),), "does not permute the 2 axes"),
    (shape.Slice((2,), (3,), (1,)), (tensor(4),), "takes elements 2 to 4 of axis 0"),
    (shape.Slice((0,), (N + 1,), (1,)), (tensor("n"),), "takes elements 0 to n of axis 0"),
    (shape.Concat(0), (tensor(2, 3), tensor(2, 4)), "extents differ outside axis 0"),
    (shape.Concat(2), (tensor(2, 3),), "which has rank 2"),
    (padding.Pad((1,), (1,)), (tensor(2, 3),), r"not \[1\] and \[1\]"),
    (padding.Pad((-2,), (-2,)), (tensor(3),), "leaves a negative extent"),
    (shape.Tile((2,)), (tensor(2, 3),), "one count per axis"),
    (gather.Gather(0), (tensor(3), tensor(2)), "indices of Gather must be integers, not f32"),
    (gather.GatherND(), (tensor(3), tensor(2, 2, dtype=I64)), "more entries than x has axes"),
    (gather.OneHot(0, 3), (tensor(2, dtype=I64), tensor(3)), "the two values off and on"),
    (
        gather.ScatterND(),
        (tensor(3, 4), tensor(2, 1, dtype=I64), tensor(2, 3)),
        "extents of the updates of ScatterND differ: 4 against 3",
    ),
]


@pytest.mark.parametrize(("op", "operands", "message"), FAULTS)
def test_infer_refuses(op: Op, operands: tuple[TensorType, ...], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        op.infer(*operands)
