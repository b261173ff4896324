"""Extents with names that an op takes to be equal to others are among what a run must find so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modelcc.ir.index import Index, Sym, symbols
from modelcc.ir.op import ModelError, Op, Sample
from modelcc.ir.types import TensorType, dtype_of
from modelcc.ops.catalog import MCC
from modelcc.ops.samples import arrays, sizes

CASES = [
    pytest.param(op(**sample.attributes), sample, id=f"{op.__name__}-{i}")
    for op in MCC.ops
    for i, sample in enumerate(op.samples)
]


def silent(op: Op, types: list[TensorType | None], which: int, axis: int) -> bool:
    """Whether another extent is refused, but asked of nobody where it has a name."""
    given = types[which]
    assert given is not None
    extent = given.shape[axis]

    def variant(new: Index) -> list[TensorType | None]:
        shape = (*given.shape[:axis], new, *given.shape[axis + 1 :])
        return [*types[:which], replace(given, shape=shape), *types[which + 1 :]]

    def accepted(new: Index) -> bool:
        try:
            op.infer(*variant(new))
        except ModelError:
            return False
        return True

    assert isinstance(extent, int)
    if accepted(extent + 1) or accepted(extent - 1) or not accepted(Sym("q")):
        return False
    agreements = op.agreements(*variant(Sym("q")))
    return not any("q" in symbols(a) | symbols(b) for a, b in agreements)


@pytest.mark.parametrize(("op", "sample"), CASES)
def test_extents_with_names_are_asked_for(op: Op, sample: Sample) -> None:
    op = op.substitute(sizes(op, sample))
    types = [None if x is None else TensorType(x.shape, dtype_of(x)) for x in arrays(op, sample)]
    found = [
        (which, axis)
        for which, type in enumerate(types)
        if type is not None
        for axis in range(type.rank)
        if silent(op, types, which, axis)
    ]
    assert found == []
