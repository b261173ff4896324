"""When Winograd's algorithm takes less time than direct convolution: estimated seconds of a GPU.

The matrix product is estimated like any product, by the schedule that it will have; so is the
direct convolution.  Transforms move whole tensors.  Nothing here has been measured on a GPU except
the rates that schedules are estimated by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from modelcc.ir.compute import Matrix
from modelcc.ir.index import Index, substitute
from modelcc.ir.scalar_tree import substitute_stage
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.types import TensorType
from modelcc.passes.tensor.winograd_stages import WinogradStages
from modelcc.passes.tensor.winograd_transforms import input_factors, output_factors
from modelcc.schedule.canonical import CanonicalKernel, canonical, with_numbers
from modelcc.targets.gpu.choice import choices
from modelcc.targets.gpu.evaluation import GroupKernel
from modelcc.targets.gpu.expected_time import (
    LAUNCH_SECONDS,
    LEAST_SECONDS,
    contraction_seconds,
)
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.products.weights import weight_layouts, with_weights

COPIED_PART = 0.9
"""Part of the memory bandwidth that a copy reaches (3,000 of 3,350 GB/s, measured on an H100)."""

NEAR = 2.0
"""Speedup over the memory bandwidth for tensors that take at most half of L2; estimated, not
measured."""


@dataclass(frozen=True)
class GroupWinogradCost:
    """Estimates for ``machine``; ``margin``: the speedup that an algorithm must promise, to pay for
    filters of 16/9 or 4 times the size and for the memory of transformed tensors."""

    machine: GpuModel
    margin: float = 1.3

    def of(self, program: TensorProgram) -> WinogradEstimate:
        """Estimates for convolutions of ``program``."""
        return WinogradEstimate(self.machine, self.margin, program)


@dataclass(frozen=True)
class WinogradEstimate:
    """Seconds of convolutions of ``program``, each of equal ones estimated once.

    Named sizes have their lower bounds: a choice for all of them must not lose.
    """

    machine: GpuModel
    margin: float
    program: TensorProgram
    known: dict[CanonicalKernel, float | None] = field(
        default_factory=dict[CanonicalKernel, "float | None"]
    )

    def best(self, kernel: Kernel, ways: Sequence[WinogradStages]) -> WinogradStages | None:
        """The fastest of ``ways`` to compute a convolution; None if ``kernel`` itself is."""
        direct = self.direct(kernel)
        if direct is None:
            return None
        found = [(s, n) for n, way in enumerate(ways) if (s := self.winograd(way)) is not None]
        if not found:
            return None
        seconds, number = min(found)
        return ways[number] if seconds * self.margin < direct else None

    def direct(self, kernel: Kernel) -> float | None:
        """Seconds of direct convolution; None if it has no tiles."""
        return self._product(kernel, self.program.types, frozenset(self.program.constants))

    def winograd(self, way: WinogradStages) -> float | None:
        """Seconds of the three parts; None if the product has no tiles."""
        kernels = way.kernels()
        types = {**self.program.types, **way.types(kernels)}
        first, product, last = kernels
        seconds = self._product(product, types, frozenset({way.name("u")}))
        if seconds is None:
            return None
        moved = self._moved(product, types)
        around = self._transform(first, types, _steps(way, inputs=True))
        around += self._transform(last, types, _steps(way, inputs=False))
        return max(seconds, moved) + around

    def _transform(self, kernel: Kernel, types: Mapping[str, TensorType], steps: Index) -> float:
        """Seconds of a kernel that moves operands and results by ``steps`` instructions."""
        operations = 2.0 * self._number(steps)
        compute = operations / (self.machine.flops * 1e12)
        return LAUNCH_SECONDS + max(self._moved(kernel, types), compute, LEAST_SECONDS)

    def _moved(self, kernel: Kernel, types: Mapping[str, TensorType]) -> float:
        """Seconds to load and store all tensors of ``kernel`` once."""
        return sum(self._traffic(types[name]) for name in (*kernel.inputs, *kernel.outputs))

    def _traffic(self, type_: TensorType) -> float:
        size = prod(map(self._number, type_.shape)) * type_.dtype.bytes
        near = NEAR if size <= self.machine.l2_bytes // 2 else 1.0
        return size / (self.machine.bandwidth * 1e9 * COPIED_PART * near)

    def _product(
        self, kernel: Kernel, types: Mapping[str, TensorType], constants: frozenset[str]
    ) -> float | None:
        """Seconds by the schedule that ``kernel`` has by default."""
        own = {name: self._least(types[name]) for name in (*kernel.inputs, *kernel.outputs)}
        stages = tuple(substitute_stage(s, self._sizes) for s in kernel.stages)
        numbered, _ = with_numbers(replace(kernel, stages=stages))
        key, _ = canonical(numbered, own, constants, {})
        if key not in self.known:
            self.known[key] = self._seconds(key)
        return self.known[key]

    def _seconds(self, key: CanonicalKernel) -> float | None:
        grouped = GroupKernel(with_weights(key, weight_layouts(key, self.machine)), "kernel")
        schedule = next(choices(grouped, self.machine), None)
        return contraction_seconds(grouped, schedule, self.machine)

    @property
    def _sizes(self) -> dict[str, Index]:
        """The lower bounds of named sizes."""
        least = ((name, bounds.lo) for name, bounds in self.program.dims.items())
        return {name: lo if isinstance(lo, int) and lo > 1 else 1 for name, lo in least}

    def _least(self, type_: TensorType) -> TensorType:
        return replace(type_, shape=tuple(substitute(e, self._sizes) for e in type_.shape))

    def _number(self, index: Index) -> int:
        found = substitute(index, self._sizes)
        return found if isinstance(found, int) else 1


def _steps(way: WinogradStages, inputs: bool) -> Index:
    """Additions and multiplications of a transform."""
    m, tiles = way.tiles.m, way.tiles.images * way.tiles.rows * way.tiles.columns
    if inputs:
        return tiles * way.inputs * 2 * (m + 2) * _terms(input_factors(m))
    return tiles * way.outputs * (m + 2 + m) * _terms(output_factors(m))


def _terms(factors: Sequence[Matrix]) -> int:
    return sum(c != 0 for matrix in factors for row in matrix for c in row)
