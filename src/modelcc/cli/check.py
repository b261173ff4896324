"""``modelcc check``: whether a model fits a microcontroller, before anything is flashed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Unpack

import click

from modelcc.cli.build_config import build_config_of
from modelcc.cli.console import output_console, print_json, print_pairs, progress_of
from modelcc.cli.microcontroller import MHZ, embedded_of, layer_facts, layer_table
from modelcc.cli.parameters import MODEL, Compiling, compiling, options_of
from modelcc.cli.verbosity import verbosity_options
from modelcc.environment import Environment
from modelcc.fit import Fit, MemoryLimits, Shortage, fit
from modelcc.on_device.layers import layers_of
from modelcc.sizes import bytes_of
from modelcc.targets.mcu.cost import step_costs
from modelcc.targets.mcu.machine import McuModel

HELP = """Tell what MODEL takes of a microcontroller's memories, and whether that is there: the
exact arena, flash by part, and the stack, as GCC for the processor says if it is installed. And
about how long each layer takes there.

\b
  modelcc check model.onnx --target cortex-m4 --ram 64K --flash 256K
  modelcc check model.onnx --target cortex-m4 --mhz 120
  modelcc check model.onnx --target cortex-m0plus --json

Exit code 1 if it does not fit; then it says what takes the memory and what would help.
"""

DOES_NOT_FIT = 1


@click.command("check", help=HELP)
@click.argument("model", type=MODEL)
@click.option("--ram", metavar="SIZE", help="Memory that there is: 64K, 1M, or bytes.")
@click.option("--flash", metavar="SIZE", help="Flash that there is.")
@MHZ
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@compiling
@verbosity_options
@click.pass_obj
def check(
    environment: Environment,
    model: Path,
    ram: str | None,
    flash: str | None,
    mhz: float | None,
    as_json: bool,
    no_cache: bool,
    **asked: Unpack[Compiling],
) -> int:
    """See HELP."""
    options = options_of(environment, asked)
    budget = MemoryLimits(*(None if text is None else bytes_of(text) for text in (ram, flash)))
    with progress_of() as progress:
        config = build_config_of(environment, no_cache, progress)
        embedded = embedded_of(model, options, config)
        found = fit(embedded, budget, options.optimize)
    machine = embedded.machine
    layers = layers_of(embedded.program, machine, step_costs(embedded.program, machine))
    if as_json:
        print_json({**_facts(found, model, machine), "layers": layer_facts(layers, mhz)})
    else:
        print_pairs(list(_rows(found, model, machine)))
        output_console().print(layer_table(layers, mhz, "layers, estimated"))
    return DOES_NOT_FIT if found.shortages else 0


def _facts(found: Fit, model: Path, machine: McuModel) -> dict[str, object]:
    taken = found.footprint
    return {
        "model": model.name,
        "target": machine.name,
        "fits": not found.shortages,
        "ram": taken.ram,
        "flash": taken.flash,
        "budget": asdict(found.budget),
        "parts": asdict(taken),
        "peak": found.peak,
        "shortages": [asdict(shortage) for shortage in found.shortages],
    }


def _rows(found: Fit, model: Path, machine: McuModel) -> Iterator[tuple[str, str]]:
    taken, budget = found.footprint, found.budget
    yield "model", f"{model.name} on {machine.name} ({machine.words})"
    whole = "" if taken.stack is not None else ", without the stack"
    yield "RAM", _compared(taken.ram, budget.ram) + whole
    yield "  arena", f"{taken.arena} bytes, inputs and outputs included"
    if taken.states:
        yield "  states", f"{taken.states} bytes"
    beside = f"; {', '.join(taken.beside)} may take more" if taken.beside else ""
    yield "  stack", "not known" if taken.stack is None else f"{taken.stack} bytes{beside}"
    yield "flash", _compared(taken.flash, budget.flash)
    yield "  weights", f"{taken.weights} bytes"
    yield "  tables", f"{taken.tables} bytes"
    yield "  code", f"{taken.code} bytes{'' if taken.compiler else ', an estimate'}"
    if taken.compiler:
        yield "  libraries", f"{taken.library} bytes"
    yield "built by", taken.compiler or _unbuilt(machine.compiler)
    yield "peak", found.peak
    for shortage in found.shortages:
        yield from _short(shortage)


def _unbuilt(prefix: str) -> str:
    if not prefix:
        return "nothing: name a processor to have code and stack measured"
    return f"nothing: install {prefix}gcc to have code and stack measured"


def _compared(taken: int, there: int | None) -> str:
    if there is None:
        return f"{taken} bytes"
    if taken <= there:
        return f"{taken} of {there} bytes: fits"
    return f"{taken} of {there} bytes: {taken - there} too many"


def _short(shortage: Shortage) -> Iterator[tuple[str, str]]:
    yield f"{shortage.memory} lacks", f"{shortage.excess} bytes; the least is {shortage.least}"
    for reason in shortage.reasons:
        yield "  because", reason
    for change in shortage.changes:
        yield "  what helps", change
