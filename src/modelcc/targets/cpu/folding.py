"""Sums whose terms are contiguous where their results are not: lanes along the reduction.

A convolution with few outputs that reads blocks of channels would gather its vectors.  Instead each
point of a vector of results has an accumulator along the channels, and their lanes are reduced
horizontally at the end, in pairs, which yields a vector of contiguous sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from modelcc.ir.index import Index, Sym, coefficient, loop_range
from modelcc.ir.loop import Const, Expr, Let, ScalarCall, Shuffle, Stmt, Var
from modelcc.ir.scalar import Combine, identity
from modelcc.ir.scalar_tree import depends_on, reads, substitute_indices
from modelcc.schedule.expression import FreshNames, combine_function
from modelcc.schedule.lanes import Lanes
from modelcc.schedule.nest import LoopVar, Nest
from modelcc.schedule.structure import is_contraction


def find_terms(
    anchor: Nest | None, lane: str, lanes: int, constants: frozenset[str]
) -> tuple[Nest, LoopVar] | None:
    """The anchor and its reduction loop of ``lanes`` steps to vectorise, if reads strided along
    ``lane`` are contiguous along it.  A loop over a block of several vectors is split."""
    if anchor is None or not is_contraction(anchor) or not anchor.body.dtype.is_float:
        return None
    given = [r for r in reads(anchor.body) if r.tensor not in constants]
    if len(given) != 1 or lanes < 2 or lanes & (lanes - 1):
        return None
    (read,) = given
    stride = coefficient(read.indices[0], lane)
    if not isinstance(stride, int) or abs(stride) < lanes:
        return None
    along = [v for v in anchor.reduce if coefficient(read.indices[0], v.name) == 1]
    weights = [r for r in reads(anchor.body) if r.tensor in constants]
    found = next((v for v in along if v.extent == lanes or _is_block(v, anchor, lanes)), None)
    if found is None or not all(depends_on(r, found.name) for r in weights):
        return None
    return (anchor, found) if found.extent == lanes else _cut(anchor, found, lanes)


def _is_block(loop: LoopVar, nest: Nest, lanes: int) -> bool:
    """Whether the loop iterates over a block of several vectors of ``lanes``."""
    whole = isinstance(loop.extent, int) and loop.extent % lanes == 0
    return whole and any(v.axis == loop.axis and v is not loop for v in nest.reduce)


def _cut(nest: Nest, loop: LoopVar, lanes: int) -> tuple[Nest, LoopVar]:
    """The nest with a reduction ``loop`` split into vectors and lanes, and the loop over lanes."""
    assert isinstance(loop.extent, int)
    count = loop.extent // lanes
    outer = LoopVar(f"{loop.name}b", count, loop.axis, loop.multiplier * lanes)
    inner = LoopVar(f"{loop.name}l", lanes, loop.axis, loop.multiplier)
    reduce = [w for v in nest.reduce for w in ((outer, inner) if v is loop else (v,))]
    ranges = {name: r for name, r in nest.ranges.items() if name != loop.name}
    ranges |= {v.name: loop_range(v.extent) for v in (outer, inner)}
    body = substitute_indices(nest.body, {loop.name: Sym(outer.name) * lanes + Sym(inner.name)})
    return replace(nest, reduce=tuple(reduce), body=body, ranges=ranges), inner


def term_lanes(
    terms: LoopVar, anchor: Nest, ragged: Mapping[str, int], at: Mapping[str, Index]
) -> Lanes:
    """Vectors along ``terms`` at the reduction point ``at``: the last block may be partial."""
    assert isinstance(terms.extent, int)
    lanes = Lanes(terms.name, terms.extent)
    for v in anchor.reduce:
        extent = ragged.get(v.name)
        if v.axis == terms.axis and extent is not None:
            full, rest = divmod(extent, v.multiplier)
            if at.get(v.name) == full:
                tensors = frozenset(r.tensor for r in reads(anchor.body))
                between = (w for w in anchor.reduce if w.axis == v.axis and w not in (v, terms))
                active: Index = rest
                for w in between:
                    active = active - at[w.name] * w.multiplier
                return replace(lanes, active=active, masked=tensors)
    return lanes


def folded(registers: Sequence[Var], combine: Combine, names: FreshNames) -> tuple[list[Stmt], Var]:
    """A vector of the horizontal reductions of all registers; lanes without a register are idle."""
    dtype, lanes = registers[0].dtype, registers[0].lanes
    idle = Const(identity(combine, dtype), dtype, lanes)
    function = combine_function(combine, dtype)
    statements: list[Stmt] = []
    vectors: list[Expr] = [*registers, *[idle] * (lanes - len(registers))]
    even, odd = tuple(range(0, 2 * lanes, 2)), tuple(range(1, 2 * lanes, 2))
    while len(vectors) > 1:
        pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
        vectors = []
        for a, b in pairs:
            if a is idle and b is idle:
                vectors.append(idle)
                continue
            name = names.fresh("f")
            halves = (Shuffle(a, b, even), Shuffle(a, b, odd))
            statements.append(Let(name, ScalarCall(function, halves, dtype, lanes)))
            vectors.append(Var(name, dtype, lanes))
    (total,) = vectors
    assert isinstance(total, Var)
    return statements, total
