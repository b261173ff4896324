"""Operands of which named extents do not agree; no op is named here.

What ``infer`` takes to be so of names, ``shape_constraints`` must tell, or its reads need it: a run
whose sizes meet these constraints is one that the op takes with numbers in their place.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from modelcc.ir.compute import Operand, StageBuilder
from modelcc.ir.condition import Condition
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, Range, Sym, evaluate, symbols
from modelcc.ir.index_uses import uses
from modelcc.ir.op import Op, Sample
from modelcc.ir.tensor import Scatter, Stage
from modelcc.ir.tensor_ranges import misread, unproved
from modelcc.ir.types import TensorType
from modelcc.ops.samples import sizes
from tests.ops.test_matrix import CASES, operand_types

Types = list[TensorType | None]
TRIED = 60


def with_extent(types: Types, operand: int, axis: int, extent: Index) -> Types:
    type = types[operand]
    assert type is not None
    shape = (*type.shape[:axis], extent, *type.shape[axis + 1 :])
    return [*types[:operand], TensorType(shape, type.dtype), *types[operand + 1 :]]


def accepts(op: Op, types: Types) -> bool:
    try:
        op.infer(*types)
        op.shape_constraints(*types)
        stages_of(op, types)
    except ModelError:
        return False
    return True


def opened(op: Op, types: Types) -> tuple[Types, dict[str, int]]:
    """Every extent that may be, under a name of its own; and what it was."""
    known: dict[str, int] = {}
    for operand, type in enumerate(types):
        for axis, extent in enumerate(() if type is None else type.shape):
            name = f"x{operand}_{axis}"
            wider = with_extent(types, operand, axis, Sym(name))
            if accepts(op, wider):
                assert isinstance(extent, int)
                types, known[name] = wider, extent
    return types, known


def numbered(types: Types, env: dict[str, int]) -> Types:
    return [
        None if t is None else TensorType(tuple(evaluate(e, env) for e in t.shape), t.dtype)
        for t in types
    ]


@pytest.mark.parametrize(("op", "sample"), CASES)
def test_sizes_that_meet_the_constraints_are_taken(op: Op, sample: Sample) -> None:
    env = sizes(op, sample)
    op = op.substitute(env)
    types, known = opened(op, numbered(operand_types(sample), env))
    constraints = [
        *(Condition(*d) for d in op.shape_constraints(*types)),
        *needs_of_reads(op, types),
    ]
    results = op.infer(*types)
    constraints += [Condition(e, ">=", 0) for t in results for e in t.shape]
    assert all(symbols(e) <= known.keys() for t in results for e in t.shape)
    for trial in trials(known):
        fixed = numbered(types, trial)
        if all(d.holds(trial) for d in constraints):
            found = op.infer(*fixed)
            for t, wanted in zip(found, results, strict=True):
                assert t.shape == tuple(evaluate(e, trial) for e in wanted.shape)
            if not all(0 in t.shape for t in found):
                verify_reads(op, fixed)


def trials(known: Mapping[str, int]) -> list[dict[str, int]]:
    """Different sizes near the known ones, of which most stay."""
    changes = np.random.default_rng(1).choice((-1, 0, 1), (TRIED, len(known)), p=(0.1, 0.8, 0.1))
    sizes = np.maximum(0, np.array([*known.values()], int) + changes)
    return [dict(zip(known, map(int, row), strict=True)) for row in np.unique(sizes, axis=0)]


def stages_of(op: Op, types: Types) -> tuple[tuple[Stage, ...], Mapping[str, TensorType]]:
    """The tensor-level meaning of ``op`` on operands of these types."""
    at = StageBuilder("t")
    operands = [None if t is None else Operand(f"x{i}", t) for i, t in enumerate(types)]
    if op.has("compute"):
        op.compute(at, *operands)
    stages = tuple(s.stage if isinstance(s, Scatter) else s for s in at.stages)
    return stages, {o.name: o.type for o in operands if o is not None} | dict(at.types)


def needs_of_reads(op: Op, types: Types) -> list[Condition]:
    stages, known = stages_of(op, types)
    sizes = {n: Range(0, None) for t in types if t is not None for e in t.shape for n in symbols(e)}
    return [c for stage in stages for c in unproved(stage, uses(stage), known, sizes)]


def verify_reads(op: Op, types: Types) -> None:
    """Fails if ``op`` reads outside of operands of these types."""
    stages, known = stages_of(op, types)
    for stage in stages:
        assert not list(misread(stage, uses(stage), known, {}))
