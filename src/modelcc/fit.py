"""Whether a model fits a microcontroller, what of it does not, and what would help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from modelcc.ir.types import F32, F64
from modelcc.report.formats import byte_text
from modelcc.report.report import Region, Report, report_of
from modelcc.targets.mcu.cross_compiler import CrossCompiler, find_cross_compiler
from modelcc.targets.mcu.delivery.model import ConstantArray, EmbeddedModel
from modelcc.targets.mcu.footprint import Footprint, footprint

_SHOWN = 4
"""Tensors and constants that are named."""


@dataclass(frozen=True)
class MemoryLimits:
    """Bytes that there are of each memory (None: not told)."""

    ram: int | None = None
    flash: int | None = None


NO_LIMITS = MemoryLimits()

RAM = "RAM"
"""How shortages call the memory."""


@dataclass(frozen=True)
class Shortage:
    """``memory`` is too small by ``excess`` bytes: ``reasons`` say why, ``changes`` what would
    help, and ``least`` is what modelcc can do with."""

    memory: str
    excess: int
    least: int
    reasons: tuple[str, ...]
    changes: tuple[str, ...]


@dataclass(frozen=True)
class Fit:
    """What a model takes, where its memory is fullest, and what it lacks."""

    footprint: Footprint
    budget: MemoryLimits
    peak: str
    shortages: tuple[Shortage, ...]


def fit(model: EmbeddedModel, budget: MemoryLimits, optimize: int) -> Fit:
    """Compare what ``model`` takes with ``budget``; with GCC for the processor if it is there."""
    compiler = find_cross_compiler(model.machine, optimize)
    taken = footprint(model, compiler)
    report = report_of(model.program, model.machine.name, {})
    live = fullest(report)
    found = (_of_ram(model, taken, budget, live), _of_flash(model, taken, budget, compiler))
    peak = peak_words(report, live)
    return Fit(taken, budget, peak, tuple(shortage for shortage in found if shortage))


def with_change(found: Fit, least: int | None, change: str) -> Fit:
    """``found`` with another change that helps about its lack of memory, first among them, after
    which it takes ``least`` bytes (None: too many)."""
    shortages: list[Shortage] = []
    for s in found.shortages:
        if s.memory == RAM:
            s = replace(s, least=min(s.least, least or s.least), changes=(change, *s.changes))
        shortages.append(s)
    return replace(found, shortages=tuple(shortages))


def fullest(report: Report) -> tuple[int, list[Region]]:
    """The step at which most is live, and what that is, the largest first."""

    def live(step: int) -> list[Region]:
        return [r for r in report.regions if r.first <= step <= r.last]

    steps = range(max(1, len(report.kernels)))
    step = max(steps, key=lambda step: sum(r.size for r in live(step)))
    return step, sorted(live(step), key=lambda region: -region.size)


def peak_words(report: Report, live: tuple[int, list[Region]]) -> str:
    """What :func:`fullest` found, in words; empty if the arena is."""
    step, regions = live
    if not report.kernels or not regions:
        return ""
    row = report.kernels[step]
    tensors = ", ".join(f"{r.name} ({r.size} bytes)" for r in regions[:_SHOWN])
    return f"step {step} ({', '.join(row.source) or row.function}) needs {tensors}"


def _of_ram(
    model: EmbeddedModel, taken: Footprint, budget: MemoryLimits, live: tuple[int, list[Region]]
) -> Shortage | None:
    if budget.ram is None or taken.ram <= budget.ram:
        return None
    report = report_of(model.program, model.machine.name, {})
    reasons = [f"the arena takes {taken.arena} bytes", peak_words(report, live)]
    reasons += [f"states take {taken.states} bytes"] if taken.states else []
    changes: list[str] = []
    single = sum(region.size for region in live[1] if region.type.startswith(str(F32)))
    if single:
        less = single - single // 4
        changes.append(f"quantize it to int8: the tensors there shrink by {less} bytes")
    changes.append("a smaller input, or fewer channels in the layers of that step")
    excess = taken.ram - budget.ram
    return Shortage(RAM, excess, taken.ram, tuple(filter(None, reasons)), tuple(changes))


def _of_flash(
    model: EmbeddedModel, taken: Footprint, budget: MemoryLimits, compiler: CrossCompiler | None
) -> Shortage | None:
    if budget.flash is None or taken.flash <= budget.flash:
        return None
    largest = sorted(model.arrays, key=lambda one: -one.bytes)[:_SHOWN]
    named = "; ".join(f"{_words_of(one)} ({one.bytes} bytes)" for one in largest)
    reasons = (
        f"weights take {taken.weights} bytes, tables {taken.tables}, code {taken.code}, "
        f"libraries {taken.library}",
        f"the largest constants: {named}",
    )
    small = taken if compiler is None else footprint(model, _for_size(compiler))
    changes = tuple(_smaller_flash(model, taken, small))
    return Shortage("flash", taken.flash - budget.flash, small.flash, reasons, changes)


def _words_of(one: ConstantArray) -> str:
    return f"{one.names[0]} of {one.source[0]}" if one.source else one.names[0]


def _smaller_flash(model: EmbeddedModel, taken: Footprint, small: Footprint) -> Iterator[str]:
    found = (one for one in model.arrays if one.is_weight and one.dtype in (F32, F64))
    floats = sum(one.bytes - one.array.size for one in found)
    if floats:
        yield f"quantize it to int8: the weights shrink by {byte_text(floats)}"
    if small.flash < taken.flash:
        yield f"compile the C with -Os: {small.flash} bytes of flash"
    yield "fewer channels in the layers of the largest constants, or pruning them"


def _for_size(compiler: CrossCompiler) -> CrossCompiler:
    flags = ("-Os" if flag.startswith("-O") else flag for flag in compiler.flags)
    return replace(compiler, flags=tuple(flags))
