"""``modelcc check``: whether a model fits a microcontroller, before anything is flashed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Unpack

import click

from modelcc.cli.build_config import build_config_of
from modelcc.cli.console import output_console, print_json, print_pairs, progress_of
from modelcc.cli.device_check import check_device
from modelcc.cli.microcontroller import MHZ, embedded_of, layer_facts, layer_table
from modelcc.cli.parameters import MODEL, Compiling, check_files, compiling, options_of
from modelcc.cli.verbosity import verbosity_options
from modelcc.driver import noting_savings, target_of
from modelcc.environment import Environment
from modelcc.fit import NO_LIMITS, RAM, Fit, MemoryLimits, Shortage, fit, with_change
from modelcc.ir.errors import ModelError
from modelcc.on_device.layers import layers_of
from modelcc.options import Options
from modelcc.report.memory_savings import memory_savings
from modelcc.report.savings import ChannelSaving, savings_rows
from modelcc.report.tables import saving_table
from modelcc.sizes import bytes_of
from modelcc.subsets.names import SUBSET_NAMES
from modelcc.targets.base import BuildConfig
from modelcc.targets.gpu.device_target import DeviceTarget
from modelcc.targets.mcu.cost import step_costs
from modelcc.targets.mcu.machine import McuModel

HELP = """Tell what MODEL takes of a microcontroller's memories, and whether that is there: the
exact arena, flash by part, and the stack, as GCC for the processor says if it is installed. And
about how long each layer takes there.

Of a GPU or another device (opencl, cuda, amdgpu, webgpu) it tells what runs there, what on the
processor and why, and whether it fits into the device's memory.

\b
  modelcc check model.onnx --target cortex-m4 --ram 64K --flash 256K
  modelcc check model.onnx --target cortex-m4 --mhz 120
  modelcc check model.onnx --target cortex-m0plus --json
  modelcc check model.onnx --target cuda:sm_90a --ram 24G
  modelcc check model.tflite --target ethos-u55 --rewrite fits.tflite

For coral-edgetpu, ethos-u55, ethos-u65, tflm and cmsis-nn, which are tables of operators and
limits, it tells what of a TFLite file they take, why not, and what would help; --rewrite does
that where results stay the same.

Exit code 1 if it does not fit, or not all is taken; then it says what takes the memory and
what would help.
"""

DOES_NOT_FIT = 1


@click.command("check", help=HELP)
@click.argument("model", type=MODEL)
@click.option("--ram", metavar="SIZE", help="Memory that there is: 64K, 1M, 24G, or bytes.")
@click.option("--flash", metavar="SIZE", help="Flash that there is.")
@click.option(
    "--rewrite",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="OUT.tflite",
    help="Write the model with operators that the table takes.",
)
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
    rewrite: Path | None,
    mhz: float | None,
    as_json: bool,
    no_cache: bool,
    **asked: Unpack[Compiling],
) -> int:
    """See HELP."""
    if asked["target"] in SUBSET_NAMES:
        check_files(rewrite)
        return _subset_checker()(model, asked["target"], rewrite, as_json)
    if rewrite is not None:
        hint = f"--target NAME, one of {', '.join(SUBSET_NAMES)}"
        raise ModelError("--rewrite is for targets that are tables of operators", (), hint)
    options = options_of(environment, asked)
    budget = MemoryLimits(*(None if text is None else bytes_of(text) for text in (ram, flash)))
    with progress_of() as progress:
        config = build_config_of(environment, no_cache, progress)
        target = target_of(options, config, model)
        if isinstance(target, DeviceTarget):
            return check_device(model, target, options, config, budget.ram, as_json)
        savings: list[ChannelSaving] = []
        embedded = embedded_of(model, options, config, SUBSET_NAMES, noting_savings(savings))
        found = fit(embedded, budget, options.optimize)
        if budget.ram is not None and any(s.memory == RAM for s in found.shortages):
            found = _streamed(found, model, replace(options, ram=budget.ram), config)
    machine = embedded.machine
    layers = layers_of(embedded.program, machine, step_costs(embedded.program, machine))
    shared = memory_savings(embedded.program, {})
    if as_json:
        rows = {
            "layers": layer_facts(layers, mhz),
            "savings": [asdict(row) for row in savings],
            "shared": [asdict(row) for row in shared],
        }
        print_json({**_facts(found, model, machine), **rows})
    else:
        less = [("left out", row) for row in savings_rows(tuple(savings))]
        print_pairs([*_rows(found, model, machine), *less])
        if shared:
            output_console().print(saving_table(shared))
        output_console().print(layer_table(layers, mhz, "layers, estimated"))
    return DOES_NOT_FIT if found.shortages else 0


def _subset_checker() -> Callable[[Path, str, Path | None, bool], int]:
    """What checks files of TFLite, which needs a package for their schema."""
    try:
        return import_module("modelcc.cli.subset_check").check_subset
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("modelcc"):
            raise
        message = f"models of TFLite need the package {error.name}"
        raise ModelError(message, (), "pip install modelcc[tflite]") from error


def _streamed(found: Fit, model: Path, options: Options, config: BuildConfig) -> Fit:
    """``found`` with what streaming rows would do about the memory."""
    try:
        embedded = embedded_of(model, options, config, SUBSET_NAMES)
    except ModelError as error:
        return with_change(found, None, f"streaming rows is not enough: {error}")
    taken = fit(embedded, NO_LIMITS, options.optimize).footprint
    words = f"compile it with --ram {options.ram}: rows are streamed through layers, which takes"
    return with_change(found, taken.ram, f"{words} {taken.ram} bytes, and {taken.flash} of flash")


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
