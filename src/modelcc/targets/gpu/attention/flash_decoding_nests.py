"""FlashDecoding's back-to-back contractions of few rows by many keys, as nests: what lanes compute
key by key."""

from __future__ import annotations

from dataclasses import dataclass, replace

from modelcc.ir.index import Index
from modelcc.ir.scalar_tree import depends_on, reads
from modelcc.ir.tensor import Scalar, Stage
from modelcc.ir.types import F32, DType
from modelcc.passes.tensor.gemm_pair import GemmPair, match_gemm_pair
from modelcc.passes.tensor.online_softmax import online_softmax
from modelcc.schedule.nest import LoopVar, Nest, linearise
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.attention.attention_parts import TOTAL, scaled
from modelcc.targets.gpu.attention.decode_nests import are_vectors, factors_of
from modelcc.targets.gpu.evaluation import GroupKernel, extent_of


@dataclass(frozen=True)
class FlashDecodingNests:
    """A pair with a constant number of rows, whose weights are exponentials of ``shifted``, made of
    ``scores``, the epilogue of the first product; ``sums`` are names of sums of exponentials;
    ``results`` follow these and :data:`~modelcc.targets.gpu.attention.attention_parts.TOTAL`.

    ``query`` moves along rows, ``key`` along keys; totals are of ``weighted`` times ``value``."""

    pair: GemmPair
    product: Nest
    query: Scalar
    key: Scalar
    scores: tuple[Nest, ...]
    shifted: Scalar
    sums: tuple[str, ...]
    weighted: Scalar
    value: Scalar
    results: tuple[Nest, ...]
    batch: tuple[LoopVar, ...]
    columns: tuple[LoopVar, ...]

    @property
    def rows(self) -> int:
        """Rows of a batch."""
        return _number(self.pair.row.extent)

    @property
    def keys(self) -> Index:
        """Keys of a row, a constant or a named number."""
        return self.pair.key.extent

    @property
    def depth(self) -> int:
        """Terms (K) of a score."""
        return _number(extent_of(self.product.reduce))

    @property
    def width(self) -> int:
        """Columns of a result."""
        return _number(extent_of(self.columns))

    @property
    def operands(self) -> frozenset[DType]:
        """Types that keys and values are read as."""
        return frozenset(r.dtype for factor in (self.key, self.value) for r in reads(factor))

    @property
    def key_bytes(self) -> int:
        """Bytes of an element of a key."""
        return _bytes(self.key, self.product.reduce[-1])

    @property
    def value_bytes(self) -> int:
        """Bytes of an element of a value."""
        return _bytes(self.value, self.columns[-1])

    def takes_lanes(self, lanes: int) -> bool:
        """Whether keys and values can be loaded as whole vectors."""
        along = (self.key, self.product.reduce[-1]), (self.value, self.columns[-1])
        return are_vectors(along, lanes)


def find_flash_decoding(kernel: GroupKernel) -> FlashDecodingNests:
    """The pair of a kernel; :class:`ScheduleError` if it is none with a constant number of rows, or
    weights need all keys of a row at once."""
    pair = match_gemm_pair(kernel.kernel.stages, frozenset(kernel.dims), single=True)
    weights = None if pair is None else online_softmax(pair)
    if pair is None or weights is None or kernel.kernel.outputs != (pair.results[-1].output,):
        raise ScheduleError("the kernel is not two contractions of which one sums the other's rows")
    if weights.shifted is None or not isinstance(pair.row.extent, int):
        raise ScheduleError("weights of few rows are powers under their largest score")
    made = frozenset((TOTAL, *(s.output for s in (*pair.scores, *pair.weights, *pair.results))))

    def nest(stage: Stage) -> Nest:
        return linearise(stage, kernel.types, kernel.dims, made, {})

    product, *scores = map(nest, pair.scores)
    shifted = replace(pair.scores[-1], body=weights.shifted, reduce=(), combine=None)
    total = nest(pair.results[0])
    results = (scaled(pair, weights, kernel.dims), *pair.results[1:])
    query, key = factors_of(product, pair.key.name)
    weighted, value = factors_of(total, pair.columns[-1].name)
    names = {a.name for a in pair.columns}
    columns = tuple(v for v in total.parallel if v.name in names)
    batch = tuple(v for v in total.parallel if v.name not in {*names, pair.row.name})
    found = FlashDecodingNests(
        pair, product, query, key, tuple(scores), nest(shifted).body,
        tuple(s.output for s in weights.sums), weighted, value,
        tuple(map(nest, results)), batch, columns,
    )  # fmt: skip
    _verify(found, total)
    return found


def _verify(parts: FlashDecodingNests, total: Nest) -> None:
    if not all(isinstance(v.extent, int) for v in (*parts.product.reduce, *parts.columns)):
        raise ScheduleError("terms of scores and columns of results have to be known")
    bodies = (parts.product.body, parts.shifted, parts.weighted, total.body)
    if any(body.dtype != F32 for body in bodies):
        raise ScheduleError("threads combine scores and sums in f32")
    if {r.tensor for r in reads(parts.weighted)} != {parts.pair.weight}:
        raise ScheduleError("the factor of a weight reads nothing else")


def _bytes(factor: Scalar, along: LoopVar) -> int:
    """Bytes of the elements that a factor reads along a loop."""
    sizes = [r.dtype.bytes for r in reads(factor) if depends_on(r, along.name)]
    return min(sizes, default=F32.bytes)


def _number(extent: object) -> int:
    assert isinstance(extent, int)
    return extent
