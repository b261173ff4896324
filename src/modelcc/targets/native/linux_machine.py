"""This machine's processor by Linux' description, without LLVM."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from modelcc.runtime.machine import linux_features
from modelcc.targets.native.machine import Machine, simd_bits

_CPU_INFO = Path("/proc/cpuinfo")

_WORDS = """
64bit adx aes amx-avx512 amx-bf16 amx-complex amx-fp16 amx-fp8 amx-int8 amx-movrs amx-tf32 amx-tile
avx avx10.1 avx10.2 avx2 avx512bf16 avx512bitalg avx512bw avx512cd avx512dq avx512f avx512fp16
avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vp2intersect avx512vpopcntdq avxifma
avxneconvert avxvnni avxvnniint16 avxvnniint8 bmi bmi2 clflushopt clwb clzero cmov crc32 cx16 cx8
f16c fma fma4 fsgsbase fxsr gfni invpcid lwp lzcnt mmx movbe movdir64b movdiri pclmul popcnt prfchw
rdpid rdrnd rdseed sahf serialize sha sha512 sm3 sm4 sse sse2 sse3 sse4.1 sse4.2 sse4a ssse3 tbm
vaes vpclmulqdq xop xsave xsavec xsaveopt xsaves
"""
_INSTRUCTIONS = tuple(_WORDS.split())
"""Features of x86-64, as LLVM calls them, that are user-mode instructions."""

_AMD: Mapping[int, Mapping[str, Iterable[int]]] = MappingProxyType(
    {
        0x17: {"znver1": range(0x30), "znver2": range(0x30, 0x100)},
        0x19: {
            "znver3": (*range(0x10), *range(0x20, 0x60)),
            "znver4": (*range(0x10, 0x20), *range(0x60, 0x80), *range(0xA0, 0xB0)),
        },
        0x1A: {"znver5": (*range(0x50), *range(0x60, 0x80), *range(0xD0, 0xD8))},
    }
)
_INTEL: Mapping[int, Mapping[str, Iterable[int]]] = MappingProxyType(
    {
        6: {
            "haswell": (0x3C, 0x3F, 0x45, 0x46),
            "broadwell": (0x3D, 0x47, 0x4F, 0x56),
            "skylake": (0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6),
            "skylake-avx512": (0x55,),
            "icelake-client": (0x7D, 0x7E),
            "icelake-server": (0x6A, 0x6C),
            "rocketlake": (0xA7,),
            "tigerlake": (0x8C, 0x8D),
            "alderlake": (0x97, 0x9A),
            "raptorlake": (0xB7, 0xBA, 0xBF),
            "meteorlake": (0xAA, 0xAC),
            "sapphirerapids": (0x8F,),
            "emeraldrapids": (0xCF,),
            "graniterapids": (0xAD, 0xAE),
        }
    }
)
_ARM: Mapping[int, str] = MappingProxyType(
    {
        0xD08: "cortex-a72", 0xD0B: "cortex-a76", 0xD0C: "neoverse-n1",
        0xD40: "neoverse-v1", 0xD49: "neoverse-n2", 0xD4F: "neoverse-v2",
    }
)  # fmt: skip
"""By vendor, family and model, or by Arm's part: names as in llvm/lib/TargetParser/Host.cpp."""


def linux_machine() -> Machine:
    """The machine this process runs on; without data from Linux, the baseline of its architecture.
    A processor that is not in the tables has no name."""
    architecture = platform.machine()
    triple = f"{architecture}-unknown-{sys.platform}-gnu"
    known = linux_features()
    features = tuple(f"+{name}" for name in _INSTRUCTIONS if name in known)
    return Machine(triple, processor_name(_facts()), features, simd_bits(triple, features))


def processor_name(facts: Mapping[str, str]) -> str:
    """LLVM's name of a processor by its lines of /proc/cpuinfo; empty if unknown.

    >>> processor_name({"vendor_id": "AuthenticAMD", "cpu family": "25", "model": "17"})
    'znver4'
    """
    if "CPU part" in facts:
        return _ARM.get(int(facts["CPU part"], 0), "") if facts["CPU implementer"] == "0x41" else ""
    tables = {"AuthenticAMD": _AMD, "GenuineIntel": _INTEL}
    table = tables.get(facts.get("vendor_id", ""), {})
    names = table.get(int(facts.get("cpu family", -1)), {})
    model, flags = int(facts.get("model", -1)), facts.get("flags", "").split()
    name = next((name for name, models in names.items() if model in models), "")
    if name == "skylake-avx512" and "avx512_vnni" in flags:  # three processors share one model
        return "cooperlake" if "avx512_bf16" in flags else "cascadelake"
    return name


def _facts() -> dict[str, str]:
    """The lines of /proc/cpuinfo on the first processor."""
    try:
        first = _CPU_INFO.read_text().partition("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
