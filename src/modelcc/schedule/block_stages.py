"""Stage groups of a GEMM pair (attention) for a block of rows and of keys.

Scores, and the weights that overwrite them, are a local tensor of rows × keys.  With all keys in
one block, scores, weights and results follow each other.  Otherwise, for every block (online
softmax)::

    before = seen;  block = max[n] x;  seen = max(before, block)
    power[n] = exp(x[n] - seen);  change = exp(before - seen)
    sum = sum * change + sum[n] power[n];  result = result * change + sum[n] power[n] * v[n]

and in the end ``result * factor``.  A maximum of minus infinity counts as 0 in differences: its
exponentials are 0 until there is a finite score, and a row without any yields NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from modelcc.ir.index import Index, Sym, substitute
from modelcc.ir.scalar_tree import substitute_indices, transform
from modelcc.ir.tensor import Apply, Axis, Number, Read, Scalar, Select, Stage
from modelcc.ir.types import BOOL, DType
from modelcc.passes.tensor.gemm_pair import GemmPair
from modelcc.passes.tensor.online_softmax import OnlineSoftmax, of_some_keys

BEFORE, BLOCK, CHANGE = "before", "block", "change"
"""Suffixes of a row's state before this block of keys, of the value of this block alone, and of the
factor by which a new maximum rescales running sums."""


@dataclass(frozen=True)
class BlockRange:
    """``rows`` rows from ``row`` on, ``keys`` keys from ``key`` on."""

    row: Index
    rows: Index
    key: Index = 0
    keys: Index = 0


@dataclass(frozen=True)
class StageGroup:
    """Stages that are computed together: traversals along keys if ``rows``, the product that makes
    ``scores`` or the ``total``, else stages with one element per row."""

    stages: tuple[Stage, ...]
    stored: frozenset[str]
    rows: bool = False
    scores: bool = False
    total: bool = False


@dataclass(frozen=True)
class BlockStages:
    """The groups of ``pair``; ``weights`` are None if they need all keys at once.  If not, rows may
    be ``empty``, of no keys."""

    pair: GemmPair
    weights: OnlineSoftmax | None
    empty: bool = False

    @property
    def total(self) -> str:
        """The local tensor of running sums of weighted rows."""
        return f"{self.pair.results[0].output}.seen"

    def per_row(self, in_key_blocks: bool) -> dict[str, DType]:
        """Local tensors with an element for each row."""
        if self.weights is None:
            return {}
        dtypes = {s.output: s.body.dtype for s in self.weights.sums}
        if in_key_blocks:
            dtypes |= {f"{name}.{BLOCK}": dtype for name, dtype in dtypes.items()}
            maximum = self.weights.maximum
            if maximum is not None:
                names = (maximum.output, *(f"{maximum.output}.{x}" for x in (BEFORE, CHANGE)))
                dtypes |= dict.fromkeys(names, maximum.body.dtype)
        return dtypes

    # --- all keys at once

    def at_once(self, part: BlockRange) -> list[StageGroup]:
        """Scores, weights and results of ``part``."""
        weights = self.weights
        if weights is None:
            stages = [self._placed(s, part) for s in self.pair.weights]
            return [self._scores(part), self._along(stages, [self.pair.score]), self._sum(part)]
        stages: list[Stage] = []
        if weights.maximum is not None:
            top = self._placed(weights.maximum, part)
            stages.append(top)
        stages += self._powers(part, self._power(part))
        stored = [self.pair.score, *(s.output for s in weights.sums)]
        return [self._scores(part), *self._walked(stages, stored), self._sum(part)]

    def _walked(self, stages: list[Stage], stored: list[str]) -> list[StageGroup]:
        """The group that computes weights from scores, if they differ."""
        idle = len(stages) == 1 and stages[0].body == self._score()
        return [] if idle else [self._along(stages, stored)]

    def _sum(self, part: BlockRange) -> StageGroup:
        """The product that sums weighted rows, with its epilogue."""
        first, *rest = (self._placed(s, part) for s in self.pair.results)
        if self.weights is None or not self.weights.factor:
            return StageGroup(
                (first, *rest), frozenset((self.pair.results[-1].output,)), total=True
            )
        summed = replace(first, output=self.total, write=self._places())
        return replace(self._finished((summed,), part), total=True)

    def _finished(self, before: tuple[Stage, ...], part: BlockRange) -> StageGroup:
        """Results from sums in local tensors."""
        first, *rest = (self._placed(s, part) for s in self.pair.results)
        value: Scalar = Read(self.total, self._places(), first.body.dtype)
        for function, factor in self.weights.factor if self.weights is not None else ():
            value = Apply(function, (value, self._in_place(factor, part)), value.dtype)
        if self.empty:
            value = of_some_keys(value, self.pair, {})
        scaled = replace(first, body=value, reduce=(), combine=None)
        return StageGroup((*before, scaled, *rest), frozenset((self.pair.results[-1].output,)))

    # --- keys in blocks

    def start(self, part: BlockRange) -> list[StageGroup]:
        """Initialises the state of all rows."""
        weights = self._online
        first = self._placed(self.pair.results[0], part)
        none = Number(0.0, first.body.dtype)
        stages = [Stage(self.total, first.axes, self._places(), none)]
        row = self._rows(part)
        for stage in weights.sums:
            stages.append(self._per_row(stage.output, row, Number(0.0, stage.body.dtype)))
        if weights.maximum is not None:
            least = Number(float("-inf"), weights.maximum.body.dtype)
            stages.append(self._per_row(weights.maximum.output, row, least))
        return [self._single(s) for s in stages]

    def key_block(self, part: BlockRange) -> list[StageGroup]:
        """Scores and weights of ``part``, and running sums updated by it."""
        weights = self._online
        stored = [self.pair.score, *(f"{s.output}.{BLOCK}" for s in weights.sums)]
        stages = [
            replace(s, output=f"{s.output}.{BLOCK}") if s.reduce else s
            for s in self._powers(part, self._power(part))
        ]
        if weights.maximum is None:
            walked = self._walked(stages, stored)
            return [self._scores(part), *walked, *self._sums(part), self._total(part)]
        name, dtype = weights.maximum.output, weights.maximum.body.dtype
        before, row = f"{name}.{BEFORE}", self._rows(part)
        seen, block = self._of_row(name, dtype), self._of_row(f"{name}.{BLOCK}", dtype)
        top = replace(self._placed(weights.maximum, part), output=block.tensor)
        copy = self._per_row(before, row, seen)
        raised = self._per_row(name, row, Apply("max", (self._of_row(before, dtype), block), dtype))
        change = Apply("exp", (_difference(self._of_row(before, dtype), seen),), dtype)
        return [
            self._single(copy),
            self._scores(part),
            self._along([top, raised, *stages], [*stored, name]),
            self._single(self._per_row(f"{name}.{CHANGE}", row, change)),
            *self._sums(part),
            self._total(part),
        ]

    def end(self, part: BlockRange) -> list[StageGroup]:
        """Results of the running sums."""
        return [self._finished((), part)]

    @property
    def _online(self) -> OnlineSoftmax:
        if self.weights is None:
            raise ValueError("these weights need all keys at once")
        return self.weights

    def _sums(self, part: BlockRange) -> list[StageGroup]:
        """Running sums along rows, updated by this block."""
        groups: list[StageGroup] = []
        for stage in self._online.sums:
            dtype = stage.body.dtype
            own = self._changed(self._of_row(stage.output, dtype))
            block = self._of_row(f"{stage.output}.{BLOCK}", dtype)
            added = self._per_row(stage.output, self._rows(part), Apply("add", (own, block), dtype))
            groups.append(self._single(added))
        return groups

    def _total(self, part: BlockRange) -> StageGroup:
        """Running sums of rows of values, updated by this block."""
        first = self._placed(self.pair.results[0], part)
        places, dtype = self._places(), first.body.dtype
        block = replace(first, output=f"{self.total}.{BLOCK}", write=places)
        own = self._changed(Read(self.total, places, dtype))
        value = Apply("add", (own, Read(block.output, places, dtype)), dtype)
        added = Stage(self.total, first.axes, places, value)
        return StageGroup((block, added), frozenset((self.total,)), total=True)

    def _changed(self, value: Read) -> Scalar:
        maximum = self._online.maximum
        if maximum is None:
            return value
        change = self._of_row(f"{maximum.output}.{CHANGE}", maximum.body.dtype)
        return Apply("mul", (value, change), value.dtype)

    # --- stages

    def _scores(self, part: BlockRange) -> StageGroup:
        stages = tuple(self._placed(s, part) for s in self.pair.scores)
        return StageGroup(stages, frozenset((self.pair.score,)), scores=True)

    def _along(self, stages: list[Stage], stored: list[str]) -> StageGroup:
        return StageGroup(tuple(stages), frozenset(stored), rows=True)

    def _power(self, part: BlockRange) -> Scalar:
        """The exponential that overwrites a score."""
        weights = self._online
        if weights.maximum is None or weights.shifted is None:
            return self._in_place(weights.power, part)
        dtype = weights.maximum.body.dtype
        shifted = self._in_place(weights.shifted, part)
        top = self._of_row(weights.maximum.output, dtype)
        return Apply("exp", (_difference(shifted, top),), dtype)

    def _powers(self, part: BlockRange, power: Scalar) -> list[Stage]:
        """Exponentials in place of scores and their sums; sums of other values come first."""
        weights = self._online
        axes = (self._rows(part), self._keys(part))
        stored = Stage(self.pair.score, axes, self._at(self.pair.key.name), power)
        others = [s for s in weights.sums if s.body != weights.power]
        of_powers = [self._placed(s, part) for s in weights.sums if s.body == weights.power]
        sums = [replace(s, body=self._score()) for s in of_powers]
        return [*(self._placed(s, part) for s in others), stored, *sums]

    def _score(self) -> Read:
        dtype = self.pair.scores[-1].body.dtype
        return Read(self.pair.score, self._at(self.pair.key.name), dtype)

    def _placed(self, stage: Stage, part: BlockRange) -> Stage:
        """``stage`` of ``part``, with scores and weights in local tensors."""
        row, key = self.pair.row.name, self.pair.key.name
        extents: dict[str, Index] = {row: part.rows, key: part.keys}
        extents |= {a.name: a.extent for a in self.pair.columns}
        local = stage.output in (self.pair.score, self.pair.weight)
        of_row = stage.reduce == (self.pair.key,) and stage not in self.pair.results
        write = tuple(substitute(i, self._values(part)) for i in stage.write)
        return replace(
            stage,
            output=self.pair.score if local else stage.output,
            axes=tuple(Axis(a.name, extents[a.name]) for a in stage.axes if a.name in extents),
            reduce=tuple(Axis(a.name, extents.get(a.name, a.extent)) for a in stage.reduce),
            write=self._at(key) if local else self._at() if of_row else write,
            body=self._in_place(stage.body, part),
        )

    def _values(self, part: BlockRange) -> Mapping[str, Index]:
        row, key = self.pair.row.name, self.pair.key.name
        return {row: part.row + Sym(row), key: part.key + Sym(key)}

    def _in_place(self, body: Scalar, part: BlockRange) -> Scalar:
        """``body`` at the elements of ``part``, reading local tensors where these exist."""
        per_row = self.per_row(True)

        def visit(node: Scalar) -> Scalar:
            if not isinstance(node, Read):
                return node
            if node.tensor in (self.pair.score, self.pair.weight):
                return Read(self.pair.score, self._at(self.pair.key.name), node.dtype)
            return Read(node.tensor, self._at(), node.dtype) if node.tensor in per_row else node

        return transform(substitute_indices(body, self._values(part)), visit)

    def _places(self) -> tuple[Index, ...]:
        return self._at(*(a.name for a in self.pair.columns))

    def _rows(self, part: BlockRange) -> Axis:
        return Axis(self.pair.row.name, part.rows)

    def _keys(self, part: BlockRange) -> Axis:
        return Axis(self.pair.key.name, part.keys)

    def _at(self, *axes: str) -> tuple[Index, ...]:
        return (Sym(self.pair.row.name), *(Sym(a) for a in axes))

    def _of_row(self, name: str, dtype: DType) -> Read:
        return Read(name, self._at(), dtype)

    def _per_row(self, name: str, row: Axis, body: Scalar) -> Stage:
        return Stage(name, (row,), self._at(), body)

    def _single(self, stage: Stage) -> StageGroup:
        return StageGroup((stage,), frozenset((stage.output,)))


def _difference(value: Scalar, maximum: Read) -> Scalar:
    """``value - maximum``, with nothing subtracted for a maximum of minus infinity."""
    dtype = maximum.dtype
    least = Number(float("-inf"), dtype)
    none = Apply("eq", (maximum, least), BOOL)
    top = Select(none, Number(0.0, dtype), maximum, dtype)
    return Apply("sub", (value, top), dtype)
