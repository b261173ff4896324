"""GEMM-GEMM fusion: two contractions with what turns the results of one into an operand of the
other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Sym, bounds_of, product
from modelcc.ir.scalar_tree import reads, transform
from modelcc.ir.tensor import Item, Kernel, Read, Scalar, Stage, TensorProgram
from modelcc.passes.tensor.fused_kernel import fused_kernel
from modelcc.passes.tensor.gemm_pair import GemmPair, match_gemm_pair
from modelcc.passes.tensor.makers import Makers
from modelcc.passes.tensor.online_softmax import online_softmax


@dataclass(frozen=True)
class FuseContractions:
    """Attention, and whatever has its structure, as one kernel that keeps scores in cache.

    Products of fewer than ``rows`` rows stay as they are: they are bound by what they read; with 0
    even a single row does.  So do
    products with constants, which are packed, once for all rows.  A block of rows is at least
    ``block`` rows, whose weights ``cache_bytes`` have to hold if they need all of a row.  More
    than ``width`` summands and results of a row, or ``share`` times as many as a row has scores,
    make the scores between them a small matter.  Up to ``depth`` kernels may come before the last.
    Such a kernel has one result: others of the last product's are made of it, by a kernel behind.
    Rows that may have no keys take part if they may be ``empty``: who computes the pair then gives
    sums of nothing, which are 0, and not their quotient (:func:`~.online_softmax.of_some_keys`).

    before::

        program @main(%q: f32[n, 8], %k: f32[8, 64], %v: f32[64, 16]) -> (%y) dims(n in 1:) {
          kernel @MatMul(%q: f32[n, 8], %k: f32[8, 64]) -> (%s: f32[n, 64]) {
            %s: f32[n, 64] = [m < n, j < 64] sum[d < 8] %q[m, d] * %k[d, j]
          }
          kernel @Relu(%s: f32[n, 64]) -> (%w: f32[n, 64]) {
            %w: f32[n, 64] = [m < n, j < 64] max(%s[m, j], 0.0)
          }
          kernel @MatMul(%w: f32[n, 64], %v: f32[64, 16]) -> (%y: f32[n, 16]) {
            %y: f32[n, 16] = [m < n, e < 16] sum[j < 64] %w[m, j] * %v[j, e]
          }
        }

    after::

        program @main(%q: f32[n, 8], %k: f32[8, 64], %v: f32[64, 16]) -> (%y) dims(n in 1:) {
          kernel @MatMul_Relu(%q: f32[n, 8], %k: f32[8, 64], %v: f32[64, 16])
            -> (%y: f32[n, 16]) {
            %s: f32[n, 64] = [m < n, j < 64] sum[d < 8] %q[m, d] * %k[d, j]
            %w: f32[n, 64] = [m < n, j < 64] max(%s[m, j], 0.0)
            %y: f32[n, 16] = [m < n, e < 16] sum[j < 64] %w[m, j] * %v[j, e]
          }
        }
    """

    block: int
    cache_bytes: int
    rows: int = 16
    share: int = 4
    width: int = 1024
    depth: int = 4
    empty: bool = False

    def __call__(self, program: TensorProgram) -> TensorProgram:
        makers = Makers.of(program)
        merged: dict[int, tuple[Kernel, ...]] = {}
        taken: set[int] = set()
        for item in program.items:
            if isinstance(item, Kernel) and _begins_with_product(item.stages):
                pair = self._chain((item,), makers, program)
                # Of three products in a row the one in the middle is in one pair only.
                if pair is not None and taken.isdisjoint(map(id, pair)):
                    merged[id(item)] = pair
                    taken.update(map(id, pair))
        gone = {id(kernel) for chain in merged.values() for kernel in chain[:-1]}
        items: list[Item] = []
        for item in program.items:
            if id(item) in merged:
                items += _with_one_result(merged[id(item)]) or ()
            elif id(item) not in gone:
                items.append(item)
        return program.with_items(tuple(items))

    def _chain(
        self, kernels: tuple[Kernel, ...], makers: Makers, program: TensorProgram
    ) -> tuple[Kernel, ...] | None:
        """``kernels`` with what comes before them, if these are a pair worth fusing."""
        if _begins_with_product(kernels[0].stages) and len(kernels) > 1:
            made = _with_one_result(kernels)
            if made is None:
                return None
            pair = match_gemm_pair(made[0].stages, frozenset(), single=self.rows == 0)
            return kernels if pair is not None and self._worth(pair, program) else None
        if len(kernels) > self.depth:
            return None
        before = (makers.with_maker(t, kernels) for k in kernels for t in k.inputs)
        chains = (self._chain(longer, makers, program) for longer in before if longer)
        return next((chain for chain in chains if chain is not None), None)

    def _worth(self, pair: GemmPair, program: TensorProgram) -> bool:
        rows, keys = pair.row.extent, pair.key.extent
        read = {r.tensor for s in (pair.scores[0], pair.results[0]) for r in reads(s.body)}
        if (isinstance(rows, int) and rows < self.rows) or read & program.constants.keys():
            return False
        if not self.empty and (bounds_of(keys, program.dims).lo or 0) < 1:
            return False  # a quotient of sums of nothing is none
        inner = product(a.extent for a in pair.scores[0].reduce)
        width = inner + product(a.extent for a in pair.columns)
        if not isinstance(width, int) or width > self.width:
            return False
        if isinstance(keys, int) and keys * self.share < width:
            return False
        if online_softmax(pair) is not None:
            return True
        size = pair.scores[-1].body.dtype.bytes * self.block
        return isinstance(keys, int) and keys * size <= self.cache_bytes


def _with_one_result(kernels: Sequence[Kernel]) -> tuple[Kernel, ...] | None:
    """``kernels`` as one that gives the first result of the last, and, behind it, one that makes
    its other results of that; None if they are made of something else."""
    stages, outputs = [s for k in kernels for s in k.stages], kernels[-1].outputs
    end = next(n for n, s in enumerate(stages, 1) if s.output in outputs)
    made = stages[end - 1]
    whole = fused_kernel(kernels, stages[:end], (made.output,))
    behind = [_reading_result(stage, made) for stage in stages[end:]]
    if not behind:
        return (whole,)
    rest = fused_kernel(kernels[-1:], behind, (name for name in outputs if name != made.output))
    inside = {s.output for s in stages[: end - 1]}
    return None if inside.intersection(rest.inputs) else (whole, rest)


def _reading_result(stage: Stage, made: Stage) -> Stage:
    """``stage``, with reads of a stage ``made``, if that only permutes axes, for those of what it
    permutes."""
    whole = made.body
    axes = {Sym(axis.name) for axis in made.axes}
    if not isinstance(whole, Read) or not (set(whole.indices) == set(made.write) == axes):
        return stage
    order = [whole.indices.index(place) for place in made.write]

    def instead(value: Scalar) -> Scalar:
        if not isinstance(value, Read) or value.tensor != whole.tensor:
            return value
        indices = tuple(value.indices[n] for n in order)
        return replace(value, tensor=made.output, indices=indices)

    return replace(stage, body=transform(stage.body, instead))


def _begins_with_product(stages: tuple[Stage, ...]) -> bool:
    first = stages[0]
    return bool(first.reduce) and first.combine == "sum" and len(list(reads(first.body))) > 1
