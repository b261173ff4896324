"""``modelcc schedules``: what tuning found, shown, taken elsewhere, brought from there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.table import Table
from rich.text import Text

from modelcc.cli.console import note, output_console, print_json
from modelcc.cli.parameters import ModelPath
from modelcc.cli.verbosity import verbosity_options
from modelcc.environment import CACHE, Environment
from modelcc.ir.errors import ModelError
from modelcc.tune.database import FILE, Database, Measurement, State
from modelcc.tune.sqlite_file import is_there

HELP = """Show the schedules that tuning chose, take them to other machines of the same kind, or
forget them. They are kept in one SQLite file, which compilation reads.

\b
  modelcc schedules list
  modelcc schedules export schedules.sqlite
  modelcc schedules import schedules.sqlite
"""

_SHOWN = 60
"""Letters of a schedule in the table; --json has all."""

_PATH = ModelPath(path_type=Path)

Command = TypeVar("Command", bound=Callable[..., object])


def database_option(command: Command) -> Command:
    """Adds the option ``--database``, a path or None, for :func:`database_path`."""
    return click.option(
        "--database", type=_PATH, metavar="FILE",
        help=f"Where the schedules are.  [default: {FILE} in the folder of MODELCC_CACHE_DIR]",
    )(command)  # fmt: skip


def database_path(environment: Environment, given: Path | None) -> Path:
    """The file ``given``, else the one in the folder of caches; :class:`ModelError` if none is."""
    if given is not None:
        return given
    if environment.cache is None:
        hint = f"{CACHE} is empty; unset it, or give --database FILE"
        raise ModelError("there is no folder that schedules are kept in", (), hint)
    return environment.cache / FILE


@click.group("schedules", help=HELP)
@verbosity_options
def schedules() -> None:
    """See HELP."""


@schedules.command("list")
@click.option(
    "--best",
    type=click.FloatRange(0),
    metavar="GAIN",
    help="Show instead the fastest schedule measured of each workload, where it was at least GAIN "
    "times as fast as the default: 1.1 tells where defaults could be better.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@database_option
@verbosity_options
@click.pass_obj
def list_command(
    environment: Environment, database: Path | None, as_json: bool, best: float | None
) -> None:
    """Show the schedules that compilation uses. The gain says how many times as fast as the
    default one each was measured to be."""
    path = database_path(environment, _existing(database))
    with Database.open(path, write=False) as opened:
        rows = _chosen(opened) if best is None else _best(opened, best)
        counts = opened.counts()
    if as_json:
        tried = {state.value: count for state, count in counts.items()}
        print_json({"database": str(path), "schedules": rows, "candidates": tried})
        return
    output_console().print(str(path), soft_wrap=True, markup=False)
    if rows:
        output_console().print(_table(rows))
    tried = ", ".join(f"{count} {state}" for state, count in counts.items())
    note(f"{len(rows)} schedules; candidates of all machines: {tried}")


@schedules.command("export")
@click.argument("file", type=_PATH)
@database_option
@verbosity_options
@click.pass_obj
def export_command(environment: Environment, database: Path | None, file: Path) -> None:
    """Write all that is known to FILE. `modelcc schedules import` takes it in elsewhere."""
    with Database.open(database_path(environment, _existing(database)), write=False) as opened:
        opened.export(file)


@schedules.command("import")
@click.argument("file", type=_PATH)
@database_option
@verbosity_options
@click.pass_obj
def import_command(environment: Environment, database: Path | None, file: Path) -> None:
    """Take what FILE knows and is not known here. What was measured or chosen here stays."""
    if not is_there(file):
        raise ModelError("there is no such file", (str(file),), "name an exported one")
    with Database.open(database_path(environment, database)) as opened:
        note(f"{opened.merge(file)} rows taken")


@schedules.command("clear")
@database_option
@verbosity_options
@click.pass_obj
def clear_command(environment: Environment, database: Path | None) -> None:
    """Forget everything that was measured and chosen, for all machines."""
    path = database_path(environment, _existing(database))
    if not is_there(path):
        note("there is nothing to forget")
        return
    with Database.open(path) as opened:
        note(f"{opened.clear()} rows removed")


def _existing(given: Path | None) -> Path | None:
    """A file that the user names is meant to be there, for what only looks into it."""
    if given is not None and not is_there(given):
        raise ModelError("there is no such file", (str(given),), "give the name of a database")
    return given


def _chosen(database: Database) -> Sequence[Mapping[str, Any]]:
    return [
        _facts(machine, workload, schedule, database.measurements(machine, workload).get(schedule))
        for machine in database.machines()
        for workload, schedule in database.chosen(machine).items()
    ]


def _best(database: Database, gain: float) -> Sequence[Mapping[str, Any]]:
    """The fastest schedule of each workload that has one of that gain, the greatest gain first."""
    found: dict[tuple[str, str], tuple[float, Measurement]] = {}
    for machine, one in database.contents()[0]:
        place, known = (machine, one.workload), one.gain or 0.0
        if known >= max(gain, found[place][0] if place in found else 0.0):
            found[place] = (known, one)
    rows = sorted(found.items(), key=lambda row: (-row[1][0], row[0]))
    return [_facts(m, w, one.schedule, one) for (m, w), (_, one) in rows]


def _facts(
    machine: str, workload: str, schedule: str, measured: Measurement | None
) -> Mapping[str, Any]:
    timed = measured if measured is not None and measured.state is State.measured else None
    return {
        "workload": workload,
        "schedule": schedule,
        "gain": None if timed is None else timed.gain,
        "seconds": None if timed is None else timed.seconds,
        "default_seconds": None if timed is None else timed.default,
        "machine": machine,
    }


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table()
    table.add_column("workload", no_wrap=True, min_width=16)
    table.add_column("schedule", overflow="fold")
    table.add_column("gain", justify="right", no_wrap=True, min_width=5)
    table.add_column("machine", overflow="fold")
    for row in rows:
        gain = "" if row["gain"] is None else f"{row['gain']:.2f}"
        texts = (row["workload"], _shortened(row["schedule"]), gain, row["machine"])
        table.add_row(*map(Text, texts))
    return table


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
