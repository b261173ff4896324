"""NonZero: where a condition holds, packed, and how often.

The result has room for all elements; its first ``count`` columns are meant.  Reading ``count`` as
a size and slicing gives the exact shape.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from modelcc.ir.algorithm import (
    AlgorithmBuilder,
    add,
    call,
    convert,
    index_number,
    integer,
    number,
    predicate,
)
from modelcc.ir.compute import Inputs, Operand, Outputs
from modelcc.ir.index import Index, ceildiv, maximum, minimum
from modelcc.ir.loop import Expr
from modelcc.ir.op import Op, require
from modelcc.ir.types import BOOL, F16, I64, Array, TensorType
from modelcc.ops.group_scan import RunningTotals, running_totals
from modelcc.ops.samples import sample, tensor

EACH = 32
"""Neighbours that a thread of a group sees to."""


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
        if at.capacity.groups_of(x.dtype) is not None and where.type.elements != 0:
            _list_in_groups(at, x, where, count)
            return
        found = at.register(integer(0))
        with at.loop(0, total) as i:
            # Written in any case, and counted if wanted: no branch that nobody can foretell.
            _write(at, x, where, i, at.index(found))
            at.assign(found, call("add", found, convert(_is_present(at, x, i), I64)))
        columns = at.index(found)
        for axis in range(x.rank):
            at.fill(where, axis * total + columns, total - columns, integer(0))
        at.store(count, 0, found)


def _is_present(at: AlgorithmBuilder, x: Operand, i: Index) -> Expr:
    value = at.load(x, i)
    return value if x.dtype == BOOL else call("ne", value, number(0, x.dtype))


def _write(at: AlgorithmBuilder, x: Operand, where: Operand, i: Index, column: Index) -> None:
    """The place of element ``i`` along each axis."""
    rest = i
    for axis in reversed(range(x.rank)):
        extent = x.shape[axis] or 1
        place = rest % extent if axis else rest
        at.store(where, axis * x.type.elements + column, index_number(place))
        rest = rest // extent


def _list_in_groups(at: AlgorithmBuilder, x: Operand, where: Operand, count: Operand) -> None:
    """Threads count neighbours, the counts are added up, and threads write where these say."""
    groups = at.capacity.groups
    assert groups is not None
    total, threads = x.type.elements, groups.threads
    shares = maximum(ceildiv(total, EACH), 1)  # of nothing, too, there is a number
    counts, ends = at.scratch(I64, shares), at.scratch(I64, shares)

    @contextmanager
    def each_share() -> Generator[Index]:
        with at.groups(ceildiv(shares, threads), (threads,)) as (group, (thread,), _):
            share = group * threads + thread
            with at.when(predicate(share, "<", shares)):
                yield share

    with each_share() as share:
        found = at.register(integer(0))
        with at.loop(share * EACH, minimum((share + 1) * EACH, total)) as i:
            at.assign(found, call("add", found, convert(_is_present(at, x, i), I64)))
        at.store(counts, share, found)
    more = RunningTotals(counts, ends, 1, shares, 1, False, False, integer(0), add)
    running_totals(at, more, groups)
    with each_share() as share:
        last = at.let(at.load(ends, shares - 1))
        column = at.register(call("sub", at.load(ends, share), at.load(counts, share)))
        with at.loop(share * EACH, minimum((share + 1) * EACH, total)) as i:
            with at.when(_is_present(at, x, i)):
                _write(at, x, where, i, at.index(column))
                at.assign(column, add(column, 1))
            with at.when(predicate(i, ">=", at.index(last))):
                for axis in range(x.rank):
                    at.store(where, axis * total + i, integer(0))
        with at.when(predicate(share, "==", 0)):
            at.store(count, 0, last)


OPS: tuple[type[Op], ...] = (NonZero,)
