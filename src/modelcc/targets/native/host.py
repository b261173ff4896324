"""The processors that native code is made for: this machine's, or a named baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from modelcc.ir.op import ModelError
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.native.machine import Machine, host_machine

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = MappingProxyType({"K": 1 << 10, "M": 1 << 20, "G": 1 << 30})


@dataclass(frozen=True)
class Baseline:
    """A processor that code can be made for on any machine of its architecture."""

    vector_bits: int
    fused: bool


BASELINES: Mapping[str, Baseline] = MappingProxyType(
    {
        "x86-64": Baseline(128, False),
        "x86-64-v2": Baseline(128, False),
        "x86-64-v3": Baseline(256, True),
        "x86-64-v4": Baseline(512, True),
    }
)
"""Levels of the x86-64 psABI."""


def machine_of(cpu: str) -> tuple[Machine, bool]:
    """The machine called ``cpu`` (empty or ``native``: this one) and whether it fuses a*b+c.

    :class:`ModelError` if there is no such machine.
    """
    host = host_machine()
    if cpu in ("", "native"):
        return host, "+fma" in host.features or host.architecture == "aarch64"
    found = BASELINES.get(cpu)
    if found is None or host.architecture != "x86_64":
        known = ", ".join(("native", *BASELINES) if host.architecture == "x86_64" else ("native",))
        raise ModelError(f"unknown processor {cpu!r}", (), f"choose one of {known}")
    features = ("+avx512f",) if found.vector_bits == 512 else ()
    return Machine(host.triple, cpu, features, found.vector_bits), found.fused


def cpu_model(machine: Machine, fused: bool, threads: int) -> CpuModel:
    """What schedules need to know of ``machine``; caches are read from this one's description."""
    wide = machine.vector_bits >= 512 or machine.architecture == "aarch64"
    return CpuModel(
        vector_bits=max(machine.vector_bits, 64),
        vector_registers=32 if wide else 16,
        fused=fused,
        l1_bytes=_cache_bytes(1, 32 << 10),
        l2_bytes=_cache_bytes(2, 1 << 20),
        threads=threads,
    )


def _cache_bytes(level: int, default: int) -> int:
    """Size of the data cache of ``level`` as Linux tells it, else ``default``."""
    for index in sorted(_CACHES.glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            own = int((index / "level").read_text())
            size = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if own == level and kind in ("Data", "Unified"):
            return int(size[:-1]) * _UNITS[size[-1]] if size[-1:] in _UNITS else int(size)
    return default
