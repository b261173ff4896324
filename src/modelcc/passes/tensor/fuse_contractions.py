"""GEMM-GEMM fusion: two contractions with the stages between the results of one and an operand of
the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Sym, bounds_of, product
from modelcc.ir.scalar_tree import reads, transform
from modelcc.ir.tensor import Item, Kernel, Read, Scalar, Stage, TensorProgram
from modelcc.passes.tensor.fused_kernel import fused_kernel
from modelcc.passes.tensor.gemm_pair import GemmPair, match_gemm_pair
from modelcc.passes.tensor.makers import Makers
from modelcc.passes.tensor.online_softmax import online_softmax

SEVERAL = 16
"""Rows; more than any schedule processes at once."""


@dataclass(frozen=True)
class FuseContractions:
    """Attention, and whatever has its structure, as one kernel that keeps scores in cache.

    Products of fewer than ``rows`` rows are not fused: they are bound by memory bandwidth; with 0
    even single rows are.  Nor are products with constants, which are packed once for all rows.  A
    block has at least ``block`` rows, whose weights must fit into ``cache_bytes`` if they need
    whole rows.  With more than ``width`` summands and results of a row, or ``share`` times as many
    as a row has scores, the scores between them do not matter.  Up to ``depth`` kernels may precede
    the last.  The fused kernel has one result: a kernel after it computes other results of the last
    product from that.  Rows that may have no keys are fused if they may be ``empty``: the
    implementation then returns empty sums, which are 0, and not their quotient
    (:func:`~.online_softmax.of_some_keys`).  With ``of_rows`` the kernel also has results that only
    depend on the maximum and the sums of rows, if there are at least :data:`SEVERAL` rows.

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
    of_rows: bool = False

    def __call__(self, program: TensorProgram) -> TensorProgram:
        whole, aside = program, dict[int, _Aside]()
        if self.of_rows:
            program, aside = _set_aside(program)
        makers = Makers.of(program)
        merged: dict[int, tuple[Kernel, ...]] = {}
        taken: set[int] = set()
        for item in program.items:
            if isinstance(item, Kernel) and _begins_with_product(item.stages):
                pair = self._chain((item,), makers, program)
                pair = pair and self._with_several_rows(pair, aside)
                # Of three chained products the middle one is in one pair only.
                if pair is not None and taken.isdisjoint(map(id, pair)):
                    merged[id(item)] = pair
                    taken.update(map(id, pair))
        gone = {id(kernel) for chain in merged.values() for kernel in chain[:-1]}
        items: list[Item] = []
        for item in program.items:
            if id(item) in merged:
                items += _with_results(merged[id(item)], aside)
            elif id(item) not in gone:
                items.append(aside[id(item)].whole if id(item) in aside else item)
        return whole.with_items(tuple(items))

    def _with_several_rows(
        self, kernels: tuple[Kernel, ...], aside: Mapping[int, _Aside]
    ) -> tuple[Kernel, ...] | None:
        """``kernels``, or None if they have row results of too few rows."""
        if not any(id(k) in aside for k in kernels):
            return kernels
        made = _with_one_result(kernels)
        pair = None if made is None else match_gemm_pair(made[0].stages, frozenset())
        if pair is None or (isinstance(pair.row.extent, int) and pair.row.extent < SEVERAL):
            return None
        return kernels

    def _chain(
        self, kernels: tuple[Kernel, ...], makers: Makers, program: TensorProgram
    ) -> tuple[Kernel, ...] | None:
        """``kernels`` with their producers, if these are a pair worth fusing."""
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
            return False  # 0/0 is undefined
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


@dataclass(frozen=True)
class _Aside:
    """A ``whole`` kernel, of which ``stages`` depend only on reductions of rows."""

    whole: Kernel
    stages: tuple[Stage, ...]


def _set_aside(program: TensorProgram) -> tuple[TensorProgram, dict[int, _Aside]]:
    """``program`` without results that depend only on reductions of their kernel if that has other
    results, and its original kernels."""
    found: dict[int, _Aside] = {}
    items: list[Item] = []
    for item in program.items:
        own = _of_rows(item) if isinstance(item, Kernel) else ()
        if own and isinstance(item, Kernel):
            names = {s.output for s in own}
            outputs = tuple(n for n in item.outputs if n not in names)
            rest = tuple(s for s in item.stages if s.output not in names)
            found_item = replace(item, stages=rest, outputs=outputs)
            found[id(found_item)] = _Aside(item, own)
            items.append(found_item)
        else:
            items.append(item)
    return replace(program, items=tuple(items)), found


def _of_rows(kernel: Kernel) -> tuple[Stage, ...]:
    """Results per row that depend only on the kernel's reductions and that no other stage reads,
    if all other results are per element of rows."""
    reduced = {s.output for s in kernel.stages if s.reduce}
    read = {r.tensor for s in kernel.stages for r in reads(s.body)}
    results = [s for s in kernel.stages if s.output in kernel.outputs]
    own = tuple(
        s
        for s in results
        if s.output not in read and not s.reduce and {r.tensor for r in reads(s.body)} <= reduced
    )
    others = [_dimensions(s) for s in results if s not in own]
    most = max(map(_dimensions, own), default=0)
    return own if others and min(others) > most else ()


def _dimensions(stage: Stage) -> int:
    """Number of axes of more than one point."""
    return sum(axis.extent != 1 for axis in stage.axes)


def _with_results(kernels: Sequence[Kernel], aside: Mapping[int, _Aside]) -> tuple[Kernel, ...]:
    """``kernels`` as one, with the stages set aside, after those they depend on."""
    made = _with_one_result(kernels)
    assert made is not None
    more = [s for k in kernels if id(k) in aside for s in aside[id(k)].stages]
    stages = list(made[0].stages)
    for stage in more:
        needed = {r.tensor for r in reads(stage.body)}
        last = max(n for n, s in enumerate(stages) if s.output in needed)
        stages.insert(last + 1, stage)
    outputs = (*made[0].outputs, *(s.output for s in more))
    return (replace(made[0], stages=tuple(stages), outputs=outputs), *made[1:])


def _with_one_result(kernels: Sequence[Kernel]) -> tuple[Kernel, ...] | None:
    """``kernels`` as one that returns the first result of the last, or the tensor that is computed
    from pointwise, followed by one that computes the other results from that; None if these depend
    on anything else."""
    stages, outputs = [s for k in kernels for s in k.stages], kernels[-1].outputs
    end = next(n for n, s in enumerate(stages, 1) if s.output in outputs)
    least = max((n for n, s in enumerate(stages[:end], 1) if s.reduce), default=end)
    cuts = (_cut_behind(kernels, stages, n) for n in range(end, least - 1, -1))
    return next((found for found in cuts if found is not None), None)


def _cut_behind(
    kernels: Sequence[Kernel], stages: Sequence[Stage], end: int
) -> tuple[Kernel, ...] | None:
    """``kernels`` as one of the first ``end`` stages, and one of the rest, which read only its last
    result."""
    made, outputs = stages[end - 1], kernels[-1].outputs
    whole = fused_kernel(kernels, stages[:end], (made.output,))
    behind = [_reading_result(stage, made) for stage in stages[end:]]
    if not behind:
        return (whole,)
    rest = fused_kernel(kernels[-1:], behind, (name for name in outputs if name != made.output))
    inside = {s.output for s in stages[: end - 1]}
    return None if inside.intersection(rest.inputs) else (whole, rest)


def _reading_result(stage: Stage, made: Stage) -> Stage:
    """``stage`` reading ``made``, if that only permutes axes, instead of the tensor that it
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
