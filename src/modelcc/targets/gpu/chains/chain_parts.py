"""Chained contractions (sums over rows of products' tiles), as operands and expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from modelcc.ir.index import (
    Index,
    Sym,
    ceildiv,
    coefficient,
    floordiv,
    maximum,
    minimum,
    substitute,
    symbols,
)
from modelcc.ir.loop import Const, Expr, Intrinsic, MulAdd, Predicate, ScalarCall, Select
from modelcc.ir.scalar_tree import reads, substitute_indices, transform, walk
from modelcc.ir.tensor import (
    Apply,
    Axis,
    Cast,
    Condition,
    Guard,
    IndexValue,
    Number,
    Read,
    Scalar,
    Stage,
)
from modelcc.ir.tensor import Select as TensorSelect
from modelcc.ir.types import F32
from modelcc.passes.tensor.tile_chain import ChainEnd, TileChain, match_tile_chain
from modelcc.schedule.nest import LoopVar, Nest, linearise
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.attention.attention_parts import LOG2_E, TOTAL
from modelcc.targets.gpu.contraction import Contraction, KeptFactor, contraction_of
from modelcc.targets.gpu.evaluation import Evaluation, GroupKernel, Point, extent_of
from modelcc.targets.isa.nvidia_fast import EXP2


@dataclass(frozen=True)
class ChainSum:
    """A sum of rows of ``kept``, which is made of its ``weight``, times the right factor of the
    ``contraction``.  That factor is the transposed one of product number ``shared``, or (None) its
    own.

    ``exact`` is ``kept`` before rounding, if that is f32.  ``results`` are made of
    :data:`TOTAL`."""

    weight: str
    kept: KeptFactor
    exact: Scalar | None
    contraction: Contraction
    shared: int | None
    results: tuple[Nest, ...]

    @property
    def width(self) -> int:
        """Columns of the result."""
        return _known(self.contraction.columns)


@dataclass(frozen=True)
class ChainParts:
    """``tiles`` are the nests of ``chain``, of which ``products`` are contractions, in their order.

    What tiles read per row, independent of the key, is in ``of_rows``, by the name that it is read
    by.
    """

    chain: TileChain
    batch: tuple[LoopVar, ...]
    tiles: tuple[Nest, ...]
    products: tuple[Contraction, ...]
    sums: tuple[ChainSum, ...]
    of_rows: Mapping[str, Read]

    @property
    def depths(self) -> tuple[int, ...]:
        """Terms (K) of the products."""
        return tuple(_known(p.terms) for p in self.products)

    @property
    def visible(self) -> Index | None:
        """An index that is at least 0 where weights may differ from 0; None if there is none."""
        found = [_visible(s.weight, self.chain) for s in self.sums]
        first = found[0]
        if first is None or any(other != first for other in found):
            return None
        steps = coefficient(first, self.chain.row.name), coefficient(first, self.chain.key.name)
        return first if steps in ((1, -1), (-1, 1)) else None

    @property
    def ends_early(self) -> bool:
        """Whether later rows see more keys (a causal mask)."""
        visible = self.visible
        return visible is not None and coefficient(visible, self.chain.key.name) == -1

    def blocks(
        self, batch: Mapping[str, Index], start: Index, rows: int, keys: int
    ) -> tuple[Index, Index]:
        """The first block of ``keys`` keys that some row of the block from ``start`` sees, and the
        end."""
        whole, visible = ceildiv(self.chain.key.extent, keys), self.visible
        if visible is None:
            return 0, whole
        row, key = self.chain.row.name, self.chain.key.name
        if coefficient(visible, key) == -1:
            most = substitute(visible, {**batch, row: start + rows - 1, key: 0}) + 1
            return 0, minimum(whole, ceildiv(maximum(most, 0), keys))
        least = substitute(visible, {**batch, row: start, key: 0}) * -1
        return minimum(floordiv(maximum(least, 0), keys), whole), whole

    @property
    def unmasked(self) -> ChainParts:
        """The same without masks."""
        visible = self.visible

        def seen(value: Scalar) -> Scalar:
            return value.then if _sees(value) == visible and _is_choice(value) else value

        def of(nest: Nest) -> Nest:
            return nest if nest.reduce else replace(nest, body=transform(nest.body, seen))

        return self if visible is None else replace(self, tiles=tuple(map(of, self.tiles)))

    def open_blocks(
        self, batch: Mapping[str, Index], start: Index, rows: int, keys: int
    ) -> tuple[Index, Index]:
        """The first block of ``keys`` keys that are fully visible to all rows from ``start`` on,
        and the end of these: blocks before and after may be masked, or out of range."""
        extent, visible = self.chain.key.extent, self.visible
        if visible is None:
            return 0, floordiv(extent, keys)
        row, key = self.chain.row.name, self.chain.key.name
        if coefficient(visible, key) == -1:
            most = substitute(visible, {**batch, row: start, key: 0}) + 1
            return 0, floordiv(maximum(minimum(most, extent), 0), keys)
        least = substitute(visible, {**batch, row: start + rows - 1, key: 0}) * -1
        return ceildiv(maximum(least, 0), keys), floordiv(extent, keys)


def _is_choice(value: Scalar) -> TypeGuard[TensorSelect]:
    return isinstance(value, TensorSelect)


def _sees(value: Scalar) -> Index | None:
    """An index that is at least 0 where ``value`` may differ from 0, if that is explicit."""
    match value:
        case TensorSelect(
            condition=Apply(function="ge", args=(IndexValue(index=index), Number(value=0))),
            other=Number(value=0),
        ):
            return index
        case _:
            return None


def find_chain(kernel: GroupKernel) -> ChainParts:
    """The chain of a kernel; :class:`ScheduleError` if it is none, or the length of operands' rows
    is not a constant."""
    chain = match_tile_chain(kernel.kernel.stages, kernel.kernel.outputs, frozenset(kernel.dims))
    if chain is None:
        raise ScheduleError("the kernel is no sum of rows that products make")
    stages = (*chain.tiles, *(s for end in chain.ends for s in end.results))
    made = frozenset((TOTAL, *(s.output for s in stages)))

    def nest(stage: Stage) -> Nest:
        return linearise(stage, kernel.types, kernel.dims, made, {})

    of_rows: dict[str, Read] = {}
    tiles = tuple(_with_rows(nest(t), chain.key.name, made, of_rows) for t in chain.tiles)
    points = {t.output: t.body for t in tiles if not t.reduce}
    batch, row, key = _loops(chain.outer), _loops((chain.row,)), _loops((chain.key,))
    found = [contraction_of(t, row, key, batch) for t in tiles if t.reduce]
    products = tuple(p for p in found if p is not None)
    if len(products) < len(found):
        raise ScheduleError("one factor of each product moves along rows, the other one not")

    def summed(end: ChainEnd) -> ChainSum:
        first, *rest = end.results
        contraction = contraction_of(nest(first), row, _loops(end.columns), batch)
        if contraction is None or {r.tensor for r in reads(contraction.left.value)} != {end.weight}:
            raise ScheduleError("a weight is one factor of its sum, values are the other one")
        total = replace(first, body=Read(TOTAL, (), first.body.dtype), reduce=(), combine=None)
        results = tuple(map(nest, (total, *rest)))
        kept, shared = contraction.left, _shared(contraction, products)
        exact = _unrounded(kept.value, points)
        return ChainSum(end.weight, kept, exact, contraction, shared, results)

    sums = tuple(map(summed, chain.ends))
    widths = (*(p.terms for p in products), *(s.contraction.columns for s in sums))
    if not all(isinstance(extent_of(v), int) for v in widths):
        raise ScheduleError("terms of products and columns of results have to be known")
    return ChainParts(chain, batch, tiles, products, sums, of_rows)


def _loops(axes: Sequence[Axis]) -> tuple[LoopVar, ...]:
    return tuple(LoopVar(a.name, a.extent, a.name) for a in axes)


def _known(variables: Sequence[LoopVar]) -> int:
    extent = extent_of(variables)
    assert isinstance(extent, int)
    return extent


def _with_rows(nest: Nest, key: str, made: frozenset[str], found: dict[str, Read]) -> Nest:
    """``nest`` with loads that do not depend on the ``key`` replaced by names, which are added to
    ``found``."""
    if nest.reduce:
        return nest

    def named(value: Scalar) -> Scalar:
        if not isinstance(value, Read) or value.tensor in made or not value.indices:
            return value
        if any(key in symbols(index) for index in value.indices):
            return value
        name = next((n for n, r in found.items() if r == value), f"{value.tensor}.row{len(found)}")
        found[name] = value
        return Read(name, (), value.dtype)

    return replace(nest, body=transform(nest.body, named))


def _unrounded(value: Scalar, points: Mapping[str, Scalar]) -> Scalar | None:
    """The f32 that ``value`` is rounded from, if there is one."""
    whole = points.get(value.tensor, value) if isinstance(value, Read) else value
    return whole.value if isinstance(whole, Cast) and whole.value.dtype == F32 else None


def _shared(contraction: Contraction, products: Sequence[Contraction]) -> int | None:
    """The product whose right factor is that of ``contraction``, columns being its terms."""
    if len(contraction.columns) != 1:
        return None
    (column,) = contraction.columns
    for number, other in enumerate(products):
        if len(other.terms) != 1 or other.terms[0].extent != column.extent:
            continue
        turned = {other.terms[0].name: Sym(column.name)}
        if substitute_indices(other.right.value, turned) == contraction.right.value:
            return number
    return None


def _visible(weight: str, chain: TileChain) -> Index | None:
    """An index that is at least 0 where a tensor of tiles may differ from 0; None if unknown."""
    bodies = {s.output: s.body for s in chain.tiles if not s.reduce}

    def of(value: Scalar) -> Index | None:
        match value:
            case TensorSelect():
                return _sees(value)
            case Cast(inside):
                return of(inside)
            case Apply(function="mul", args=(left, right)):
                found = of(left)
                return of(right) if found is None else found
            case Apply(function="div", args=(left, _)):
                return of(left)
            case Read(tensor=name) if name in bodies:
                return of(bodies[name])
            case _:
                return None

    return of(bodies[weight]) if weight in bodies else None


def rows_at(at: Evaluation, parts: ChainParts, point: Point) -> dict[str, Expr]:
    """What tiles read of the row at ``point``."""
    return {n: at.named("row", at.value(read, point)) for n, read in parts.of_rows.items()}


def weights_at(
    at: Evaluation,
    parts: ChainParts,
    point: Point,
    made: Mapping[str, Expr],
    there: Sequence[Condition],
    narrow: bool = False,
) -> list[Expr]:
    """The ``kept`` values of the weights at ``point``; 0 unless ``there`` holds.  Products, and
    values per row, are in ``made``.

    ``narrow`` ones are kept in 16 bits: they are returned as f32 where they are rounded from that,
    and their exponentials are powers of two with 22 bits.
    """
    made = dict(made)
    for nest in (n for n in parts.tiles if not n.reduce):
        body = _binary(at, nest.body, point, made) if narrow else nest.body
        made[nest.output] = at.named("v", at.value(body, point, made))
    found: list[Expr] = []
    for one in parts.sums:
        whole = one.exact if narrow and one.exact is not None else one.kept.value
        value = at.value(whole, point, made)
        if there:
            value = Select(Predicate(tuple(there)), value, Const(0, value.dtype))
        found.append(at.named("w", value))
    return found


def _binary(at: Evaluation, body: Scalar, point: Point, made: dict[str, Expr]) -> Scalar:
    """``body`` with f32 exponentials replaced by names, which are ``made`` as powers of two."""
    if any(isinstance(node, Guard) for node in walk(body)):
        return body

    def named(value: Scalar) -> Scalar:
        match value:
            case Apply(function="exp", args=(exponent,)) if value.dtype == F32:
                name = f"power{len(made)}"
                made[name] = at.named("power", _power(at, exponent, point, made))
                return Read(name, (), F32)
            case _:
                return value

    return transform(body, named)


def _power(at: Evaluation, exponent: Scalar, point: Point, made: Mapping[str, Expr]) -> Expr:
    """e^``exponent``.  Both operands of a difference are scaled by log2(e) before it is taken, in
    an FMA: neither is the most negative number, which would become infinite."""
    factor = Const(LOG2_E, F32)
    match exponent:
        case Apply(function="sub", args=(Apply(function="mul", args=(x, Number(value=scale))), y)):
            less = ScalarCall("mul", (at.value(y, point, made), Const(-LOG2_E, F32)), F32)
            own, times = at.value(x, point, made), Const(LOG2_E * float(scale), F32)
            return Intrinsic(EXP2, (MulAdd(own, times, at.named("less", less)),))
        case _:
            value = at.value(exponent, point, made)
            return Intrinsic(EXP2, (ScalarCall("mul", (value, factor), F32),))
