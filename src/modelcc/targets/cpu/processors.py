"""Known processors: data from their manuals and from published measurements.

Sources: Intel 64 and IA-32 Architectures Optimization Reference Manual (cache parameters of each
microarchitecture, with *sustained* bandwidths: Broadwell 93, 25, 14 and Skylake-SP 133, 52, 15
bytes per cycle); AMD Software Optimization Guides for families 17h, 19h and 1Ah (load and FMA
pipes, latencies, 32 bytes per cycle between L1 and L2 up to Zen 4, 64 on Zen 5); Arm Software
Optimization Guides of Cortex-A72 and A76 and Neoverse N1, N2, V1 and V2; uops.info (latencies and
throughputs, measured); chipsandcheese.com (bandwidths of L3 caches and of memory, measured on one
core).  One core's bandwidth from memory depends on the board: it is given for common ones, and
``modelcc machine --measure`` is more accurate.  Zen 4 reads its L3 cache at 78 GB/s with
prefetches 4 KB ahead and at 99 without, in vectors of 256 and 512 bits alike (measured).  Emerald
Rapids reads its L3 cache at 9.8 bytes per cycle while others use it, too (measured), of published
12.

``loads`` and ``fmas`` are per cycle and of vectors of ``vector_bits``: Zen 4 splits instructions
of 512 bits in two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from modelcc.targets.cpu.machine import CpuModel

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Processor:
    """A processor of ``architecture``, by LLVM's name.

    On x86-64 it supports a ``level`` of the psABI, and the further ``features`` of LLVM that
    generated code uses.
    """

    model: CpuModel
    architecture: str = "x86_64"
    level: str = ""
    features: tuple[str, ...] = ()


def _model(
    vectors: tuple[int, int],
    pipes: tuple[int, int, int],
    kib: tuple[int, int, int],
    cores: tuple[int, int],
    bandwidths: tuple[float, float, float, float],
    fused: bool = True,
) -> CpuModel:
    """``vectors``: bits, registers; ``pipes``: loads, FMAs, latency; ``kib`` and ``bandwidths``
    by level; ``cores`` that share L2 and L3."""
    return CpuModel(
        *vectors,
        fused,
        *pipes,
        l1_bytes=kib[0] * KIB,
        l2_bytes=kib[1] * KIB,
        l3_bytes=kib[2] * KIB,
        l2_cores=cores[0],
        l3_cores=cores[1],
        l1_bandwidth=bandwidths[0],
        l2_bandwidth=bandwidths[1],
        l3_bandwidth=bandwidths[2],
        memory_bandwidth=bandwidths[3],
    )


_SSE, _AVX2, _AVX512, _NEON = (128, 16), (256, 16), (512, 32), (128, 32)
_VNNI, _AVXVNNI, _BF16 = ("+avx512vnni",), ("+avxvnni",), ("+avx512bf16",)

# AMD.  Zen 1 splits 256-bit operations in two, Zen 4 512-bit ones.
_ZEN1 = _model(_AVX2, (1, 1, 5), (32, 512, 8192), (1, 4), (32, 28, 16, 6))
_ZEN2 = _model(_AVX2, (2, 2, 5), (32, 512, 16384), (1, 4), (64, 28, 20, 6))
_ZEN3 = _model(_AVX2, (2, 2, 4), (32, 512, 32768), (1, 8), (64, 30, 24, 7))
_ZEN4 = replace(
    _model(_AVX512, (1, 1, 4), (32, 1024, 32768), (1, 8), (64, 30, 26, 8)),
    ahead_bytes=0,
    multiplies_bf16=True,
)
_ZEN5 = replace(
    _model(_AVX512, (2, 2, 4), (48, 1024, 32768), (1, 8), (128, 64, 32, 10)), multiplies_bf16=True
)

# Intel.  Servers have an L3 slice per core, counted here for eight.
_HASWELL = _model(_AVX2, (2, 2, 5), (32, 256, 8192), (1, 4), (64, 25, 14, 5))
_SKYLAKE = _model(_AVX2, (2, 2, 4), (32, 256, 8192), (1, 4), (64, 29, 18, 6))
_SKYLAKE_SP = _model(_AVX512, (2, 2, 4), (32, 1024, 11264), (1, 8), (128, 52, 15, 5))
_ICE_LAKE = _model(_AVX512, (2, 1, 4), (48, 512, 8192), (1, 4), (128, 48, 18, 6))
_ICE_LAKE_SP = _model(_AVX512, (2, 2, 4), (48, 1280, 12288), (1, 8), (128, 48, 15, 5))
_SAPPHIRE = _model(_AVX512, (2, 2, 4), (48, 2048, 15360), (1, 8), (128, 48, 11, 5))
_ALDER_LAKE = _model(_AVX2, (3, 2, 4), (48, 1280, 24576), (1, 8), (96, 48, 20, 8))

# Arm.  Servers have a system cache in place of an L3.
_A72 = _model(_NEON, (1, 1, 7), (32, 1024, 0), (4, 4), (16, 8, 8, 3))
_A76 = _model(_NEON, (2, 2, 4), (64, 512, 2048), (1, 4), (32, 16, 10, 5))
_N1 = _model(_NEON, (2, 2, 4), (64, 1024, 32768), (1, 64), (32, 28, 14, 8))
_V1 = _model(_NEON, (3, 4, 4), (64, 1024, 32768), (1, 64), (48, 32, 14, 8))
_N2 = _model(_NEON, (3, 2, 4), (64, 1024, 32768), (1, 64), (48, 32, 14, 8))
_V2 = _model(_NEON, (3, 4, 4), (64, 2048, 36864), (1, 72), (48, 32, 14, 10))
_APPLE = _model(_NEON, (3, 4, 4), (128, 12288, 0), (4, 4), (48, 32, 32, 18))

PROCESSORS: Mapping[str, Processor] = MappingProxyType(
    {
        "znver1": Processor(_ZEN1, level="x86-64-v3"),
        "znver2": Processor(_ZEN2, level="x86-64-v3"),
        "znver3": Processor(_ZEN3, level="x86-64-v3"),
        "znver4": Processor(_ZEN4, level="x86-64-v4", features=(*_VNNI, *_BF16)),
        "znver5": Processor(_ZEN5, level="x86-64-v4", features=(*_VNNI, *_AVXVNNI, *_BF16)),
        "haswell": Processor(_HASWELL, level="x86-64-v3"),
        "broadwell": Processor(_HASWELL, level="x86-64-v3"),
        "skylake": Processor(_SKYLAKE, level="x86-64-v3"),
        "skylake-avx512": Processor(_SKYLAKE_SP, level="x86-64-v4"),
        "cascadelake": Processor(_SKYLAKE_SP, level="x86-64-v4", features=_VNNI),
        "cooperlake": Processor(_SKYLAKE_SP, level="x86-64-v4", features=_VNNI),
        "icelake-client": Processor(_ICE_LAKE, level="x86-64-v4", features=_VNNI),
        "tigerlake": Processor(_ICE_LAKE, level="x86-64-v4", features=_VNNI),
        "rocketlake": Processor(_ICE_LAKE, level="x86-64-v4", features=_VNNI),
        "icelake-server": Processor(_ICE_LAKE_SP, level="x86-64-v4", features=_VNNI),
        "sapphirerapids": Processor(_SAPPHIRE, level="x86-64-v4", features=(*_VNNI, *_AVXVNNI)),
        "emeraldrapids": Processor(_SAPPHIRE, level="x86-64-v4", features=(*_VNNI, *_AVXVNNI)),
        "graniterapids": Processor(_SAPPHIRE, level="x86-64-v4", features=(*_VNNI, *_AVXVNNI)),
        "alderlake": Processor(_ALDER_LAKE, level="x86-64-v3", features=_AVXVNNI),
        "raptorlake": Processor(_ALDER_LAKE, level="x86-64-v3", features=_AVXVNNI),
        "meteorlake": Processor(_ALDER_LAKE, level="x86-64-v3", features=_AVXVNNI),
        "cortex-a72": Processor(_A72, "aarch64"),
        "cortex-a76": Processor(_A76, "aarch64"),
        "neoverse-n1": Processor(_N1, "aarch64"),
        "neoverse-n2": Processor(_N2, "aarch64"),
        "neoverse-v1": Processor(_V1, "aarch64"),
        "neoverse-v2": Processor(_V2, "aarch64"),
        "apple-m1": Processor(_APPLE, "aarch64"),
        "apple-m2": Processor(_APPLE, "aarch64"),
        "apple-m3": Processor(_APPLE, "aarch64"),
    }
)
"""By LLVM's names."""

