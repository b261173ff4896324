"""GEMM-GEMM fusion: two contractions of which one sums the other's result along a row.

Attention is the best known case: products of queries and keys, a softmax of every row of them, and
products of the rows with values.  Any pointwise or row-wise stages between the contractions have
the same structure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Index, Sym, symbols
from modelcc.ir.scalar_tree import depends_on, reads, substitute_stage
from modelcc.ir.tensor import Apply, Axis, Stage
from modelcc.passes.tensor.shared_axes import shared_axes
from modelcc.passes.tensor.unify_axes import shared_places, unify_axes


@dataclass(frozen=True)
class GemmPair:
    """``scores`` over outer, row and key axes; ``weights`` over the same, some reducing along
    ``key``, and the last of the scores' type; ``results`` over outer, row and column axes, the
    first summing along ``key``.

    ``outer`` axes index both operands of a contraction, ``row`` only the first.  All stages use
    these axes; those of one point are left out.
    """

    outer: tuple[Axis, ...]
    row: Axis
    key: Axis
    columns: tuple[Axis, ...]
    scores: tuple[Stage, ...]
    weights: tuple[Stage, ...]
    results: tuple[Stage, ...]

    @property
    def score(self) -> str:
        """The tensor of the final scores."""
        return self.scores[-1].output

    @property
    def weight(self) -> str:
        """The tensor whose rows are summed."""
        return (self.weights or self.scores)[-1].output

    @property
    def internal(self) -> frozenset[str]:
        """Intermediate tensors."""
        return frozenset(s.output for s in (*self.scores, *self.weights, *self.results[:-1]))


def match_gemm_pair(
    stages: Sequence[Stage], reserved: frozenset[str], single: bool = False
) -> GemmPair | None:
    """The pair formed by ``stages``, with axis names that are not ``reserved``; or None.

    If a ``single`` row suffices, its axis has one point, and no stage uses it."""
    last = max((n for n, s in enumerate(stages) if s.reduce), default=0)
    if last == 0 or len({s.output for s in stages}) != len(stages):
        return None
    first, results = stages[0], shared_axes(stages[last:])
    if results is None or not (_is_product(first) and _is_product(results[0])):
        return None
    done = _renamed(stages[:last])
    ends = None if done is None else _results_renamed(results, done)
    if done is None or ends is None:
        return None
    return _paired(list(done.values()), ends, reserved, single)


def _is_product(stage: Stage) -> bool:
    body = stage.body
    return stage.combine == "sum" and isinstance(body, Apply) and body.function == "mul"


def _plain(stage: Stage) -> bool:
    """Whether each dimension is written along an axis of its own, or has one point."""
    names = [next(iter(symbols(i))) for i in stage.write if symbols(i)]
    along = [i for i in stage.write if symbols(i)]
    return along == [Sym(n) for n in names] and len(set(names)) == len(names)


def _with(stage: Stage, values: Mapping[str, Index]) -> Stage:
    """``stage`` with its axes replaced by ``values``; those that become numbers are dropped."""

    def axes(old: tuple[Axis, ...]) -> tuple[Axis, ...]:
        moved = [(values.get(a.name, Sym(a.name)), a.extent) for a in old]
        return tuple(Axis(next(iter(symbols(i))), e) for i, e in moved if symbols(i))

    moved = substitute_stage(stage, values)
    return replace(moved, axes=axes(stage.axes), reduce=axes(stage.reduce))


def _without_units(stage: Stage) -> Stage:
    return _with(stage, {a.name: 0 for a in (*stage.axes, *stage.reduce) if a.extent == 1})


def _renamed(stages: Sequence[Stage]) -> dict[str, Stage] | None:
    """Stages over the axes of the first, by their outputs; None if one has others."""
    first = _without_units(stages[0])
    if not _plain(first) or not first.axes:
        return None
    done = {first.output: first}
    for stage in map(_without_units, stages[1:]):
        values = _values(stage, done, first)
        if values is None or any(a.name not in values for a in (*stage.axes, *stage.reduce)):
            return None
        renamed = _with(stage, values)
        if not _plain(renamed) or len(renamed.reduce) > 1:
            return None
        done[stage.output] = renamed
    return done


def _values(stage: Stage, done: Mapping[str, Stage], first: Stage) -> dict[str, Index] | None:
    """Values of axes of ``stage`` in those of ``first``, from the indices of its reads."""
    own = (*stage.axes, *stage.reduce)
    return unify_axes(shared_places(stage, done), own, first.axes) or None


def _results_renamed(
    stages: Sequence[Stage], done: Mapping[str, Stage]
) -> tuple[Stage, ...] | None:
    """The last stages over the axes of the first and, for columns, some of their own."""
    first, results = next(iter(done.values())), tuple(map(_without_units, stages))
    values = _values(results[0], done, first)
    once = [r.tensor for s in results for r in reads(s.body) if r.tensor in done]
    if values is None or len(once) != 1:
        return None
    own = {a.name: Sym(f"{a.name}.column") for a in results[0].axes if a.name not in values}
    if any(a.name not in values for a in results[0].reduce):
        return None
    return tuple(_with(s, {**values, **own}) for s in results)


def _paired(
    stages: Sequence[Stage], results: Sequence[Stage], reserved: frozenset[str], single: bool
) -> GemmPair | None:
    first, last = stages[0], results[0]
    if len(last.reduce) != 1 or first.write[-1] != Sym(last.reduce[0].name):
        return None
    key = last.reduce[0]
    if any(s.reduce not in ((), (key,)) for s in stages[1:]):
        return None
    rows = _row_axes(first, last, key, {s.output for s in stages})
    cut = _last_score(stages, last)
    if not (rows or single) or cut is None or stages[cut].body.dtype != stages[-1].body.dtype:
        return None
    row = rows[-1] if rows else Axis(f"{key.name}.row", 1)
    outer = tuple(a for a in first.axes if a not in (row, key))
    columns = tuple(a for a in last.axes if a.name.endswith(".column"))
    taken = {a.name for a in (*outer, *rows[-1:])}
    if not columns or taken != {a.name for a in last.axes} - {c.name for c in columns}:
        return None
    names = _final_names(outer, row, key, columns, first.reduce, reserved)

    def final(stage: Stage) -> Stage:
        return _with(stage, {a: Sym(n) for a, n in names.items()})

    def axis(a: Axis) -> Axis:
        return Axis(names[a.name], a.extent)

    return GemmPair(
        tuple(axis(a) for a in outer),
        axis(row),
        axis(key),
        tuple(axis(a) for a in columns),
        tuple(final(s) for s in stages[: cut + 1]),
        tuple(final(s) for s in stages[cut + 1 :]),
        tuple(final(s) for s in results),
    )


def _row_axes(first: Stage, last: Stage, key: Axis, made: set[str]) -> list[Axis]:
    """Axes that index neither the second operand of the first contraction nor that of the last."""
    beside = [r for r in reads(first.body) if depends_on(r, key.name)]
    beside += [r for r in reads(last.body) if r.tensor not in made]
    return [a for a in first.axes if a != key and not any(depends_on(r, a.name) for r in beside)]


def _last_score(stages: Sequence[Stage], last: Stage) -> int | None:
    """The last stage that belongs to the first contraction pointwise: later stages read only that
    tensor."""
    points = next((n for n, s in enumerate(stages) if n and _is_of_rows(s, stages[0])), len(stages))
    for cut in reversed(range(points)):
        made = {s.output for s in stages[: cut + 1]}
        later = (*stages[cut + 1 :], last)
        if {r.tensor for s in later for r in reads(s.body)} & made == {stages[cut].output}:
            return cut
    return None


def _is_of_rows(stage: Stage, first: Stage) -> bool:
    """Whether ``stage`` defines fewer elements than there are scores."""
    return bool(stage.reduce) or len(stage.axes) != len(first.axes)


def _final_names(
    outer: Sequence[Axis],
    row: Axis,
    key: Axis,
    columns: Sequence[Axis],
    summed: Sequence[Axis],
    reserved: frozenset[str],
) -> dict[str, str]:
    wanted = {a.name: f"b{n}" for n, a in enumerate(outer)}
    wanted |= {row.name: "m", key.name: "n"}
    wanted |= {a.name: f"e{n}" for n, a in enumerate(columns)}
    wanted |= {a.name: f"d{n}" for n, a in enumerate(summed)}
    names: dict[str, str] = {}
    for own, name in wanted.items():
        while name in reserved:
            name += "_"
        names[own] = name
    return names
