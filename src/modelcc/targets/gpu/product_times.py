"""How long products are expected to take on matrix units, whole or with their sums cut into parts:
by this cuts are chosen, together with tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from modelcc.ir.index import Bounds
from modelcc.ir.tensor import Kernel
from modelcc.ir.types import F32, TensorType
from modelcc.schedule.canonical import CanonicalKernel, canonical
from modelcc.targets.gpu.choice import timed_on_matrix_units
from modelcc.targets.gpu.contraction import find_contraction
from modelcc.targets.gpu.evaluation import GroupKernel
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.partial_sums import CACHED_BYTES
from modelcc.targets.gpu.sizes import number
from modelcc.targets.gpu.tensor_choice import PRODUCTS, USUAL_PRODUCTS
from modelcc.targets.gpu.weights import weight_layouts, with_weights

SECOND_CYCLES = 2500
"""From the last result of a kernel to where the next one, launched behind it, has its first
operands: about 1.4 us."""


@dataclass(frozen=True)
class ProductTimes:
    """Times on the matrix units of ``machine``, in its cycles."""

    machine: GpuModel

    def of(
        self,
        kernel: Kernel,
        types: Mapping[str, TensorType],
        constants: frozenset[str],
        dims: Bounds,
    ) -> float | None:
        """That of the best tile, or of reading operands from memory if this takes longer; None if
        it is no product for matrix units."""
        given = canonical(kernel, types, constants, dims)[0]
        least = _best_tile(given, self.machine)
        operands = (types[name] for name in kernel.inputs)
        read = sum(prod(map(number, t.shape)) * t.dtype.bytes for t in operands)
        return None if least is None else max(least, read / self._memory_bytes)

    @property
    def _memory_bytes(self) -> float:
        """That memory gives in a cycle, of which there are as many as all products take."""
        rate = max([PRODUCTS.get(name, USUAL_PRODUCTS) for name in self.machine.matrix])
        cycles = self.machine.matrix_flops * 1e12 / (2 * rate * self.machine.units)
        return self.machine.bandwidth * 1e9 / cycles

    def adding(self, results: int, parts: int) -> float:
        """What sums in so many parts take more than whole ones: a kernel that reads all of them,
        and that they are written, to memory that all units share."""
        moved = 2 * results * parts * F32.bytes
        return SECOND_CYCLES + moved / (CACHED_BYTES * self.machine.units)


@lru_cache(256)
def _best_tile(kernel: CanonicalKernel, machine: GpuModel) -> float | None:
    """Cycles; kept, for layers are alike."""
    grouped = GroupKernel(with_weights(kernel, weight_layouts(kernel)), "product")
    anchor = grouped.group.anchor
    found = None if anchor is None else find_contraction(anchor)
    if anchor is None or found is None:
        return None
    tiles = timed_on_matrix_units(grouped, found, anchor, machine)
    return tiles[0][0] if tiles else None