COMMON: Mapping[str, CpuModel] = MappingProxyType(
    {
        "x86-64": _model(_SSE, (2, 2, 4), (32, 512, 8192), (1, 4), (32, 24, 14, 5), fused=False),
        "x86-64-v2": _model(_SSE, (2, 2, 4), (32, 512, 8192), (1, 4), (32, 24, 14, 5), fused=False),
        "x86-64-v3": _model(_AVX2, (2, 2, 4), (32, 512, 16384), (1, 8), (64, 28, 14, 6)),
        "x86-64-v4": _SKYLAKE_SP,
        "generic": _model(_NEON, (2, 2, 4), (32, 512, 2048), (1, 4), (32, 16, 10, 5)),
    }
)
"""Generic processors: each has what is common among those it stands for, conservatively."""


def processor_model(name: str, vector_bits: int, fused: bool, arm: bool = False) -> CpuModel:
    """The model of the processor that LLVM calls ``name``, with vectors of ``vector_bits``.

    Unknown ones are modelled as a generic one with such vectors.
    """
    known = PROCESSORS.get(name)
    model = known.model if known is not None else COMMON.get(name, _like(vector_bits, arm))
    bits = max(vector_bits, 64)
    if bits < model.vector_bits:
        # What one unit does in two halves, it does twice if vectors are half as wide.
        model = replace(model, loads=max(model.loads, 2), fmas=max(model.fmas, 2))
    registers = 32 if bits >= 512 or arm else 16
    return replace(model, vector_bits=bits, vector_registers=registers, fused=fused)


def _like(vector_bits: int, arm: bool) -> CpuModel:
    level = {256: "x86-64-v3", 512: "x86-64-v4"}.get(vector_bits, "x86-64-v2")
    return COMMON["generic" if arm else level]
