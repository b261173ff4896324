"""Attention of few rows in parts of its keys, so that all SMs of a machine have some of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from modelcc.ir.index import Bounds, Index, Sym, ceildiv, product
from modelcc.ir.scalar import Combine
from modelcc.ir.scalar_tree import index_symbols, reads, substitute_indices
from modelcc.ir.tensor import (
    Apply,
    Axis,
    Cast,
    Condition,
    Guard,
    Item,
    Kernel,
    Number,
    Read,
    Scalar,
    Select,
    Stage,
    TensorProgram,
)
from modelcc.ir.types import BOOL, DType
from modelcc.passes.tensor.fused_kernel import kernel_of, with_values
from modelcc.passes.tensor.gemm_pair import GemmPair, match_gemm_pair
from modelcc.passes.tensor.online_softmax import OnlineSoftmax, of_some_keys, online_softmax
from modelcc.schedule.workload import plain_type
from modelcc.targets.gpu.attention.attention_choice import WHOLE, runs_whole
from modelcc.targets.gpu.machine import GpuModel

MOST_ROWS = 16
SHORTEST, LONGEST = 64, 256
"""Keys of a part."""

GROUPS = 4
"""Groups of an SM that keep its memory busy."""


@dataclass(frozen=True)
class SplitKeys:
    """Softmax-weighted sums of up to 16 rows in parts of the keys, as many as fill ``units`` SMs:
    each part has its own maximum score, sum of exponentials relative to it, and sums of values with
    these weights; a second kernel combines them.

    before::

        program @main(%q: f32[1, 8], %k: f32[1024, 8], %v: f32[1024, 4]) -> (%y) dims() {
          kernel @Attention(%q: f32[1, 8], %k: f32[1024, 8], %v: f32[1024, 4])
            -> (%y: f32[1, 4]) {
            %s: f32[1, 1024] = [m < 1, j < 1024] sum[d < 8] %q[m, d] * %k[j, d]
            %t: f32[1] = [m < 1] max[j < 1024] %s[m, j]
            %e: f32[1, 1024] = [m < 1, j < 1024] exp(%s[m, j] - %t[m])
            %z: f32[1] = [m < 1] sum[j < 1024] %e[m, j]
            %w: f32[1, 1024] = [m < 1, j < 1024] %e[m, j] / %z[m]
            %y: f32[1, 4] = [m < 1, c < 4] sum[j < 1024] %w[m, j] * %v[j, c]
          }
        }

    after::

        program @main(%q: f32[1, 8], %k: f32[1024, 8], %v: f32[1024, 4]) -> (%y) dims() {
          kernel @Attention(%q: f32[1, 8], %k: f32[1024, 8], %v: f32[1024, 4])
            -> (%y.top: f32[16], %y.sum: f32[16], %y.part: f32[16, 4]) {
            %y.product: f32[16, 64] = [n.part < 16, n < 64] sum[d0 < 8]
              %q[0, d0] * %k[n + 64*n.part, d0]
            %y.score: f32[16, 64] = [n.part < 16, n < 64] %y.product[n.part, n]
            %y.top: f32[16] = [n.part < 16] max[n < 64] %y.score[n.part, n]
            %y.base: f32[16] = [n.part < 16]
              select(%y.top[n.part] == -inf, 0.0, %y.top[n.part])
            %y.power: f32[16, 64] = [n.part < 16, n < 64] exp(%y.score[n.part, n] - %y.base[n.part])
            %y.sum: f32[16] = [n.part < 16] sum[n < 64] %y.power[n.part, n]
            %y.part: f32[16, 4] = [n.part < 16, e0 < 4] sum[n < 64]
              %y.power[n.part, n] * %v[n + 64*n.part, e0]
          }
          kernel @Attention(%y.top: f32[16], %y.sum: f32[16], %y.part: f32[16, 4])
            -> (%y: f32[1, 4]) {
            %y.largest: f32[4] = [e0 < 4] max[n.part < 16] %y.top[n.part]
            %y.sums: f32[4] = [e0 < 4] sum[n.part < 16]
              %y.sum[n.part] * exp(%y.top[n.part] - %y.largest[e0])
            %y.total: f32[4] = [e0 < 4] sum[n.part < 16]
              %y.part[n.part, e0] * exp(%y.top[n.part] - %y.largest[e0])
            %y[0, e0]: f32[1, 4] = [e0 < 4] %y.total[e0] / %y.sums[e0]
          }
        }
    """

    units: int
    machine: GpuModel | None = None
    """A machine that may handle all keys in one kernel, which is not split then."""

    def __call__(self, program: TensorProgram) -> TensorProgram:
        items: list[Item] = []
        types = dict(program.types)
        for item in program.items:
            kernels = self._split(item, program) if isinstance(item, Kernel) else None
            if kernels is None:
                items.append(item)
                continue
            first, last = kernels
            stages = (*first.stages, *last.stages)
            types |= {s.output: plain_type(s) for s in stages if s.output not in types}
            items += [first, last]
        return replace(program, types=types).with_items(tuple(items))

    def _split(self, kernel: Kernel, program: TensorProgram) -> tuple[Kernel, Kernel] | None:
        """``kernel`` for the parts, and one that combines them; None if that is no gain."""
        pair = match_gemm_pair(kernel.stages, frozenset(program.dims), single=True)
        weights = None if pair is None else online_softmax(pair)
        if pair is None or weights is None or kernel.outputs != (pair.results[-1].output,):
            return None
        if self.machine is not None and runs_whole(kernel, program, self.machine):
            return None
        length = self._length(pair)
        parts = None if length is None else _Parts.of(pair, weights, length)
        return None if parts is None else parts.kernels(kernel, program.dims)

    def _length(self, pair: GemmPair) -> int | None:
        """Keys of a part; None if one group has all of them."""
        rows, keys = pair.row.extent, pair.key.extent
        if not isinstance(rows, int) or rows > MOST_ROWS:
            return None
        if not isinstance(keys, int):
            return LONGEST
        outer = product(a.extent for a in pair.outer)
        wanted = keys * (outer if isinstance(outer, int) else 1) // (GROUPS * self.units)
        length = 1 << max(wanted - 1, 1).bit_length()
        return None if keys <= WHOLE else min(max(length, SHORTEST), LONGEST)


@dataclass(frozen=True)
class _Parts:
    """A pair whose keys are ``key`` in each ``part``, of ``length``; ``scores`` are the exponents,
    under a name of its own in each kernel."""

    pair: GemmPair
    weights: OnlineSoftmax
    part: Axis
    key: Axis

    @staticmethod
    def of(pair: GemmPair, weights: OnlineSoftmax, length: int) -> _Parts | None:
        """None if weights have no maximum score, or rows of results no second factor."""
        if weights.maximum is None or _value_factor(pair) is None:
            return None
        name = pair.key.name
        part = Axis(f"{name}.part", ceildiv(pair.key.extent, length))
        return _Parts(pair, weights, part, Axis(name, length))

    def kernels(self, kernel: Kernel, dims: Bounds) -> tuple[Kernel, Kernel]:
        """The kernels of the parts, and of their combination."""
        parts, whole = self._of_parts(), self._together(dims)
        made = {s.output for s in parts}
        read = dict.fromkeys(r.tensor for s in whole for r in reads(s.body) if r.tensor in made)
        first = kernel_of(kernel.name, parts, tuple(read), kernel.source)
        last = kernel_of(kernel.name, whole, kernel.outputs, kernel.source)
        return (replace(first, rounding=kernel.rounding), replace(last, rounding=kernel.rounding))

    # --- names and indices

    @property
    def _row(self) -> tuple[Axis, ...]:
        used = {a.name for a in self.pair.scores[0].axes}
        return (self.pair.row,) if self.pair.row.name in used else ()

    @property
    def _of_part(self) -> tuple[Axis, ...]:
        """The axes of a row of a part."""
        return (*self.pair.outer, self.part, *self._row)

    def _name(self, of: str) -> str:
        return f"{self.pair.results[-1].output}.{of}"

    def _read(self, of: str, axes: Sequence[Axis], dtype: DType) -> Read:
        return Read(self._name(of), _place(axes), dtype)

    def _stage(self, of: str, axes: Sequence[Axis], body: Scalar) -> Stage:
        return Stage(self._name(of), tuple(axes), _place(axes), body)

    def _moved(self, body: Scalar) -> Scalar:
        """``body`` at the keys of a part."""
        name, length = self.pair.key.name, self.key.extent
        return substitute_indices(body, {name: Sym(name) + Sym(self.part.name) * length})

    def _there(self, body: Scalar, outside: float) -> Scalar:
        """``body`` where the key exists; only the last part may have fewer."""
        keys, length = self.pair.key.extent, self.key.extent
        assert isinstance(length, int)
        if isinstance(keys, int) and keys % length == 0:
            return body
        place = Sym(self.key.name) + Sym(self.part.name) * length
        there = Condition(place, "<", keys)
        return Guard((there,), body, Number(outside, body.dtype), body.dtype)

    # --- parts

    def _of_parts(self) -> tuple[Stage, ...]:
        pair, axes = self.pair, (*self._of_part, self.key)
        first = pair.scores[0]
        product = self._stage("product", axes, self._product(first.body))
        product = replace(product, reduce=first.reduce, combine="sum")
        score = self._stage("score", axes, self._there(self._shifted(), -inf))
        dtype = score.body.dtype
        top = self._reduced("top", self._read("score", axes, dtype), "max")
        largest = self._read("top", self._of_part, dtype)
        least = Number(-inf, dtype)
        nothing = Apply("eq", (largest, least), BOOL)
        base = self._stage(
            "base", self._of_part, Select(nothing, Number(0.0, dtype), largest, dtype)
        )
        shifted = Apply(
            "sub",
            (self._read("score", axes, dtype), self._read("base", self._of_part, dtype)),
            dtype,
        )
        power = self._stage("power", axes, Apply("exp", (shifted,), dtype))
        sums = self._reduced("sum", self._read("power", axes, dtype), "sum")
        return (product, score, top, base, power, sums, self._weighted(axes, dtype))

    def _reduced(self, of: str, body: Scalar, combine: Combine) -> Stage:
        stage = self._stage(of, self._of_part, body)
        return replace(stage, reduce=(self.key,), combine=combine)

    def _product(self, body: Scalar) -> Scalar:
        """Products of a part; the factor that moves along keys is 0 beyond the last one."""
        assert isinstance(body, Apply)
        name = self.pair.key.name

        def factor(one: Scalar) -> Scalar:
            return self._there(self._moved(one), 0.0) if name in index_symbols(one) else one

        return replace(body, args=tuple(map(factor, body.args)))

    def _shifted(self) -> Scalar:
        """The exponents, as a function of the first product."""
        pair, made = self.pair, dict[str, Scalar]()
        for stage in pair.scores[1:]:
            made[stage.output] = with_values(stage.body, made)
        assert self.weights.shifted is not None
        whole = self._moved(with_values(self.weights.shifted, made))
        product = pair.scores[0]
        found = self._read("product", (*self._of_part, self.key), product.body.dtype)
        return with_values(whole, {product.output: found})

    def _weighted(self, axes: Sequence[Axis], dtype: DType) -> Stage:
        """Sums of values of a part."""
        pair, total = self.pair, self.pair.results[0]
        assert isinstance(total.body, Apply)
        power = self._read("power", axes, dtype)

        def factor(one: Scalar) -> Scalar:
            if any(r.tensor == pair.weight for r in reads(one)):
                return with_values(one, {pair.weight: power})
            return self._there(self._moved(one), 0.0)

        body = replace(total.body, args=tuple(map(factor, total.body.args)))
        stage = self._stage("part", (*self._of_part, *pair.columns), body)
        return replace(stage, reduce=(self.key,), combine="sum")

    # --- the combination

    def _together(self, dims: Bounds) -> tuple[Stage, ...]:
        """Stages over all axes of a result, so that accesses coalesce."""
        pair, weights = self.pair, self.weights
        axes = (*pair.outer, *self._row, *pair.columns)
        assert weights.maximum is not None
        dtype = weights.maximum.body.dtype

        def over(of: str, body: Scalar, combine: Combine) -> Stage:
            return replace(self._stage(of, axes, body), reduce=(self.part,), combine=combine)

        def here(of: str, kind: DType) -> Read:
            return self._read(of, axes, kind)

        top = self._read("top", self._of_part, dtype)
        largest = over("largest", top, "max")
        shifted = Apply("sub", (top, here("largest", dtype)), dtype)
        change = Apply("exp", (shifted,), dtype)
        stages = [largest]
        sums = over(
            "sums", Apply("mul", (self._read("sum", self._of_part, dtype), change), dtype), "sum"
        )
        stages.append(sums)
        kind = pair.results[0].body.dtype
        part = self._read("part", (*self._of_part, *pair.columns), kind)
        scale: Scalar = change if kind == dtype else Cast(change, kind)
        stages.append(over("total", Apply("mul", (part, scale), kind), "sum"))
        value: Scalar = here("total", kind)
        by_name = {s.output: here("sums", dtype) for s in weights.sums}
        for function, factor in weights.factor:
            value = Apply(function, (value, with_values(factor, by_name)), value.dtype)
        value = of_some_keys(value, pair, dims)
        first = replace(pair.results[0], body=value, reduce=(), combine=None)
        return (*stages, first, *pair.results[1:])


def _place(axes: Sequence[Axis]) -> tuple[Index, ...]:
    return tuple(Sym(a.name) for a in axes)


def _value_factor(pair: GemmPair) -> Scalar | None:
    """The factor that is weighted."""
    body = pair.results[0].body
    found = body.args if isinstance(body, Apply) and body.function == "mul" else ()
    others = [a for a in found if all(r.tensor != pair.weight for r in reads(a))]
    return others[0] if len(found) == 2 and len(others) == 1 else None
