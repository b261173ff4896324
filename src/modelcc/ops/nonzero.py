"""NonZero: where a condition holds, packed, and how often.

The result has room for all elements; its first ``count`` columns are meant.  Reading ``count`` as
a size and slicing gives the exact shape.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.algorithm import AlgorithmBuilder, call, convert, index_number, integer, number
from modelcc.ir.compute import Inputs, Outputs
from modelcc.ir.index import Index
from modelcc.ir.op import Op, require
from modelcc.ir.types import BOOL, F16, I64, Array, TensorType
from modelcc.ops.samples import sample, tensor


@dataclass(frozen=True)
class NonZero(Op):
    """Indices of the elements of x that are not 0, one column for each, and their number.

    Results: i64[rank, elements], of which the first columns count, and i64[1].
    """

    differentiable = False
    samples = (
        sample(np.array([[1.0, 0.0, -2.0], [0.0, 0.0, 3.0]], np.float32)),
        sample(np.array([True, False, True])),
        sample(np.zeros((2, 2), np.int32)),
        sample(tensor(2, "n", 3, dtype=F16)),
        sample(tensor(0, dtype=I64)),
    )

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        require(x.dtype.kind != "string", f"NonZero of {x.dtype} has no meaning")
        return TensorType((x.rank, x.elements), I64), TensorType((1,), I64)

    def reference(self, x: Array) -> tuple[Array, Array]:
        found = np.stack(np.nonzero(x)) if x.ndim else np.zeros((0, int(np.sum(x != 0))), np.int64)
        whole = np.zeros((x.ndim, x.size), np.int64)
        whole[:, : found.shape[1]] = found
        return whole, np.array([found.shape[1]], np.int64)

    def algorithm(self, at: AlgorithmBuilder, inputs: Inputs, outputs: Outputs) -> None:
        (x,), (where, count) = inputs, outputs
        assert x is not None
        total: Index = x.type.elements
        found = at.register(integer(0))
        with at.loop(0, total) as i:
            value = at.load(x, i)
            present = value if x.dtype == BOOL else call("ne", value, number(0, x.dtype))
            column = at.index(found)
            rest: Index = i
            # Written in any case, and counted if wanted: no branch that nobody can foretell.
            for axis in reversed(range(x.rank)):
                extent = x.shape[axis] or 1
                place = rest % extent if axis else rest
                at.store(where, axis * total + column, index_number(place))
                rest = rest // extent
            at.assign(found, call("add", found, convert(present, I64)))
        columns = at.index(found)
        for axis in range(x.rank):
            at.fill(where, axis * total + columns, total - columns, integer(0))
        at.store(count, 0, found)


OPS: tuple[type[Op], ...] = (NonZero,)
