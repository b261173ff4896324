"""What is known of NVIDIA's GPUs by their architecture, and how many groups of a kernel one of
their processors holds (CUDA Programming Guide, "Compute Capabilities")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modelcc.ir.errors import ModelError
from modelcc.ir.loop_group_verifier import GroupLimits
from modelcc.targets.native.machine import Machine

WARP = 32
THREADS = 1024
"""Of a group."""

_REGISTER_UNIT, _SHARED_UNIT = 256, 128
"""What a warp's registers and a group's memory are rounded up to; a group takes another 1 KiB."""

_RESERVED = 1 << 10


@dataclass(frozen=True)
class Chip:
    """An architecture, ``sm_80``.  ``ptx`` is the first version of PTX that has all we use;
    ``shared_bytes``, ``threads``, ``groups`` and ``registers`` are those of a multiprocessor."""

    name: str
    ptx: int
    shared_bytes: int
    threads: int
    groups: int
    registers: int = 65536

    @property
    def machine(self) -> Machine:
        """LLVM's name for it."""
        return Machine("nvptx64-nvidia-cuda", self.name, (f"+ptx{self.ptx}",))

    @property
    def limits(self) -> GroupLimits:
        """What a group may take."""
        return GroupLimits(self.shared_bytes - _RESERVED, THREADS)

    def occupancy(self, threads: int, registers: int, shared: int) -> float:
        """Warps that are there at a time, of those that could be."""
        warps = -(-threads // WARP)
        per_warp = -(-registers * WARP // _REGISTER_UNIT) * _REGISTER_UNIT
        per_group = -(-shared // _SHARED_UNIT) * _SHARED_UNIT + _RESERVED
        fitting = min(
            self.groups,
            self.threads // (warps * WARP),
            self.registers // per_warp // warps if registers else self.groups,
            self.shared_bytes // per_group,
        )
        return fitting * warps / (self.threads // WARP)


CHIPS: Mapping[str, Chip] = {
    chip.name: chip
    for chip in (
        Chip("sm_80", 80, 164 << 10, 2048, 32),
        Chip("sm_86", 80, 100 << 10, 1536, 16),
        Chip("sm_87", 80, 164 << 10, 1536, 16),
        Chip("sm_89", 80, 100 << 10, 1536, 24),
        Chip("sm_90", 80, 228 << 10, 2048, 32),
        Chip("sm_90a", 80, 228 << 10, 2048, 32),
        Chip("sm_100a", 86, 228 << 10, 2048, 32),
        Chip("sm_120", 87, 100 << 10, 1536, 24),
    )
}

DEFAULT = "sm_80"


def find_chip(name: str) -> Chip:
    """The architecture called ``name``; :class:`ModelError` if it is none of ours."""
    chip = CHIPS.get(name)
    if chip is None:
        hint = f"there is {', '.join(CHIPS)}; code for an older one runs on newer ones"
        raise ModelError(f"{name!r} is no architecture of NVIDIA's GPUs", (), hint)
    return chip
