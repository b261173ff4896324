"""``modelcc compare``: the forms of a model on a microcontroller, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

import click
from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from modelcc.cli.build_config import build_config_of
from modelcc.cli.console import output_console, print_json, progress_of
from modelcc.cli.microcontroller import MHZ, embedded_of, milliseconds
from modelcc.cli.parameters import MODEL, Compiling, compiling, feeding, options_of
from modelcc.cli.verbosity import verbosity_options
from modelcc.environment import Environment
from modelcc.feeds.files import read_feeds
from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array
from modelcc.on_device.board_run import any_inputs, input_types
from modelcc.on_device.comparison import FormResult, first_difference, run_forms
from modelcc.on_device.forms import forms_of
from modelcc.on_device.reference import reference_outputs
from modelcc.targets.mcu.emulation.boards import missing_tools
from modelcc.verification.comparison import compare as compare_arrays

HELP = """Run the forms that MODEL may have on a microcontroller and compare them: are results the
same, bit by bit, and those of LiteRT or onnxruntime, where that is installed; instructions, cycles,
flash by part, memory, and the bytes that an update of the model has.

\b
  modelcc compare model.tflite --target cortex-m4
  modelcc compare model.tflite --target cortex-m4 --mhz 120 --json

With --library the model runs with calls of it, and without.  It runs in QEMU; where that or GCC for
the processor is missing on this machine, where only results are compared. Exit code 1 if results
differ.
"""

DIFFERS = 1


@dataclass(frozen=True)
class _SideBySide:
    """The forms, what differs between them, and what an engine says of the first."""

    results: tuple[FormResult, ...]
    differences: tuple[str, ...]
    engine: str = ""


@click.command("compare", help=HELP)
@click.argument("model", type=MODEL)
@MHZ
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@compiling
@feeding
@verbosity_options
@click.pass_obj
def compare(
    environment: Environment,
    model: Path,
    mhz: float | None,
    as_json: bool,
    no_cache: bool,
    inputs: tuple[str, ...],
    seed: int,
    sizes: tuple[str, ...],
    **asked: Unpack[Compiling],
) -> int:  # fmt: skip
    """See HELP."""
    options = options_of(environment, asked)
    if sizes:
        raise ModelError("--size has no use on microcontrollers", (), "fix dimensions by --dim")
    with progress_of() as progress:
        config = build_config_of(environment, no_cache, progress)
        embedded = embedded_of(model, options, config)
        types = input_types(embedded)
        given, _ = read_feeds(inputs, types)
        feeds = any_inputs(types, seed) | given
        feeds = {name: feeds[name] for name in types}
        forms, refused = forms_of(embedded)
        results = run_forms(embedded, forms, feeds)
        if embedded.program.external_calls:
            alone = replace(options, libraries=(), kernels=None)
            own = embedded_of(model, alone, config)
            forms, refused = forms_of(own)
            results += run_forms(own, forms, feeds)
        found = _compared(results, model, feeds)
    missing = missing_tools(embedded.machine)
    if as_json:
        head = {"model": model.name, "target": embedded.machine.name, "missing": missing}
        head["refused"] = refused
        print_json({**head, **_facts(found, mhz)})
    else:
        _show(found, f"{model.name} on {embedded.machine.name}", mhz)
        for note in (refused, f"on this machine, so results alone: {missing}" if missing else ""):
            if note:
                output_console().print(note, markup=False)
    return DIFFERS if found.differences else 0


def _compared(
    results: tuple[FormResult, ...], model: Path, feeds: Mapping[str, Array]
) -> _SideBySide:
    first, *others = results
    differences: list[str] = []
    for other in others:
        found = first_difference(other.outputs, first.outputs)
        if found:
            name, wrong, size = found
            differences.append(f"{other.name} and {first.name}: {wrong} of {size} in {name!r}")
    engine, peer = reference_outputs(model, feeds) or ("", [])
    for (name, got), right in zip(first.outputs.items(), peer, strict=False):
        difference = compare_arrays(name, got, right.reshape(-1))
        if not difference.agrees:
            differences.append(f"{first.name} and {engine}: {difference}")
    return _SideBySide(results, tuple(differences), engine)


_Row = tuple[str, Sequence[int | float | None]]


def _rows(results: Sequence[FormResult], mhz: float | None) -> list[_Row]:
    rows: list[_Row] = [
        ("instructions", [one.instructions for one in results]),
        ("cycles, about", [one.cycles for one in results]),
    ]
    if mhz is not None:
        times = [None if r.cycles is None else milliseconds(r.cycles, mhz) for r in results]
        rows.append((f"ms at {mhz:g} MHz", times))
    parts = dict.fromkeys(part for one in results for part in one.flash)
    whole = [sum(one.flash.values()) if one.flash else None for one in results]
    rows.append(("flash, bytes", whole))
    rows += [(f"  {part}", [one.flash.get(part) for one in results]) for part in parts]
    rows += [
        ("RAM, bytes", [one.ram for one in results]),
        ("  arena", [one.arena for one in results]),
        ("  states", [one.states for one in results]),
        ("  stack", [one.stack for one in results]),
        ("update, bytes", [one.update for one in results]),
    ]
    return rows


def _show(found: _SideBySide, title: str, mhz: float | None) -> None:
    table = Table(title=title, title_justify="left", box=SIMPLE)
    table.add_column("")
    for one in found.results:
        table.add_column(one.name, justify="right")
    for name, numbers in _rows(found.results, mhz):
        if any(number is not None for number in numbers):
            table.add_row(Text(name), *map(_cell, numbers))
    console = output_console()
    console.print(table)
    for difference in found.differences:
        console.print(f"differs: {difference}", style="bold red", markup=False)
    if not found.differences:
        also = f", and agree with {found.engine}" if found.engine else ""
        console.print(f"all outputs are the same bit by bit{also}", markup=False)


def _cell(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number:,}" if isinstance(number, int) else f"{number:.3f}"


def _facts(found: _SideBySide, mhz: float | None) -> dict[str, object]:
    forms = [
        {
            "name": one.name, "place": one.place, "instructions": one.instructions,
            "cycles": one.cycles, "flash": dict(one.flash), "ram": one.ram, "arena": one.arena,
            "states": one.states, "stack": one.stack, "update": one.update,
            **({} if mhz is None or one.cycles is None
               else {"milliseconds": milliseconds(one.cycles, mhz)}),
        }
        for one in found.results
    ]  # fmt: skip
    return {
        "agrees": not found.differences,
        "differences": list(found.differences),
        "engine": found.engine,
        "forms": forms,
    }
