"""``modelcc machine``: what schedules know of a processor, and measuring it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Group
from rich.table import Table
from rich.text import Text

from modelcc.cache.measurements import (
    Measurements,
    keep_measurements,
    measurements_path,
    usable_measurements,
)
from modelcc.cli.console import note, output_console, print_json, progress_of, right
from modelcc.cli.verbosity import verbosity_options
from modelcc.environment import CACHE, Environment
from modelcc.ir.errors import ModelError
from modelcc.report.formats import byte_text
from modelcc.runtime.machine import machine_identity
from modelcc.runtime.pool import available_cores
from modelcc.targets.base import TargetOptions
from modelcc.targets.cpu.machine import NUMBERS, CpuModel
from modelcc.targets.cpu.processors import COMMON, PROCESSORS
from modelcc.targets.native.host import processor_of
from modelcc.targets.native.measuring import Measured, measure
from modelcc.targets.native.toolchain import host_machine

HELP = """Show what schedules and costs know of this machine's processor, or of a named one: its
vectors, pipes, caches and bandwidths.

--measure measures this machine by code of modelcc's own, in some seconds: multiply-adds of each
type, bandwidth and latency of each cache and of memory, threads. What it finds is kept in the
folder of the cache, and models are compiled with it (unless with --no-measured). Measure while
nothing else runs.

\b
  modelcc machine
  modelcc machine --cpu cascadelake
  modelcc machine --measure
"""


@click.command("machine", help=HELP)
@click.option("--cpu", default="", metavar="NAME", help="Another processor, e.g. x86-64-v3.")
@click.option("--measure", "measuring", is_flag=True, help="Measure this machine, and keep it.")
@click.option(
    "--measured/--no-measured",
    default=True,
    show_default=True,
    help="Show the model with what was measured.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@verbosity_options
@click.pass_obj
def machine(
    environment: Environment, cpu: str, measuring: bool, measured: bool, as_json: bool
) -> None:  # fmt: skip
    """See HELP."""
    own = cpu in ("", "native")
    if measuring and not own:
        message = f"--measure measures this machine, not {cpu}"
        raise ModelError(message, (), "leave out one of the two")
    found: Measurements | None = None
    if measuring:
        found = _measured(environment.cache)
    elif own and measured and environment.cache is not None:
        found = usable_measurements(environment.cache)
    numbers = tuple(found.numbers) if found else ()
    named, model = processor_of(TargetOptions(cpu=cpu, machine=numbers), host_machine())
    name = named.tuning or named.cpu or named.architecture
    if as_json:
        print_json(_figures(name, model, found))
        return
    output_console().print(Group(_table(name, model, found), _levels(model, found)))


def _measured(folder: Path | None) -> Measurements:
    """What is measured of this machine now, kept in ``folder``."""
    identity = machine_identity()
    if folder is None:
        raise ModelError("there is no cache to keep it in", (), f"unset {CACHE}, or name a folder")
    if not identity:
        raise ModelError("Linux does not tell which processor this is", (), "use --cpu NAME")
    this, model = processor_of(TargetOptions(), host_machine())
    with progress_of() as progress:
        facts = measure(this, model, available_cores(), progress)
    numbers = facts.numbers(model, this.cpu in PROCESSORS)
    found = Measurements(identity, this.cpu, numbers, asdict(facts))
    keep_measurements(found, folder)
    note(f"wrote {measurements_path(folder, identity)}")
    return found


def _figures(name: str, model: CpuModel, found: Measurements | None) -> dict[str, object]:
    numbers = {name: value for name, value in asdict(model).items() if name in (*NUMBERS, "fused")}
    facts = found.facts if found else None
    return {"processor": name, "known": _known(name), "model": numbers, "measured": facts}


def _known(name: str) -> bool:
    return name in PROCESSORS or name in COMMON


def _table(name: str, model: CpuModel, found: Measurements | None) -> Table:
    columns = ("what", *right("value"))
    table = Table(*columns, title=Text(name), title_justify="left", show_header=False)
    for row in (*_arithmetic(name, model), *_speeds(found)):
        table.add_row(*row)
    return table


def _arithmetic(name: str, model: CpuModel) -> Iterator[tuple[str, str]]:
    yield "in the table of processors", "yes" if _known(name) else "no: as common ones"
    yield "vectors", f"{model.vector_registers} of {model.vector_bits} bits"
    yield "loads per cycle", str(model.loads)
    what = "multiply-adds" if model.fused else "multiplications or additions"
    yield f"{what} per cycle", f"{model.fmas}, each in {model.fma_latency}"
    ahead = byte_text(model.ahead_bytes) + " ahead" if model.ahead_bytes else "by the core alone"
    yield "what is read once is fetched", ahead


def _speeds(found: Measurements | None) -> Iterator[tuple[str, str]]:
    """What was measured and belongs to no level of memory."""
    if found is None:
        return
    facts = Measured(**found.facts)
    yield "cycle, measured", f"{facts.cycle * 1e9:.3f} ns"
    for kind, speed in facts.multiply_adds.items():
        rate = f"{speed / 1e9:.1f} G/s, {speed * facts.cycle:.1f} per cycle"
        yield f"multiply-adds of {kind}, measured", rate
    yield "their latency, measured", f"{facts.latency:.1f} cycles"
    if facts.fork_join is not None:
        yield f"loop on {facts.threads} threads, measured", f"{facts.fork_join * 1e6:.2f} µs"


def _levels(model: CpuModel, found: Measurements | None) -> Table:
    facts = Measured(**found.facts) if found else None
    names = ("size", "shared by", "bytes per cycle")
    measured = ("GB/s, measured", "latency, measured") if facts else ()
    table = Table("level", *right(*names, *measured))
    for level in model.levels:
        size = byte_text(level.bytes) if level.bytes else ""
        row = [level.name, size, str(level.cores), f"{level.bandwidth:g}"]
        if facts:
            speed = facts.bandwidth.get(level.name, 0.0)
            row += [f"{speed / 1e9:.1f}", f"{facts.access.get(level.name, 0.0) * 1e9:.1f} ns"]
        table.add_row(*row)
    return table
