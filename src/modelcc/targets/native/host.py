"""The processors for native code: this machine's, or a named one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from types import MappingProxyType

from modelcc.ir.errors import ModelError
from modelcc.ir.instructions import DOT2
from modelcc.runtime.caches import SystemCache, system_caches
from modelcc.targets.base import TargetOptions
from modelcc.targets.cpu.libraries import LIBRARIES
from modelcc.targets.cpu.machine import CpuModel, with_numbers
from modelcc.targets.cpu.processors import PROCESSORS, Processor, processor_model
from modelcc.targets.isa import amx
from modelcc.targets.isa.table import available, lanes_of
from modelcc.targets.native.machine import Machine

_ARM_REGISTERS = 32 - 3
"""Without those into which the rows' elements are preloaded: a multiply-add has no memory operand.
In tiles that fill all but one, LLVM spills sums to the stack (512x512x512: 226 instructions with 5
stores for 108 multiply-adds; 147 and none for 96 with these)."""


@dataclass(frozen=True)
class Baseline:
    """A processor for which code can be compiled on any machine of its architecture."""

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
"""The baseline processor of this machine's architecture."""


def processor_of(options: TargetOptions, host: Machine) -> tuple[Machine, CpuModel]:
    """The requested processor, on ``host``, and its model for schedules.

    Caches are this machine's for itself, and the table's for a named processor, so that code for
    it is reproducible anywhere.  :class:`ModelError` if it is unknown.
    """
    machine = machine_of(options.cpu, host)
    caches = system_caches() if machine == host else ()
    model = cpu_model(machine, options.threads, options.machine, caches)
    names = _library_names(options)
    return machine, replace(model, libraries=names, preferred=options.kernels == "library")


def _library_names(options: TargetOptions) -> tuple[str, ...]:
    for name, _ in options.libraries:
        if name not in LIBRARIES:
            hint = f"there is {', '.join(LIBRARIES)}"
            raise ModelError(f"kernels cannot call a library {name!r}", (), hint)
    if options.kernels == "library" and not options.libraries:
        hint = f"add --library NAME, one of {', '.join(LIBRARIES)}"
        raise ModelError("libraries are preferred, but none is named", (), hint)
    return tuple(name for name, _ in options.libraries)


def machine_of(cpu: str, host: Machine) -> Machine:
    """The machine called ``cpu`` (empty or ``native``: ``host``, this one).

    :class:`ModelError` if there is no such machine.
    """
    if cpu in ("", "native"):
        return host
    x86 = host.architecture == "x86_64"
    if cpu == PORTABLE and not x86:
        return Machine(host.triple, "generic", (), 128)
    cpu = "x86-64" if cpu == PORTABLE else cpu
    known = PROCESSORS.get(cpu)
    if known is not None and known.architecture == host.architecture:
        return _named(host.triple, cpu, known)
    found = BASELINES.get(cpu)
    if found is None or not x86:
        raise ModelError(f"unknown processor {cpu!r}", (), _hint(cpu, host.architecture))
    return Machine(host.triple, cpu, found.features, found.vector_bits)


def processor_names(architecture: str) -> tuple[str, ...]:
    """Accepted names of processors of ``architecture``, on a machine of it."""
    named = (name for name, p in PROCESSORS.items() if p.architecture == architecture)
    return ("native", PORTABLE, *(BASELINES if architecture == "x86_64" else ()), *named)


def _hint(cpu: str, architecture: str) -> str:
    known = processor_names(architecture)
    close = get_close_matches(cpu, known, 1)
    start = f"did you mean {close[0]!r}? " if close else ""
    return f"{start}choose one of {', '.join(known)}"


def _named(triple: str, name: str, processor: Processor) -> Machine:
    """A processor of the table, with only the features that are named, which the runtime checks."""
    if processor.architecture != "x86_64":
        return Machine(triple, "generic", processor.features, processor.model.vector_bits, name)
    level = BASELINES[processor.level]
    features = (*level.features, *processor.features)
    return Machine(triple, processor.level, features, level.vector_bits, name)


def cpu_model(
    machine: Machine,
    threads: int,
    numbers: Sequence[tuple[str, float]] = (),
    caches: Iterable[SystemCache] = (),
) -> CpuModel:
    """The model of ``machine``, with ``numbers`` and ``caches`` overriding others."""
    arm = machine.architecture == "aarch64"
    fused = "+fma" in machine.features or arm
    model = processor_model(machine.tuning or machine.cpu, machine.vector_bits, fused, arm)
    if arm:
        model = replace(model, vector_registers=_ARM_REGISTERS)
    found = lanes_of(available(machine.architecture, machine.features))
    vectors = {
        "widest_bits": model.vector_bits,
        "most_registers": model.vector_registers,
        "multiplies_tiles": {*amx.FEATURES} <= {*machine.features},
        "multiplies_bf16": model.multiplies_bf16 and model.lanes(32) in found.get(DOT2, ()),
    }
    model = replace(with_caches(model, caches), **vectors)
    return replace(with_numbers(model, numbers), threads=threads)


def with_caches(model: CpuModel, caches: Iterable[SystemCache]) -> CpuModel:
    """``model`` with ``caches`` in place of its own; without an L3 cache if there are only two."""
    found = {cache.level: cache for cache in caches if cache.level in (1, 2, 3)}
    if not found.keys() >= {1, 2}:
        return model
    sizes = {f"l{level}_bytes": cache.bytes for level, cache in found.items()}
    cores = {f"l{level}_cores": cache.cores for level, cache in found.items()}
    return replace(model, **{"l3_bytes": 0, **sizes, **cores})


def required_macros(machine: Machine, cpu: CpuModel) -> tuple[str, ...]:
    """Macros that a C compiler defines if it may use the features that schedules for ``cpu`` rely
    on."""
    if machine.architecture != "x86_64":
        return ()
    vectors = {128: (), 256: ("__AVX2__",), 512: ("__AVX512F__",)}.get(cpu.vector_bits, ())
    level = ("__SSE4_2__",) if machine.cpu == "x86-64-v2" else ()
    return (*level, *vectors, *(("__FMA__",) if cpu.fused else ()))
