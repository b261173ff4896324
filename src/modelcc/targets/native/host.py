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
_L1, _L2 = 32 << 10, 1 << 20
_ARM_REGISTERS = 32 - 3
"""Without those that rows' elements are loaded to ahead of time: a multiply-add takes none from
memory.  In tiles that fill all but one, LLVM keeps sums on the stack (512x512x512: 226 instructions
with 5 stores for 108 multiply-adds; 147 and none for 96 with these)."""
_UNITS = MappingProxyType({"K": 1 << 10, "M": 1 << 20, "G": 1 << 30})


@dataclass(frozen=True)
class Baseline:
    """A processor that code can be made for on any machine of its architecture."""

    vector_bits: int
    features: tuple[str, ...]


_V2 = ("+cx16", "+sahf", "+popcnt", "+sse3", "+ssse3", "+sse4.1", "+sse4.2")
_V3 = (*_V2, "+avx", "+avx2", "+bmi", "+bmi2", "+f16c", "+fma", "+lzcnt", "+movbe", "+xsave")
_V4 = (*_V3, "+avx512f", "+avx512bw", "+avx512cd", "+avx512dq", "+avx512vl")

BASELINES: Mapping[str, Baseline] = MappingProxyType(
    {
        "x86-64": Baseline(128, ()),
        "x86-64-v2": Baseline(128, _V2),
        "x86-64-v3": Baseline(256, _V3),
        "x86-64-v4": Baseline(512, _V4),
    }
)
"""Levels of the x86-64 psABI."""

PORTABLE = "portable"
"""The processor that any machine of this one's architecture has."""


def machine_of(cpu: str) -> Machine:
    """The machine called ``cpu`` (empty or ``native``: this one).

    :class:`ModelError` if there is no such machine.
    """
    host = host_machine()
    if cpu == PORTABLE and host.architecture != "x86_64":
        return Machine(host.triple, "generic", (), 128)
    cpu = "x86-64" if cpu == PORTABLE else cpu
    if cpu in ("", "native"):
        return host
    found = BASELINES.get(cpu)
    if found is None or host.architecture != "x86_64":
        levels = BASELINES if host.architecture == "x86_64" else ()
        known = ", ".join(("native", PORTABLE, *levels))
        raise ModelError(f"unknown processor {cpu!r}", (), f"choose one of {known}")
    return Machine(host.triple, cpu, found.features, found.vector_bits)


def cpu_model(machine: Machine, threads: int) -> CpuModel:
    """What schedules need to know of ``machine``.

    Caches are this machine's for itself, and common ones for a named processor, so that code for
    it is the same wherever it is made.
    """
    own = machine.cpu not in (*BASELINES, "generic")
    arm = machine.architecture == "aarch64"
    registers = 32 if machine.vector_bits >= 512 else 16
    return CpuModel(
        vector_bits=max(machine.vector_bits, 64),
        vector_registers=_ARM_REGISTERS if arm else registers,
        fused="+fma" in machine.features or arm,
        l1_bytes=_cache_bytes(1, _L1) if own else _L1,
        l2_bytes=_cache_bytes(2, _L2) if own else _L2,
        threads=threads,
    )


def required_macros(machine: Machine, cpu: CpuModel) -> tuple[str, ...]:
    """Macros that a C compiler defines if it may use what schedules for ``cpu`` count on."""
    if machine.architecture != "x86_64":
        return ()
    vectors = {128: (), 256: ("__AVX2__",), 512: ("__AVX512F__",)}.get(cpu.vector_bits, ())
    level = ("__SSE4_2__",) if machine.cpu == "x86-64-v2" else ()
    return (*level, *vectors, *(("__FMA__",) if cpu.fused else ()))


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
