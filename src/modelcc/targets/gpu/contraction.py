"""Contractions as groups of threads see them: rows of one operand, columns of the other, terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import coefficient, symbols
from modelcc.ir.scalar_tree import index_symbols, reads
from modelcc.ir.tensor import Apply, Cast, Condition, Guard, Number, Read, Scalar
from modelcc.ir.types import DType
from modelcc.schedule.nest import LoopVar, Nest
from modelcc.schedule.structure import Group


@dataclass(frozen=True)
class KeptFactor:
    """``value`` is what is kept of a factor, in ``dtype`` it takes part in products.

    ``by_term``: neighbours are terms of the sum, else results.  So they are where it is ``packed``,
    too: these are made of one element, while elements that are neighbours in memory are results.
    """

    value: Scalar
    dtype: DType
    by_term: bool
    packed: bool = False


@dataclass(frozen=True)
class Contraction:
    """A sum over ``terms`` of products: only ``left`` moves along ``rows``, only ``right`` along
    ``columns``, which lie side by side in the result if any of the two do.  A ``twin`` of the right
    factor makes another such sum for each result: half of a tile's columns are those of either."""

    left: KeptFactor
    right: KeptFactor
    rows: tuple[LoopVar, ...]
    columns: tuple[LoopVar, ...]
    batch: tuple[LoopVar, ...]
    terms: tuple[LoopVar, ...]
    twin: KeptFactor | None = None

    @property
    def rights(self) -> tuple[KeptFactor, ...]:
        """All right factors."""
        return (self.right,) if self.twin is None else (self.right, self.twin)

    def own(self, columns: int) -> int:
        """Results of a row of a tile that has so many ``columns`` of sums."""
        return columns // len(self.rights)


def group_contraction(group: Group) -> Contraction | None:
    """What contraction, or contraction of twins, ``group`` begins with; None if it is none, or has
    no rows or no columns, or twins share no factor of the rows or lie in several ways."""
    found = [find_contraction(nest) for nest in group.anchors]
    first, *others = found or [None]
    if first is None or not others:
        return first
    (second,) = others
    if second is None or replace(second, right=first.right) != first:
        return None
    same = (second.right.by_term, second.right.packed, second.right.dtype)
    kept = second.right.value.dtype == first.right.value.dtype
    if not kept or same != (first.right.by_term, first.right.packed, first.right.dtype):
        return None
    return replace(first, twin=second.right)


def find_contraction(nest: Nest) -> Contraction | None:
    """What contraction ``nest`` is; None if it is none, or has no rows or no columns."""
    if nest.combine != "sum" or not nest.reduce:
        return None
    _, body = _without_guards(nest.body)
    if not (isinstance(body, Apply) and body.function == "mul"):
        return None
    factors = body.args
    moving = index_symbols(factors[0]), index_symbols(factors[1])
    rows = tuple(v for v in nest.parallel if v.name in moving[0] - moving[1])
    columns = tuple(v for v in nest.parallel if v.name in moving[1] - moving[0])
    if not rows or not columns:
        return None
    if any(coefficient(nest.store, v.name) == 1 and v.extent != 1 for v in rows):
        rows, columns = columns, rows
    batch = tuple(v for v in nest.parallel if v not in (*rows, *columns))
    return contraction_of(nest, rows, columns, batch)


def contraction_of(
    nest: Nest, rows: tuple[LoopVar, ...], columns: tuple[LoopVar, ...], batch: tuple[LoopVar, ...]
) -> Contraction | None:
    """The contraction ``nest`` with these rows and columns, if it is one: one factor moves along
    the rows, the other one along the columns."""
    conditions, body = _without_guards(nest.body)
    if not (isinstance(body, Apply) and body.function == "mul"):
        return None
    first, second = body.args
    if not _moves(first, rows):
        first, second = second, first
    if not _moves(first, rows) or _moves(first, columns) or _moves(second, rows):
        return None
    if any(not _is_of(c, rows) and not _is_of(c, columns) for c in conditions):
        return None
    left, right = _guarded(first, conditions, columns), _guarded(second, conditions, rows)
    terms = _in_order(nest.reduce, (first, second))
    return Contraction(
        _operand(left, rows[-1], terms[-1]),
        _operand(right, columns[-1], terms[-1]),
        rows,
        columns,
        batch,
        terms,
    )


def _moves(factor: Scalar, along: Sequence[LoopVar]) -> bool:
    return not index_symbols(factor).isdisjoint(v.name for v in along)


def _without_guards(body: Scalar) -> tuple[tuple[Condition, ...], Scalar]:
    """Conditions outside which ``body`` is 0, and what it is inside."""
    match body:
        case Guard(conditions, inside, Number(value=0)):
            below, rest = _without_guards(inside)
            return (*conditions, *below), rest
        case _:
            return (), body


def _is_of(condition: Condition, others: Sequence[LoopVar]) -> bool:
    """Whether ``condition`` can be told without ``others``."""
    mentioned = symbols(condition.left) | symbols(condition.right)
    return not any(v.name in mentioned for v in others)


def _guarded(factor: Scalar, conditions: Sequence[Condition], others: Sequence[LoopVar]) -> Scalar:
    """``factor`` where the conditions hold that hang on no ``others``, else 0."""
    own = tuple(c for c in conditions if _is_of(c, others))
    if not own:
        return factor
    return Guard(own, factor, Number(0, factor.dtype), factor.dtype)


def _operand(factor: Scalar, along: LoopVar, term: LoopVar) -> KeptFactor:
    """A factor that is converted where it is used, rather than kept wider."""
    dtype = factor.dtype
    match factor:
        case Cast(value) if value.dtype.bits < dtype.bits:
            kept = value
        case Guard(conditions, Cast(value), Number(value=0)) if value.dtype.bits < dtype.bits:
            kept = Guard(conditions, value, Number(0, value.dtype), value.dtype)
        case _:
            kept = factor
    steps = [(_step(r, term.name), _step(r, along.name)) for r in reads(factor)]
    by_term = any(a == 1 for a, _ in steps) and not any(b == 1 for _, b in steps)
    indices = (i for read in reads(factor) for i in read.indices)
    of_one = _moves(factor, (term,)) and not any(term.name in symbols(i) for i in indices)
    return KeptFactor(kept, dtype, by_term or of_one, of_one)


def _step(read: Read, name: str) -> object:
    return coefficient(read.indices[0], name) if len(read.indices) == 1 else None


def _in_order(terms: Sequence[LoopVar], factors: Sequence[Scalar]) -> tuple[LoopVar, ...]:
    """``terms`` with those that lie side by side in memory innermost."""
    found = [r for factor in factors for r in reads(factor)]

    def contiguous(v: LoopVar) -> bool:
        return v.extent != 1 and any(_step(r, v.name) == 1 for r in found)

    return tuple(sorted(terms, key=contiguous))
