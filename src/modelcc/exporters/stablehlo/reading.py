"""Reads of a stage from a tensor: slices, transpositions, and otherwise gathers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from modelcc.exporters.stablehlo.builder import Hlo
from modelcc.exporters.stablehlo.domain import Along, Domain
from modelcc.ir.index import Index, Sym, compare, simplify, split_affine, symbols
from modelcc.ir.types import I64, TensorType


def read(domain: Domain, x: Hlo, indices: Sequence[Index]) -> Along:
    """``x[indices]`` for all points of the domain; indices out of bounds are clamped."""
    if 0 in x.shape:
        return Along(domain.hlo.scalar(0, x.dtype), ())
    pairs = zip(indices, x.shape, strict=True)
    found = [i if axis_of(domain, i, e) else simplify(i, domain.bounds) for i, e in pairs]
    whole = _whole(domain, found)
    plan = [_sliced(domain, e, i, whole) for e, i in zip(x.shape, found, strict=True)]
    if any(p is not None and not p.is_whole for p in plan):
        x = _slice(domain, x, plan)
    found = [i if p is None else p.inner for i, p in zip(found, plan, strict=True)]
    return _gathered(domain, x, found)


@dataclass(frozen=True)
class _Part:
    """``start + step * inner`` for ``inner`` below ``extent``, all in bounds."""

    start: Index
    step: int
    extent: Index
    inner: Index
    is_whole: bool = False


def _whole(domain: Domain, indices: Sequence[Index]) -> set[str]:
    """Axes of the domain that occur exactly once in the indices."""
    seen: dict[str, int] = {}
    for i in indices:
        for name in symbols(i):
            seen[name] = seen.get(name, 0) + 1
    return {name for name, times in seen.items() if times == 1 and name in domain.extents}


def _sliced(domain: Domain, extent: Index, at: Index, alone: set[str]) -> _Part | None:
    """The slice of an axis that is read, if it is expressible as one."""
    if isinstance(at, int):
        inside = isinstance(extent, int) and 0 <= at < extent
        return _Part(at, 1, 1, 0, extent == 1) if inside or extent == 1 else None
    names = [name for name in at.symbols if name in domain.extents]
    if len(names) != 1 or names[0] not in alone:
        return None
    split = split_affine(at, names)
    if split is None:
        return None
    step, start, length = split[0][names[0]], split[1], domain.extents[names[0]]
    if not isinstance(step, int) or step < 1:
        return None
    last = start + (length - 1) * step
    inside = compare(0, "<=", start, domain.bounds), compare(last, "<", extent, domain.bounds)
    if inside != (True, True):
        return None
    whole = (start, step, length) == (0, 1, extent)
    return _Part(start, step, length, Sym(names[0]), whole)


def _slice(domain: Domain, x: Hlo, plan: Sequence[_Part | None]) -> Hlo:
    """Slices the planned axes; others are taken whole."""
    parts = [p or _Part(0, 1, e, 0, True) for e, p in zip(x.shape, plan, strict=True)]
    return domain.slice(
        x, [p.start for p in parts], [p.extent for p in parts], [p.step for p in parts]
    )


def axis_of(domain: Domain, at: Index, extent: Index) -> str | None:
    """The axis whose whole range ``at`` traverses, in order."""
    is_axis = isinstance(at, Sym) and domain.extents.get(at.name) == extent
    return at.name if isinstance(at, Sym) and is_axis else None


def split_places(
    domain: Domain, shape: Sequence[Index], indices: Sequence[Index]
) -> tuple[dict[int, str], dict[int, Along]]:
    """Dimensions indexed by an axis of their own, and index tensors for the other ones."""
    axes = {d: axis_of(domain, i, e) for d, (i, e) in enumerate(zip(indices, shape, strict=True))}
    plain = {d: name for d, name in axes.items() if name is not None}
    twice = {name for name in plain.values() if list(plain.values()).count(name) > 1}
    others = {d: domain.along(domain.index(i)) for d, i in enumerate(indices) if d not in plain}
    used = twice.union(*(value.axes for value in others.values()))
    for d, name in tuple(plain.items()):
        if name in used:
            others[d] = domain.iota(plain.pop(d))
    return plain, dict(sorted(others.items()))


def stacked(domain: Domain, places: Sequence[Along], axes: Sequence[str]) -> Hlo:
    """Index tensors over ``axes``, stacked along a last axis."""
    shape = tuple(domain.extents[a] for a in axes)
    columns = [domain.reshape(domain.spread(p, axes), (*shape, 1)) for p in places]
    return domain.hlo.concatenate(columns, len(axes), TensorType((*shape, len(places)), I64))


def _gathered(domain: Domain, x: Hlo, indices: Sequence[Index]) -> Along:
    indices = _with_units(domain, x.shape, indices)
    ones = [d for d, (i, e) in enumerate(zip(indices, x.shape, strict=True)) if (i, e) == (0, 1)]
    kept = [d for d in range(len(indices)) if d not in ones]
    if ones:
        x = domain.reshape(x, [x.shape[d] for d in kept])
    plain, places = split_places(domain, x.shape, [indices[d] for d in kept])
    axes = domain.union(tuple(places.values()))
    result = (*axes, *plain.values())
    if places:
        x = _gather(domain, x, plain, places, axes)
    return Along(x, result)


def _with_units(domain: Domain, shape: Sequence[Index], indices: Sequence[Index]) -> list[Index]:
    """``indices`` with axes of extent 1 in place of 0, if that keeps axes in order."""
    found: list[Index] = list(indices)
    for d, (i, e) in enumerate(zip(indices, shape, strict=True)):
        if (i, e) != (0, 1):
            continue
        for name in domain.order:
            tried: list[Index] = [*found[:d], Sym(name), *found[d + 1 :]]
            places = [domain.order.index(n) for i in tried for n in symbols(i) if n in domain.order]
            if domain.extents[name] == 1 and places == sorted(set(places)):
                found = tried
                break
    return found


def _gather(
    domain: Domain, x: Hlo, plain: dict[int, str], places: dict[int, Along], axes: Sequence[str]
) -> Hlo:
    indices = stacked(domain, list(places.values()), axes)
    offsets = list(range(len(axes), len(axes) + len(plain)))
    type = domain.type((*axes, *plain.values()), x)
    lists = {"offset_dims": offsets, "collapsed_slice_dims": list(places)}
    lists["start_index_map"] = list(places)
    numbers = ", ".join(f"{name} = {value}" for name, value in lists.items() if value)
    attributes = {
        "dimension_numbers": f"#stablehlo.gather<{numbers}, index_vector_dim = {len(axes)}>",
        "indices_are_sorted": "false",
    }
    sizes = [1 if d in places else e for d, e in enumerate(x.shape)]
    if all(isinstance(s, int) for s in sizes):
        attributes["slice_sizes"] = f"array<i64: {', '.join(map(str, sizes))}>"
        return domain.hlo.generic("gather", (x, indices), (type,), attributes)[0]
    operands = (x, indices, domain.shape(sizes))
    return domain.hlo.generic("dynamic_gather", operands, (type,), attributes)[0]
