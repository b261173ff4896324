"""What of a model runs on a device, and whether it fits into its memory, before building."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from modelcc.driver import ModelSource, check_stage, pipeline
from modelcc.feeds.program_sizes import greatest_sizes, usual_sizes
from modelcc.fit import Shortage, fullest, peak_words
from modelcc.ir.index import Index, evaluate
from modelcc.ir.program import Program
from modelcc.options import Options
from modelcc.pipeline import before_block, run_stages
from modelcc.report.formats import byte_text
from modelcc.report.report import Report, report_of
from modelcc.runtime.devices.device import open_device
from modelcc.runtime.errors import LoadError
from modelcc.targets.base import BuildConfig
from modelcc.targets.gpu.device_target import DeviceTarget

MEMORY = "device memory"
"""How shortages call it."""

BETWEEN = "tensors between kernels"
"""The part that is the arena."""


@dataclass(frozen=True)
class DeviceFit:
    """The ``report`` of a planned program, the bytes that it needs of a device by part, and those
    that there are (None: not known) as ``source`` says; ``shortage`` is what is missing."""

    report: Report
    parts: Mapping[str, int]
    memory: int | None
    source: str
    shortage: Shortage | None

    @property
    def needed(self) -> int:
        """Bytes in all."""
        return sum(self.parts.values())


def device_fit(
    model: ModelSource,
    target: DeviceTarget,
    options: Options,
    config: BuildConfig,
    memory: int | None = None,
) -> DeviceFit:
    """Plan ``model`` for ``target``, whose device has ``memory`` bytes (None: those of the machine
    that is scheduled for, else of the device that is here).

    Named dimensions have their greatest sizes where they are bounded, and modest ones elsewhere.
    """
    program: Program = run_stages(
        before_block(pipeline(target, options, config), "emit"), model, check_stage
    )
    sizes = usual_sizes(program, greatest_sizes(program))
    report = report_of(program, target.name, sizes, target.device_facts(program))
    there, source = (memory, "as asked") if memory is not None else _memory_of(target)
    parts = memory_parts(program, sizes)
    excess = sum(parts.values()) - (there or 0)
    shortage = None
    if there is not None and excess > 0:
        changes = tuple(_changes(program, sizes, there))
        reasons = (", ".join(f"{n} take {byte_text(size)}" for n, size in parts.items() if size),)
        peak = peak_words(report, fullest(report))
        reasons += (peak,) if peak else ()
        shortage = Shortage(MEMORY, excess, sum(parts.values()), reasons, changes)
    return DeviceFit(report, parts, there, source, shortage)


def memory_parts(program: Program, sizes: Mapping[str, int]) -> dict[str, int]:
    """Bytes that a placed program takes of a device for these dimensions."""
    env = {**dict.fromkeys(program.read_sizes, 1), **sizes}
    for definition in program.placed.definitions:
        env[definition.symbol] = evaluate(definition.value, env)
    alignment = program.placed.alignment

    def aligned(size: Index) -> int:
        return -(-evaluate(size, env) // alignment) * alignment

    kept = {*program.allocated, *program.states}
    ends = (n for n in (*program.inputs, *program.outputs) if n not in kept)
    return {
        "weights": sum(aligned(constant.nbytes) for constant in program.constants.values()),
        BETWEEN: aligned(program.placed.arena),
        "inputs and outputs": sum(aligned(program.types[name].bytes) for name in ends),
    }


def _memory_of(target: DeviceTarget) -> tuple[int | None, str]:
    if target.gpu.memory_bytes:
        return target.gpu.memory_bytes, f"the {target.gpu.name}'s"
    try:
        device = open_device(target.name, target.index)
    except LoadError as error:
        return None, str(error)
    return device.memory, f"{device.name}'s"


def _changes(program: Program, sizes: Mapping[str, int], there: int) -> Iterator[str]:
    """What would make it fit."""
    whole = report_of(program, "", sizes).lower_bound

    def needed(changed: Mapping[str, int]) -> int:
        parts = memory_parts(program, {**sizes, **changed})
        if isinstance(program.placed.arena, int) and changed:  # as planned for smaller sizes
            live = report_of(program, "", {**sizes, **changed}).lower_bound
            parts[BETWEEN] = parts[BETWEEN] * live // max(whole, 1)
        return sum(parts.values())

    for name, size in sizes.items():
        low = program.dims[name].lo
        fits = partial(_fits, needed, there, name)
        fitting = _largest(low, size, fits) if isinstance(low, int) else None
        if fitting is not None:
            yield f"{name} of at most about {fitting}, not {size} (--dim {name}={fitting})"
    if not sizes:
        yield "a smaller batch, or shorter inputs"
    floats = [c for c in program.constants.values() if c.type.dtype.is_float]
    wide = sum(c.nbytes - c.nbytes // c.type.dtype.bytes for c in floats)
    if wide:
        then = needed({}) - wide
        enough = (
            "which fits" if then <= there else f"of which {byte_text(then - there)} are missing"
        )
        words = "weights of 8 bits (modelcc quantize --activations none)"
        yield f"{words}: {byte_text(then)} in all, {enough}"
    yield f"a device of {byte_text(needed({}))}"


def _fits(needed: Callable[[Mapping[str, int]], int], there: int, name: str, size: int) -> bool:
    return needed({name: size}) <= there


def _largest(low: int, high: int, fits: Callable[[int], bool]) -> int | None:
    """The largest number below ``high`` that ``fits``, if those below do when one does."""
    if high <= low or not fits(low):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
