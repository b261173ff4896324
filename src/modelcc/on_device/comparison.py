"""Comparison of a model's forms: built for its microcontroller, run, and their results compared."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array
from modelcc.on_device.board_run import outputs_of
from modelcc.on_device.forms import DeviceForm, flash_parts
from modelcc.targets.c.toolchain import find_compiler
from modelcc.targets.mcu.delivery.model import EmbeddedModel
from modelcc.targets.mcu.emulation.boards import SOURCES, missing_tools
from modelcc.targets.mcu.emulation.build import build, write_files
from modelcc.targets.mcu.emulation.command import run_command
from modelcc.targets.mcu.emulation.run import run
from modelcc.targets.mcu.libraries.sources import include_flags, sources_of
from modelcc.targets.mcu.timing import TIMINGS


@dataclass(frozen=True)
class FormResult:
    """A form's run: ``place`` is where it ran.  On another machine than the microcontroller its
    numbers are unknown: ``instructions``, ``cycles``, ``stack``, ``flash`` are None."""

    name: str
    place: str
    outputs: Mapping[str, Array]
    arena: int
    states: int
    stack: int | None = None
    instructions: int | None = None
    cycles: int | None = None
    flash: Mapping[str, int] = field(default_factory=dict[str, int])
    update: int | None = None

    @property
    def ram(self) -> int:
        """Bytes of memory, as far as known."""
        return self.arena + self.states + (self.stack or 0)


def run_forms(
    model: EmbeddedModel, forms: Sequence[DeviceForm], feeds: Mapping[str, Array]
) -> tuple[FormResult, ...]:
    """Each form's result in QEMU, or on this machine if QEMU does not emulate it."""
    missing = missing_tools(model.machine)
    given = {t.field: feeds[t.name].tobytes() for t in model.facts.inputs}
    return tuple(
        _run_here(model, form, given) if missing else _run_on_board(model, form, given)
        for form in forms
    )


def _run_on_board(model: EmbeddedModel, form: DeviceForm, given: Mapping[str, bytes]) -> FormResult:
    machine = model.machine
    with tempfile.TemporaryDirectory() as name:
        write_files(form.files, Path(name))
        program = build(Path(name), model.name, machine, form.optimize)
        measured, parts = run(program, given, True), flash_parts(model, program)
    counts = measured.counts
    return FormResult(
        form.name,
        "QEMU",
        outputs_of(model, measured.outputs),
        form.arena,
        _states(model),
        measured.stack,
        None if counts is None else measured.total,
        None if counts is None else round(TIMINGS[machine.name].estimate(counts.kinds)),
        parts,
        sum(parts.get(part, 0) for part in form.replaced),
    )


def _run_here(model: EmbeddedModel, form: DeviceForm, given: Mapping[str, bytes]) -> FormResult:
    compiler = find_compiler()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(form.files, folder)
        for input_, data in given.items():
            (folder / f"{input_}.in").write_bytes(data)
        sources = sorted(path.name for path in folder.glob("*.c"))
        called = model.machine.libraries
        sources += map(str, sources_of(called, ((folder / s).read_text() for s in sources)))
        flags = [f"-I{SOURCES}", *include_flags(called)]
        build_here = [*compiler.command, "-std=gnu99", form.optimize, *flags, *sources]
        run_command([*build_here, str(SOURCES / "host.c"), "-lm", "-o", "program"], folder)
        run_command([str(folder / "program")], folder)
        found = {path.stem: path.read_bytes() for path in folder.glob("*.out")}
    return FormResult(
        form.name, "this machine", outputs_of(model, found), form.arena, _states(model)
    )


def _states(model: EmbeddedModel) -> int:
    sizes = (state.type.bytes for state in model.states)
    return sum(size for size in sizes if isinstance(size, int))


def first_difference(
    got: Mapping[str, Array], wanted: Mapping[str, Array]
) -> tuple[str, int, int] | None:
    """The first output that is not bit-identical, with the numbers of differing and all elements;
    else None."""
    if got.keys() != wanted.keys():
        raise ModelError(f"outputs are {[*got]}, not {[*wanted]}", ())
    for name, right in wanted.items():
        bits = f"u{right.dtype.itemsize}"
        different = np.count_nonzero(got[name].view(bits) != np.ravel(right).view(bits))
        if different:
            return name, int(different), right.size
    return None
