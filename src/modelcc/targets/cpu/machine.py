"""What the schedules need to know of a CPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CpuModel:
    """Vector width, registers and caches (bytes, per core) of a CPU.

    ``fused`` tells whether multiply-add is one instruction; ``loads`` and ``fmas`` are issued per
    cycle and ``fma_latency`` is in cycles.
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

    def lanes(self, bits: int) -> int:
        """Elements of ``bits`` bits in one vector register, a power of two."""
        return 1 << max(0, (self.vector_bits // bits).bit_length() - 1)
