"""Attention-like pairs of contractions, as operands and expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Bounds, Index, Sym, ceildiv, floordiv, maximum, minimum, substitute
from modelcc.ir.loop import Const, Expr, For, Intrinsic, Predicate, ScalarCall, Select
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Apply, Axis, Condition, Read, Scalar, Stage
from modelcc.ir.tensor import Select as TensorSelect
from modelcc.ir.types import BF16, BOOL, F16, F32
from modelcc.passes.tensor.gemm_pair import GemmPair, match_gemm_pair
from modelcc.passes.tensor.online_softmax import (
    OnlineSoftmax,
    of_some_keys,
    online_softmax,
    seen_keys,
)
from modelcc.schedule.expression import FreshNames
from modelcc.schedule.nest import LoopVar, Nest, linearise
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.contraction import Contraction, contraction_of
from modelcc.targets.gpu.evaluation import Evaluation, GroupKernel, Point, extent_of, not_implied
from modelcc.targets.isa.fragments import SIDE
from modelcc.targets.isa.nvidia_fast import EXP2

LOG2_E = math.log2(math.e)
TOTAL = "total"
"""The sums of weighted rows, as the epilogue reads them."""


@dataclass(frozen=True)
class AttentionParts:
    """A pair of back-to-back contractions, as nests and operands."""

    pair: GemmPair
    weights: OnlineSoftmax
    scores: tuple[Nest, ...]
    shifted: Scalar | None
    power: Scalar
    sums: tuple[Nest, ...]
    weighted: Scalar
    """The factor of the second product, made of a weight."""
    results: tuple[Nest, ...]
    first: Contraction
    second: Contraction
    of_rows: tuple[Nest, ...] = ()
    """Results per row, made of its maximum and sums."""

    @property
    def depth(self) -> int:
        """Terms (K) of a score."""
        extent = extent_of(self.first.terms)
        assert isinstance(extent, int)
        return extent

    @property
    def width(self) -> int:
        """Columns of a result."""
        extent = extent_of(self.second.columns)
        assert isinstance(extent, int)
        return extent

    def blocks(self, batch: Mapping[str, Index], start: Index, rows: int, keys: int) -> Index:
        """Blocks of ``keys`` keys, up to the last that is visible to the rows from ``start``."""
        whole = ceildiv(self.pair.key.extent, keys)
        seen = seen_keys(self.pair, self.weights)
        if seen is None:
            return whole
        last = {**batch, self.pair.row.name: start + rows - 1}
        return minimum(whole, ceildiv(maximum(substitute(seen, last), 0), keys))

    @property
    def unmasked(self) -> tuple[Nest, ...] | None:
        """Scores of visible keys, if there is a mask; else None."""
        *others, last = self.scores
        if seen_keys(self.pair, self.weights) is None or not isinstance(last.body, TensorSelect):
            return None
        return (*others, replace(last, body=last.body.then))

    def open_blocks(self, batch: Mapping[str, Index], start: Index, keys: int) -> Index:
        """Blocks of ``keys`` keys that are fully visible to rows from ``start`` on."""
        seen = seen_keys(self.pair, self.weights)
        if seen is None:
            return 0
        first = substitute(seen, {**batch, self.pair.row.name: start})
        return floordiv(maximum(minimum(first, self.pair.key.extent), 0), keys)


def within(
    at: Evaluation, index: Index, axis: Axis, ranges: Bounds
) -> tuple[Index, tuple[Condition, ...]]:
    """``index`` or the last one of the axis, and the condition that it is in range, if unknown."""
    there = not_implied((Condition(index, "<", axis.extent),), ranges)
    return at.bind(axis.name, minimum(index, axis.extent - 1) if there else index), there


def natural_power(value: Expr) -> Expr:
    """e^value."""
    return ScalarCall("exp", (value,), value.dtype)


def binary_power(scale: float) -> Callable[[Expr], Expr]:
    """e^(scale * value) as a power of two, to 22 bits: values are differences from the maximum, as
    a multiple of the most negative number would be infinite."""
    factor = Const(LOG2_E * scale, F32)
    return lambda value: Intrinsic(EXP2, (ScalarCall("mul", (value, factor), F32),))


def powers_under(
    at: Evaluation,
    top: Expr,
    seen: Expr,
    values: Sequence[Expr],
    power: Callable[[Expr], Expr] = natural_power,
) -> tuple[Expr, list[Expr]]:
    """The factor that rescales sums from the previous maximum ``seen`` to ``top``, and exponentials
    of ``values`` relative to it; 0 in rows without visible keys (Milakov and Gimelshein, "Online
    normalizer calculation for softmax", 2018)."""
    change, *powers = powers_of(at, top, (seen, *values), power)
    return change, powers


def powers_of(
    at: Evaluation,
    top: Expr,
    values: Sequence[Expr],
    power: Callable[[Expr], Expr] = natural_power,
) -> list[Expr]:
    """Exponentials of ``values`` relative to a row's maximum; 0 in rows without visible keys."""
    dtype = top.dtype
    nothing = ScalarCall("eq", (top, Const(float("-inf"), dtype)), BOOL)
    base = at.named("base", Select(nothing, Const(0.0, dtype), top))

    def under(value: Expr) -> Expr:
        return power(ScalarCall("sub", (value, base), dtype))

    return [at.named("power", under(value)) for value in values]


def verify_halves(parts: AttentionParts) -> None:
    """:class:`ScheduleError` unless tensor cores multiply the operands."""
    first, second = parts.first, parts.second
    kinds = {o.value.dtype for o in (first.left, first.right, second.right)}
    if len(kinds) != 1 or not kinds <= {F16, BF16} or parts.scores[-1].body.dtype != F32:
        raise ScheduleError("matrix units multiply f16 and bf16, and sum up in f32")
    if parts.depth % SIDE or parts.width % SIDE:
        raise ScheduleError(f"terms and columns are whole fragments of {SIDE}")
    if parts.shifted is None:
        raise ScheduleError("weights of rows are powers under their largest score")
    if parts.weighted.dtype != F32 or parts.results[0].body.dtype != F32:
        raise ScheduleError("weights are f32")


def find_attention(kernel: GroupKernel) -> AttentionParts:
    """The attention-like pair of a kernel; :class:`ScheduleError` if it is none, weights need all
    keys of a row at once, or the length of operands' rows is not a constant."""
    stages = kernel.kernel.stages
    pair = match_gemm_pair(stages, frozenset(kernel.dims))
    weights = None if pair is None else online_softmax(pair)
    whole, *beside = kernel.kernel.outputs
    if pair is None or weights is None or whole != pair.results[-1].output:
        raise ScheduleError("the kernel is not two contractions of which one sums the other's rows")
    stages = (*pair.scores, *pair.weights, *pair.results)
    made = frozenset((TOTAL, *(s.output for s in stages)))

    def nest(stage: Stage) -> Nest:
        return linearise(stage, kernel.types, kernel.dims, made, {})

    def at_keys(body: Scalar) -> Scalar:
        return nest(replace(pair.scores[-1], body=body, reduce=(), combine=None)).body

    scores, sum_of = tuple(map(nest, pair.scores)), nest(pair.results[0])
    outer, row, key = _loops(pair.outer), _loops((pair.row,)), _loops((pair.key,))
    first = contraction_of(scores[0], row, key, outer)
    weighted = _weighted(sum_of.body, pair.weight)
    second = contraction_of(sum_of, row, _loops(pair.columns), outer)
    if first is None or second is None or weighted is None:
        raise ScheduleError("one factor of each contraction moves along rows, the other one not")
    if not all(isinstance(extent_of(v), int) for v in (first.terms, second.columns)):
        raise ScheduleError("terms of scores and columns of results have to be known")
    shifted = None if weights.shifted is None else at_keys(weights.shifted)
    results = (scaled(pair, weights, kernel.dims), *pair.results[1:])
    sums = tuple(map(nest, weights.sums))
    of_rows = tuple(nest(s) for s in pair.weights if s.output in beside)
    if len(of_rows) < len(beside) or not all(_is_of_row(n, weights) for n in of_rows):
        raise ScheduleError("other results are made of the maximum and the sums of rows")
    return AttentionParts(
        pair, weights, scores, shifted, at_keys(weights.power), sums, weighted,
        tuple(map(nest, results)), first, second, of_rows,
    )  # fmt: skip


def _is_of_row(nest: Nest, weights: OnlineSoftmax) -> bool:
    """Whether a result is made of nothing but the maximum and sums of its row."""
    known = {s.output for s in weights.sums}
    known |= set() if weights.maximum is None else {weights.maximum.output}
    return not nest.reduce and {r.tensor for r in reads(nest.body)} <= known


def store_of_rows(
    at: Evaluation, parts: AttentionParts, point: Point, top: Expr, sums: Mapping[str, Expr]
) -> None:
    """Stores the results of the row at ``point``, whose maximum score is ``top``."""
    made = dict(sums)
    if parts.weights.maximum is not None:
        made[parts.weights.maximum.output] = top
    for nest in parts.of_rows:
        at.store(nest, point, at.value(nest.body, point, made))


def _loops(axes: Sequence[Axis]) -> tuple[LoopVar, ...]:
    return tuple(LoopVar(a.name, a.extent, a.name) for a in axes)


def scaled(pair: GemmPair, weights: OnlineSoftmax, dims: Bounds) -> Stage:
    """The first result of a pair, made of :data:`TOTAL`."""
    first = pair.results[0]
    value: Scalar = Read(TOTAL, (), first.body.dtype)
    for function, factor in weights.factor:
        value = Apply(function, (value, factor), value.dtype)
    body = of_some_keys(value, pair, dims) if weights.factor else value
    return replace(first, body=body, reduce=(), combine=None)


def _weighted(body: Scalar, weight: str) -> Scalar | None:
    """The factor of a product that reads nothing but the weight."""
    if not isinstance(body, Apply):
        return None
    return next((a for a in body.args if {r.tensor for r in reads(a)} == {weight}), None)


def shifted_score(
    at: Evaluation,
    parts: AttentionParts,
    scores: Sequence[Nest],
    point: Point,
    product: Expr,
    there: Sequence[Condition],
) -> Expr:
    """The exponent at ``point``: ``scores`` is the epilogue of the ``product`` of a row and a key;
    -inf unless ``there`` holds."""
    assert parts.shifted is not None
    first, *rest = scores
    made: dict[str, Expr] = {first.output: product}
    for nest in rest:
        made[nest.output] = at.named("v", at.value(nest.body, point, made))
    value = at.value(parts.shifted, point, made)
    least = Const(float("-inf"), F32)
    return at.named("x", Select(Predicate(tuple(there)), value, least) if there else value)


def all_fragments(names: FreshNames, stem: str, count: int) -> tuple[Sym, Callable[..., For]]:
    """A fragment index, and an unrolled loop over all fragments."""
    number = Sym(names.fresh(stem))
    return number, lambda *body: For(number.name, 0, count, body, kind="unrolled")
