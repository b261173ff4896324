"""Attention, and other kernels of its structure, block by block of keys with an online softmax."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.index import product
from modelcc.ir.tensor import Apply, Read, Scalar, Stage
from modelcc.ir.types import F32
from modelcc.passes.tensor.gemm_pair import GemmPair, match_gemm_pair
from modelcc.passes.tensor.online_softmax import OnlineSoftmax, online_softmax
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.targets.triton.block import BlockCode
from modelcc.targets.triton.functions import call, element
from modelcc.targets.triton.kernel import Config, TritonKernel, code_of, finish, size
from modelcc.targets.triton.product import dot, find_factors, tile


def _config(m: int, n: int, warps: int, stages: int) -> Config:
    return (("BLOCK_M", m), ("BLOCK_N", n), ("num_warps", warps), ("num_stages", stages))


CONFIGS = (
    _config(64, 64, 4, 2),
    _config(128, 64, 8, 2),
    _config(128, 32, 4, 3),
    _config(32, 32, 4, 3),
)

WIDEST = 256
"""Terms (K), and columns, that a block takes at once."""


def attention_kernel(kernel: CanonicalKernel) -> TritonKernel | None:
    """A program per block of rows, if the kernel is such a pair of products."""
    pair = match_gemm_pair(kernel.stages, frozenset(n for n, _ in kernel.dims))
    weights = None if pair is None else online_softmax(pair)
    if pair is None or weights is None or kernel.outputs != (pair.results[-1].output,):
        return None
    scores, values = find_factors(pair.scores[0]), _values(pair)
    inner = product(a.extent for a in pair.scores[0].reduce)
    width = product(a.extent for a in pair.columns)
    if scores is None or values is None or scores.rows != (pair.row,):
        return None
    if not (isinstance(inner, int) and isinstance(width, int) and max(inner, width) <= WIDEST):
        return None
    if scores.columns != (pair.key,):
        return None
    return _Attention(kernel, pair, weights, values, inner, width).kernel()


def _values(pair: GemmPair) -> Scalar | None:
    """The factor that weights are multiplied by."""
    body = pair.results[0].body
    match body:
        case Apply(function="mul", args=(Read(tensor=name), values)) if name == pair.weight:
            return values
        case Apply(function="mul", args=(values, Read(tensor=name))) if name == pair.weight:
            return values
        case _:
            return None


@dataclass(frozen=True, eq=False)
class _Attention:
    given: CanonicalKernel
    pair: GemmPair
    weights: OnlineSoftmax
    values: Scalar
    inner: int
    width: int

    def kernel(self) -> TritonKernel:
        """The kernel."""
        pair, code = self.pair, code_of(self.given)
        self._begin(code)
        factors = find_factors(pair.scores[0])
        assert factors is not None
        with code.scope():
            left = tile(
                code, factors.left, pair.scores[0].reduce, ("m", "BLOCK_M"), 1, "", "BLOCK_D"
            )
        total = code.let("total", "tl.zeros([BLOCK_M, BLOCK_E], tl.float32)")
        tops = self._state(code)
        with code.loop(f"for start in range(0, {code.index(pair.key.extent)}, BLOCK_N):"):
            self._block(code, left, total, tops)
        self._end(code, total, tops)
        rows = size(pair.row.extent, self.given)
        count = size(product(a.extent for a in pair.outer), self.given)
        blocks = (("BLOCK_D", _block_of(self.inner)), ("BLOCK_E", _block_of(self.width)))
        grid = (f'triton.cdiv({rows}, meta["BLOCK_M"])', count)
        names = tuple(n for n, _ in self.given.dims)
        lines = tuple(code.lines)
        return TritonKernel("attention", lines, grid, blocks, CONFIGS, names, code.checked)

    def _begin(self, code: BlockCode) -> None:
        pair = self.pair
        code.flat(pair.outer, code.let("batch", code.program(1)), "", "")
        row = code.let(
            "row", f"{code.program(0)} * BLOCK_M + {code.arange('BLOCK_M', '[:, None]')}"
        )
        inside = code.let("row_in", f"{row} < {code.index(pair.row.extent)}")
        code.along("m", row)
        code.flat((pair.row,), row, inside, "m")

    def _state(self, code: BlockCode) -> dict[str, str]:
        """Row statistics: the running maximum, and sums of weights."""
        found: dict[str, str] = {}
        if self.weights.maximum is not None:
            start = 'tl.full([BLOCK_M, 1], float("-inf"), tl.float32)'
            found[self.weights.maximum.output] = code.let("top", start)
        for stage in self.weights.sums:
            found[stage.output] = code.let("weight_sum", "tl.zeros([BLOCK_M, 1], tl.float32)")
        return found

    def _block(self, code: BlockCode, left: str, total: str, tops: dict[str, str]) -> None:
        pair, weights = self.pair, self.weights
        factors = find_factors(pair.scores[0])
        assert factors is not None
        key = code.let("key", f"start + {code.arange('BLOCK_N', '[None, :]')}")
        inside = code.let("key_in", f"{key} < {code.index(pair.key.extent)}")
        code.along("n", key)
        code.flat((pair.key,), key, inside, "n")
        right = tile(code, factors.right, pair.scores[0].reduce, ("n", "BLOCK_N"), 0, "", "BLOCK_D")
        zeros = "tl.zeros([BLOCK_M, BLOCK_N], tl.float32)"
        code.values[pair.scores[0].output] = code.let(
            "scores", dot(left, right, zeros, factors.left.dtype)
        )
        for stage in pair.scores[1:]:
            code.values[stage.output] = code.let("scores", code.value(stage.body))
        if weights.maximum is not None and weights.shifted is not None:
            self._raise(code, weights.maximum, total, tops, inside)
        power = code.let("power", f"tl.where({inside}, {code.value(weights.power)}, 0.0)")
        for stage in weights.sums:
            value = power if stage.body == weights.power else None
            value = value or f"tl.where({inside}, {code.value(stage.body)}, 0.0)"
            code.line(f"{tops[stage.output]} += tl.sum({value}, 1)[:, None]")
        self._add(code, power, total)

    def _raise(
        self, code: BlockCode, maximum: Stage, total: str, tops: dict[str, str], inside: str
    ) -> None:
        """A new maximum rescales the sums so far."""
        assert self.weights.shifted is not None
        top = tops[maximum.output]
        score = f'tl.where({inside}, {code.value(self.weights.shifted)}, float("-inf"))'
        new = code.let("new_top", f"tl.maximum({top}, tl.max({score}, 1)[:, None])")
        # If the maximum is -inf, any finite number works instead.
        base = code.let("base", f'tl.where({new} == float("-inf"), 0.0, {new})')
        scale = code.let("scale", f"tl.exp({top} - {base})")
        for name in [total, *(tops[s.output] for s in self.weights.sums)]:
            code.line(f"{name} *= {scale}")
        code.line(f"{top} = {new}")
        code.values[maximum.output] = base

    def _add(self, code: BlockCode, power: str, total: str) -> None:
        with code.scope():
            turned = code.let("key_down", f"start + {code.arange('BLOCK_N', '[:, None]')}")
            inside = code.let("key_down_in", f"{turned} < {code.index(self.pair.key.extent)}")
            code.along("n", turned)
            code.flat((self.pair.key,), turned, inside, "n")
            values = tile(code, self.values, self.pair.columns, ("n", "BLOCK_N"), 1, "", "BLOCK_E")
            dtype = self.values.dtype
            taken = power if dtype == F32 else f"{power}.to({element(dtype)})"
            code.line(f"{total} = {dot(taken, values, total, dtype)}")

    def _end(self, code: BlockCode, total: str, tops: dict[str, str]) -> None:
        pair = self.pair
        code.values |= {s.output: tops[s.output] for s in self.weights.sums}
        for function, factor in self.weights.factor:
            code.line(f"{total} = {call(function, (total, code.value(factor)), F32)}")
        column = code.let("column", code.arange("BLOCK_E", "[None, :]"))
        inside = code.let("column_in", f"{column} < {self.width}")
        code.along("e", column)
        code.flat(pair.columns, column, inside, "e")
        first = pair.results[0]
        code.values[first.output] = f"{total}.to({element(first.body.dtype)})"
        if len(pair.results) == 1:
            code.store(first, code.values[first.output])
        finish(code, self.given, pair.results[1:])


def _block_of(extent: int) -> str:
    return str(max(16, 1 << (extent - 1).bit_length()))
