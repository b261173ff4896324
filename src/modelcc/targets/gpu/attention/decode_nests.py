"""Attention-like pairs of contractions with few rows, as nests: what a group computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from modelcc.ir.index import coefficient
from modelcc.ir.scalar_tree import index_symbols, reads
from modelcc.ir.tensor import Apply, Scalar, Stage
from modelcc.ir.types import F32
from modelcc.passes.tensor.gemm_pair import GemmPair, match_gemm_pair
from modelcc.schedule.expression import vectorisable
from modelcc.schedule.nest import LoopVar, Nest, linearise
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.evaluation import GroupKernel, extent_of

MOST_ROWS = 16
MOST_KEYS = 1024
"""Scores of a row that a group keeps in shared memory."""


@dataclass(frozen=True)
class DecodeParts:
    """A pair with constant numbers of rows and keys, of which only ``values`` are read along
    columns; ``scores`` follow the first product, then come ``weights``; ``results`` follow the
    sums.

    ``query`` moves along rows, ``key`` along keys; sums are of ``weighted`` times ``value``."""

    pair: GemmPair
    product: Nest
    query: Scalar
    key: Scalar
    scores: tuple[Nest, ...]
    weights: tuple[Nest, ...]
    total: Nest
    weighted: Scalar
    value: Scalar
    results: tuple[Nest, ...]
    batch: tuple[LoopVar, ...]
    columns: tuple[LoopVar, ...]

    @property
    def weight(self) -> str:
        """The tensor whose rows are summed."""
        return next(r.tensor for r in reads(self.weighted))

    @property
    def rows(self) -> int:
        return _number(self.pair.row.extent)

    @property
    def keys(self) -> int:
        return _number(self.pair.key.extent)

    @property
    def depth(self) -> int:
        """Terms (K) of a score."""
        return _number(extent_of(self.product.reduce))

    @property
    def width(self) -> int:
        """Columns of a result."""
        return _number(extent_of(self.columns))

    @property
    def read_once(self) -> tuple[Scalar, Scalar]:
        """Keys and values, which all rows share."""
        return self.key, self.value

    def takes_lanes(self, lanes: int) -> bool:
        """Whether keys and values can be loaded as whole vectors."""
        along = (self.key, self.product.reduce[-1]), (self.value, self.columns[-1])
        return are_vectors(along, lanes)


def are_vectors(along: Sequence[tuple[Scalar, LoopVar]], lanes: int) -> bool:
    """Whether factors can be loaded as whole vectors of ``lanes`` along a loop each."""
    return lanes == 1 or all(
        _number(v.extent) % lanes == 0 and vectorisable(factor, v.name, lanes)
        for factor, v in along
    )


def in_memory_order(key: Scalar, batch: tuple[LoopVar, ...]) -> tuple[LoopVar, ...]:
    """Loops over groups by decreasing stride of the keys, so that concurrent groups read
    neighbouring memory."""
    index = next((r.indices[0] for r in reads(key) if len(r.indices) == 1), None)
    steps = [None if index is None else coefficient(index, v.name) for v in batch]
    known = [step for step in steps if isinstance(step, int)]
    if len(known) < len(steps):
        return batch
    order = sorted(range(len(known)), key=lambda n: -known[n])
    return tuple(batch[n] for n in order)


def find_decode(kernel: GroupKernel) -> DecodeParts:
    """The pair of a kernel; :class:`ScheduleError` if it is none with few rows."""
    stages = kernel.kernel.stages
    pair = match_gemm_pair(stages, frozenset(kernel.dims), single=True)
    if pair is None or not (
        _is_few(pair.row.extent, MOST_ROWS) and _is_few(pair.key.extent, MOST_KEYS)
    ):
        raise ScheduleError("the kernel is not two contractions of few rows and known keys")
    made = frozenset(s.output for s in (*pair.scores, *pair.weights, *pair.results))

    def nest(stage: Stage) -> Nest:
        return linearise(stage, kernel.types, kernel.dims, made - kernel.stored, {})

    product, *scores = map(nest, pair.scores)
    weights = tuple(map(nest, pair.weights))
    total, *results = map(nest, pair.results)
    query, key = factors_of(product, pair.key.name)
    weighted, value = factors_of(total, pair.columns[-1].name)
    names = {a.name for a in pair.columns}
    columns = tuple(v for v in total.parallel if v.name in names)
    batch = tuple(v for v in total.parallel if v.name not in {*names, pair.row.name})
    parts = DecodeParts(
        pair, product, query, key, tuple(scores), weights, total, weighted, value,
        tuple(results), batch, columns,
    )  # fmt: skip
    _verify(kernel, parts)
    return parts


def _verify(kernel: GroupKernel, parts: DecodeParts) -> None:
    pair, nests = parts.pair, (parts.product, *parts.scores, *parts.weights, parts.total)
    if not all(isinstance(v.extent, int) for v in (*parts.product.reduce, *parts.columns)):
        raise ScheduleError("terms of scores and columns of results have to be known")
    if any(nest.body.dtype != F32 for nest in nests):
        raise ScheduleError("threads combine scores and sums in f32")
    read = {r.tensor for r in reads(parts.weighted)}
    if len(read) != 1 or not read <= {s.output for s in (*pair.scores, *pair.weights)}:
        raise ScheduleError("the factor of a weight reads nothing else")
    stored = kernel.stored - {pair.results[-1].output}
    of_rows = {s.output for s in pair.weights if pair.key.name not in _written(s)}
    if pair.results[-1].output not in kernel.stored or not stored <= of_rows:
        raise ScheduleError("scores of a group are not kept")


def _written(stage: Stage) -> set[str]:
    return {a.name for a in stage.axes}


def factors_of(nest: Nest, moving: str) -> tuple[Scalar, Scalar]:
    """The factors of a product, of which only the second one moves along an axis."""
    match nest.body:
        case Apply(function="mul", args=(first, second)):
            along = [f for f in (first, second) if moving in index_symbols(f)]
            if len(along) == 1:
                return (second, first) if along[0] is first else (first, second)
        case _:
            pass
    raise ScheduleError("one factor of each contraction moves along keys, or along columns")


def _is_few(extent: object, most: int) -> bool:
    return isinstance(extent, int) and 0 < extent <= most


def _number(extent: object) -> int:
    assert isinstance(extent, int)
    return extent
