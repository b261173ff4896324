"""The model of a CPU for schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from modelcc.ir.errors import ModelError

AHEAD_BYTES = 4096
"""Prefetch distance of memory that is read once, where that pays."""


@dataclass(frozen=True)
class MemoryLevel:
    """A cache of ``bytes`` that ``cores`` share, or memory (0 bytes: no limit); one core reads
    ``bandwidth`` bytes per cycle from it."""

    name: str
    bytes: int
    cores: int
    bandwidth: float


@dataclass(frozen=True)
class CpuModel:
    """Vector width, registers, arithmetic, caches and bandwidths of a CPU.

    ``fused``: multiply-add is one instruction; ``loads`` and ``fmas`` of whole vectors are issued
    per cycle, and ``fma_latency`` is in cycles.  A cache has ``bytes`` (0: there is none) and is
    shared by ``cores``; a ``bandwidth`` is that of one core's reads from there, in bytes per cycle.
    Data read once are prefetched ``ahead_bytes`` before their use (0: the hardware prefetcher alone
    is faster).  Kernels may call the ``libraries``, and do so by default if these are
    ``preferred``.  The instruction set has vectors of up to ``widest_bits`` and ``most_registers``
    of them (0: as the model has): schedules may request these, the model has the best default.
    ``multiplies_bf16``: dot products of bf16 (:data:`~modelcc.ir.instructions.DOT2`) take less time
    than f32; on Intel's servers they take two cycles (Emerald Rapids, measured).
    ``multiplies_tiles``: there are products of tiles (:mod:`modelcc.targets.isa.amx`).  The
    defaults are those of Zen 5, without the other users of its L3 cache.
    """

    vector_bits: int = 512
    vector_registers: int = 32
    fused: bool = True
    loads: int = 2
    fmas: int = 2
    fma_latency: int = 4
    l1_bytes: int = 48 << 10
    l2_bytes: int = 1 << 20
    threads: int = 1
    l3_bytes: int = 32 << 20
    l1_cores: int = 1
    l2_cores: int = 1
    l3_cores: int = 8
    l1_bandwidth: float = 128.0
    l2_bandwidth: float = 64.0
    l3_bandwidth: float = 32.0
    memory_bandwidth: float = 10.0
    ahead_bytes: int = AHEAD_BYTES
    libraries: tuple[str, ...] = ()
    preferred: bool = False
    widest_bits: int = 0
    most_registers: int = 0
    multiplies_bf16: bool = False
    multiplies_tiles: bool = False

    @property
    def instruction_set(self) -> CpuModel:
        """The model with all vectors and registers of the instruction set."""
        bits = max(self.vector_bits, self.widest_bits)
        registers = max(self.vector_registers, self.most_registers)
        return replace(self, vector_bits=bits, vector_registers=registers)

    def lanes(self, bits: int) -> int:
        """Elements of ``bits`` bits in one vector register, a power of two."""
        return 1 << max(0, (self.vector_bits // bits).bit_length() - 1)

    def multiply_adds(self, bits: int) -> float:
        """Peak multiply-adds of ``bits`` bits per cycle."""
        return self.lanes(bits) * self.fmas * (1.0 if self.fused else 0.5)

    @property
    def levels(self) -> tuple[MemoryLevel, ...]:
        """Existing caches, nearest first, and memory."""
        caches = (
            MemoryLevel("L1", self.l1_bytes, self.l1_cores, self.l1_bandwidth),
            MemoryLevel("L2", self.l2_bytes, self.l2_cores, self.l2_bandwidth),
            MemoryLevel("L3", self.l3_bytes, self.l3_cores, self.l3_bandwidth),
        )
        there = tuple(cache for cache in caches if cache.bytes)
        return (*there, MemoryLevel("memory", 0, self.l3_cores, self.memory_bandwidth))

    def bandwidth(self, size: float) -> float:
        """Bytes per cycle of repeatedly reading ``size`` bytes.

        Half of a cache is for other data used meanwhile.
        """
        fits = (level.bandwidth for level in self.levels if size * 2 <= level.bytes)
        return next(fits, self.memory_bandwidth)


_INSTRUCTIONS = ("fused", "widest_bits", "most_registers", "multiplies_bf16", "multiplies_tiles")
_NO_NUMBERS = (*_INSTRUCTIONS, "threads", "libraries", "preferred")
NUMBERS = tuple(f.name for f in fields(CpuModel) if f.name not in _NO_NUMBERS)
"""Fields of a model that can be measured, or given by hand."""


def with_numbers(model: CpuModel, numbers: Sequence[tuple[str, float]]) -> CpuModel:
    """``model`` with these fields; :class:`ModelError` if one is unknown or has an invalid
    value."""
    return replace(model, **{name: _number(name, value) for name, value in numbers})


_WHOLE = frozenset(f.name for f in fields(CpuModel) if f.type == "int")


def _number(name: str, value: float) -> float:
    if name not in NUMBERS:
        raise ModelError(f"a machine has no {name!r}", (), f"it has {', '.join(NUMBERS)}")
    whole = name in _WHOLE
    least = 0 if name in ("l3_bytes", "ahead_bytes") else 1 if whole else 0.01
    if not least <= value < 1 << 50:
        raise ModelError(f"{name} of a machine must be a number of at least {least}, not {value!r}")
    if whole and value != int(value):
        raise ModelError(f"{name} of a machine must be a whole number, not {value!r}")
    return int(value) if whole else float(value)
