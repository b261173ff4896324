"""Chained contractions whose tiles are never stored: contractions of one shape, element-wise stages
on these, and contractions that each sum one such tensor along its rows.

Gradients of attention have this form: products of queries and keys and of values and the result's
gradient, weights and score gradients made of both, and sums of these.  A tile of the products is
computed in registers or shared memory and used at once; other sums of the same tiles recompute
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Index, Sym, symbols
from modelcc.ir.scalar_tree import depends_on, reads, substitute_stage
from modelcc.ir.tensor import Apply, Axis, Stage
from modelcc.passes.tensor.shared_axes import shared_axes


@dataclass(frozen=True)
class ChainEnd:
    """``weight`` is the tensor whose rows are summed; ``results`` are over outer, row and column
    axes, the first summing along the key, and the others element-wise on it."""

    weight: str
    columns: tuple[Axis, ...]
    results: tuple[Stage, ...]


@dataclass(frozen=True)
class TileChain:
    """``tiles`` are over outer, row and key axes: products, and element-wise stages on these and on
    tensors in memory, in order.

    All factors move along ``outer`` axes, only one of each product along ``row``, the other one
    along ``key``.  All stages use these axes; those of length 1 are left out.
    """

    outer: tuple[Axis, ...]
    row: Axis
    key: Axis
    tiles: tuple[Stage, ...]
    ends: tuple[ChainEnd, ...]

    @property
    def products(self) -> tuple[Stage, ...]:
        """The contractions among the tiles."""
        return tuple(s for s in self.tiles if s.reduce)


def match_tile_chain(
    stages: Sequence[Stage], outputs: Sequence[str], reserved: frozenset[str]
) -> TileChain | None:
    """The chain that ``stages`` are, with results ``outputs``, its axes having names that are not
    ``reserved``; or None."""
    if len({s.output for s in stages}) != len(stages):
        return None
    plain = [_without_units(s) for s in stages]
    groups = _grouped(plain)
    if groups is None:
        return None
    tiles, ends = groups
    if [group[-1].output for group in ends] != list(outputs) or not tiles:
        return None
    first = _chain(tiles, ends, reserved)
    return first if first is not None and _is_whole(first) else None


def _grouped(
    stages: Sequence[Stage],
) -> tuple[list[Stage], list[tuple[Stage, ...]]] | None:
    """Stages of tiles, and those of each end on the axes of its sum."""
    made: set[str] = set()
    tiles: list[Stage] = []
    ends: list[list[Stage]] = []
    for stage in stages:
        own = {r.tensor for r in reads(stage.body)}
        after = [group for group in ends if own & {s.output for s in group}]
        if len(after) > 1 or (after and (stage.reduce or own & made)):
            return None
        if after:
            after[0].append(stage)
        elif stage.reduce and own & made:
            ends.append([stage])
        else:
            tiles.append(stage)
            made.add(stage.output)
    shared = [shared_axes(group) for group in ends]
    found = [group for group in shared if group is not None]
    return (tiles, found) if found and len(found) == len(ends) else None


def _chain(
    tiles: Sequence[Stage], ends: Sequence[tuple[Stage, ...]], reserved: frozenset[str]
) -> TileChain | None:
    made = {s.output: s for s in tiles}
    weights = [_weight(group[0], made) for group in ends]
    sides = [_sides(group[0], made) for group in ends]
    if None in weights or None in sides:
        return None
    outer, row, _, key = sides[0] or ((), Axis("", 1), (), Axis("", 1))
    placed = _placed(tiles, made, ends[0][0])
    if placed is None:
        return None
    stages, places = placed
    names = _FreshAxes(reserved)
    final = {a.name: names.of(f"b{n}") for n, a in enumerate(outer)}
    final |= {row.name: names.of("m"), key.name: names.of("n")}
    common = (*outer, row, key)
    found: list[ChainEnd] = []
    for group, side, weight in zip(ends, sides, weights, strict=True):
        assert side is not None
        assert weight is not None
        values = _values(group[0], weight, places, common)
        if values is None or values.get(side[3].name) != Sym(key.name):
            return None
        renamed = {n: Sym(final[v.name]) for n, v in values.items() if isinstance(v, Sym)}
        own = {a.name: names.of(f"e{n}") for n, a in enumerate(side[2])}
        renamed |= {name: Sym(new) for name, new in own.items()}
        results = tuple(_with(s, renamed) for s in group)
        axes = tuple(Axis(own[a.name], a.extent) for a in side[2])
        found.append(ChainEnd(weight, axes, results))
    summed = names.of_terms(stages)
    last = tuple(_with(s, {**_syms(final), **_syms(summed[s.output])}) for s in stages)

    def axis(a: Axis) -> Axis:
        return Axis(final[a.name], a.extent)

    return TileChain(tuple(map(axis, outer)), axis(row), axis(key), last, tuple(found))


def _syms(names: Mapping[str, str]) -> dict[str, Index]:
    return {old: Sym(new) for old, new in names.items()}


def _weight(end: Stage, made: Mapping[str, Stage]) -> str | None:
    """The one tensor of tiles that a sum reads, as a factor."""
    read = [r.tensor for r in reads(end.body) if r.tensor in made]
    return read[0] if len(read) == 1 else None


def _is_product(stage: Stage) -> bool:
    body = stage.body
    return stage.combine == "sum" and isinstance(body, Apply) and body.function == "mul"


_Sides = tuple[tuple[Axis, ...], Axis, tuple[Axis, ...], Axis]


def _sides(end: Stage, made: Mapping[str, Stage]) -> _Sides | None:
    """Outer axes, the row, columns and the key of a sum of rows."""
    if not (_is_product(end) and isinstance(end.body, Apply)) or len(end.reduce) != 1:
        return None
    left, right = end.body.args
    if not any(r.tensor in made for r in reads(left)):
        left, right = right, left
    along = [depends_on(left, a.name) for a in end.axes]
    beside = [depends_on(right, a.name) for a in end.axes]
    rows = [a for a, x, y in zip(end.axes, along, beside, strict=True) if x and not y]
    columns = tuple(a for a, x, y in zip(end.axes, along, beside, strict=True) if y and not x)
    outer = tuple(a for a, x, y in zip(end.axes, along, beside, strict=True) if x and y)
    if not rows or not columns or len(rows) + len(columns) + len(outer) != len(end.axes):
        return None
    return (*rows[:-1], *outer), rows[-1], columns, end.reduce[0]


_Placed = tuple[tuple[Stage, ...], dict[str, tuple[Index, ...]]]


def _placed(tiles: Sequence[Stage], made: Mapping[str, Stage], end: Stage) -> _Placed | None:
    """Stages of tiles on the axes of ``end``, and the indices that each writes; None if one is read
    at several indices, or not at all.

    Tiles that only other ends read are placed by their operands.
    """
    places: dict[str, tuple[Index, ...]] = {}
    done: dict[str, Stage] = {}

    def put(tensor: str, indices: tuple[Index, ...]) -> bool:
        return places.setdefault(tensor, indices) == indices

    for read in (r for r in reads(end.body) if r.tensor in made):
        put(read.tensor, read.indices)
    pending = True
    while pending:
        pending = False
        for stage in reversed(tiles):
            if stage.output in done:
                continue
            values = _own_values(stage, places)
            if values is None:
                continue
            names = {a.name: Sym(f"{stage.output}.{a.name}") for a in stage.reduce}
            renamed = _with(stage, {**values, **names})
            inside = [r for r in reads(renamed.body) if r.tensor in made]
            if not all(put(r.tensor, r.indices) for r in inside):
                return None
            done[stage.output], pending = renamed, True
            places.setdefault(stage.output, renamed.write)
    if len(done) < len(tiles):
        return None
    return tuple(done[s.output] for s in tiles), places


def _own_values(stage: Stage, places: Mapping[str, tuple[Index, ...]]) -> dict[str, Index] | None:
    """Axes of a stage by the indices that it has to write, or that it reads; None if not known."""
    pairs: list[tuple[Index, Index]] = []
    if stage.output in places:
        pairs += zip(stage.write, places[stage.output], strict=True)
    elif not stage.reduce:
        for read in (r for r in reads(stage.body) if r.tensor in places):
            pairs += zip(read.indices, places[read.tensor], strict=True)
    return _unified(pairs, stage.axes)


def _unified(pairs: Sequence[tuple[Index, Index]], axes: Sequence[Axis]) -> dict[str, Index] | None:
    """Values of ``axes`` for which the first of each pair is the second; None if there are none."""
    values: dict[str, Index] = {}
    for own, target in pairs:
        if isinstance(own, Sym) and isinstance(target, Sym):
            if values.setdefault(own.name, target) != target:
                return None
        elif own != target:
            return None
    used = [n for v in values.values() for n in symbols(v)]
    known = set(values) == {a.name for a in axes}
    return values if known and len(set(used)) == len(used) == len(values) else None


def _values(
    end: Stage, weight: str, places: Mapping[str, tuple[Index, ...]], common: Sequence[Axis]
) -> dict[str, Index] | None:
    """Axes of a sum, except its columns, in the names of all tiles."""
    (read,) = (r for r in reads(end.body) if r.tensor == weight)
    moving = [a for a in (*end.axes, *end.reduce) if depends_on(read, a.name)]
    found = _unified(list(zip(read.indices, places[weight], strict=True)), moving)
    extents = {a.name: a.extent for a in common}
    if found is None or not all(isinstance(v, Sym) and v.name in extents for v in found.values()):
        return None
    same = (a.extent == extents[str(found[a.name])] for a in moving)
    return found if all(same) else None


def _is_whole(chain: TileChain) -> bool:
    """Whether tiles are products of rows and keys, and element-wise stages on these."""
    tile = {a.name for a in (*chain.outer, chain.row, chain.key)}
    for stage in chain.tiles:
        if not {a.name for a in stage.axes} <= tile:
            return False
        if stage.reduce and not (_is_product(stage) and _has_sides(stage, chain)):
            return False
    rows = {a.name for a in (*chain.outer, chain.row)}
    ends = ({a.name for a in e.results[0].axes} - {c.name for c in e.columns} for e in chain.ends)
    return bool(chain.products) and all(axes == rows for axes in ends)


def _has_sides(stage: Stage, chain: TileChain) -> bool:
    """Whether one factor moves along rows and the other one along keys."""
    assert isinstance(stage.body, Apply)
    sides = [
        (depends_on(f, chain.row.name), depends_on(f, chain.key.name)) for f in stage.body.args
    ]
    return sorted(sides) == [(False, True), (True, False)]


def _with(stage: Stage, values: Mapping[str, Index]) -> Stage:
    """``stage`` with its axes replaced by ``values``."""

    def axes(old: tuple[Axis, ...]) -> tuple[Axis, ...]:
        moved = ((values.get(a.name, Sym(a.name)), a.extent) for a in old)
        return tuple(Axis(i.name, e) for i, e in moved if isinstance(i, Sym))

    moved = substitute_stage(stage, values)
    return replace(moved, axes=axes(stage.axes), reduce=axes(stage.reduce))


def _without_units(stage: Stage) -> Stage:
    return _with(stage, {a.name: 0 for a in (*stage.axes, *stage.reduce) if a.extent == 1})


class _FreshAxes:
    """Unused names."""

    def __init__(self, reserved: frozenset[str]) -> None:
        self._taken = set(reserved)

    def of(self, wanted: str) -> str:
        while wanted in self._taken:
            wanted += "_"
        self._taken.add(wanted)
        return wanted

    def of_terms(self, stages: Sequence[Stage]) -> dict[str, dict[str, str]]:
        """Names of reduction axes, by the stage that has them."""
        return {
            s.output: {a.name: self.of(f"d{n}") for n, a in enumerate(s.reduce)} for s in stages
        }
