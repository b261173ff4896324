"""``modelcc tune``: faster schedules for the kernels of a model, by measurement."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Unpack

import click
from rich.table import Table
from rich.text import Text

from modelcc.artifact.replacement import replace_contents
from modelcc.cli.build_config import build_config_of
from modelcc.cli.console import note, output_console, print_json, progress_of
from modelcc.cli.outputs import check_apart, check_outputs
from modelcc.cli.parameters import (
    MODEL,
    Compiling,
    check_files,
    compiling,
    feeding,
    options_of,
    sizes_of,
)
from modelcc.cli.schedules import database_option, database_path
from modelcc.cli.verbosity import verbosity_options
from modelcc.environment import Environment
from modelcc.ir.errors import ModelError
from modelcc.model_tuning.page import tuning_page
from modelcc.model_tuning.rows import kernel_rows
from modelcc.model_tuning.tuning import Standing, Tuning, TuningRequest, tune_model
from modelcc.report.formats import last_letters
from modelcc.report.progress import Bars
from modelcc.verification.verification import Request as Verified
from modelcc.verification.verification import subject_of

HELP = """Measure schedules for the kernels of MODEL (.onnx) and keep the fastest.

Each candidate runs in a process of its own beside the default, and what is taken has made the
whole model faster. Stop it whenever you like: what was measured is kept, and the next call goes
on from there. Compile with --tuned, or with --schedule and the file of -o.

\b
  modelcc tune model.onnx --budget 3m
  modelcc compile model.onnx --tuned
  modelcc tune model.onnx --threads 1 -o model.schedule.txt
  modelcc tune model.onnx --page tuned.html          what won by how much
"""
SHOWN = 12
"""Kernels in the table."""

LETTERS = 18
"""Of a node's name, the last ones, which tell it from others."""
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


@click.command("tune", help=HELP)
@click.argument("model", type=MODEL)
@click.option(
    "--budget", default="3m", show_default=True, metavar="TIME",
    help="How long to measure: 90s, 3m, 1h.",
)  # fmt: skip
@database_option
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE",
    help="Write the schedules to this file, for --schedule.",
)  # fmt: skip
@click.option(
    "--page", type=click.Path(path_type=Path), metavar="FILE.html",
    help="Write what won by how much as an HTML page.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
@compiling
@feeding
@verbosity_options
@click.pass_obj
def tune(
    environment: Environment,
    model: Path,
    budget: str,
    database: Path | None,
    output: Path | None,
    page: Path | None,
    as_json: bool,
    no_cache: bool,
    inputs: tuple[str, ...],
    seed: int,
    sizes: tuple[str, ...],
    **asked: Unpack[Compiling],
) -> None:  # fmt: skip
    """See HELP."""
    if inputs:
        raise ModelError("tune uses random inputs", (), "give --seed and --size instead of -i")
    options, seconds = options_of(environment, asked), seconds_of(budget)
    path = database_path(environment, database)
    check_files(output, page)
    check_outputs([output, page], [model, path])
    check_apart((output, page, path))
    with progress_of() as progress:
        config = build_config_of(environment, no_cache, progress)
        own = Verified(model, options, config, {}, sizes_of(sizes), seed)
        tell = partial(_tell, progress, monotonic(), seconds)
        feeds = subject_of(own).feeds
        request = TuningRequest(model, options, feeds, path, seconds, config, tell)
        tuning = tune_model(request)
    if output is not None:
        _write(output, tuning.text)
    if page is not None:
        _write(page, tuning_page(tuning, model.name, options.threads, seconds))
    if as_json:
        print_json(_summary(tuning))
        return
    if tuning.kernels:
        output_console().print(_table(tuning))
    note(_result(tuning))


def _tell(progress: Bars, start: float, budget: float, standing: Standing) -> None:
    """The best so far, as a bar of the budget that is spent."""
    default, best = 1e3 * standing.default, 1e3 * standing.best
    text = f"{default:.2f} ms, best so far {best:.2f}; {standing.kernels} kernels; seconds"
    progress.whole(text, int(monotonic() - start), int(budget))


def _result(tuning: Tuning) -> str:
    kernels, choices = len(tuning.schedules), len(tuning.above)
    if not kernels and not choices:
        return f"{1e3 * tuning.default:.3f} ms: nothing was faster, the defaults stay"
    found = [f"{kernels} schedule{'s' * (kernels != 1)}"] if kernels else []
    found += [f"{choices} choice{'s' * (choices != 1)} above kernels"] if choices else []
    times = f"{1e3 * tuning.default:.3f} ms by default, {1e3 * tuning.tuned:.3f} ms with "
    return f"{times}{' and '.join(found)}: {tuning.gain:.3f} times as fast"


def seconds_of(text: str) -> float:
    """``90s``, ``3m`` or ``1.5h`` in seconds; :class:`ModelError` if it is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if found is None:
        raise ModelError(f"{text!r} is no time", (), "write for example 90s, 3m or 1h")
    return float(found[1]) * _UNITS[found[2]]


def _write(path: Path, text: str) -> None:
    replace_contents(path, text)
    note(f"wrote {path}")


def _summary(tuning: Tuning) -> dict[str, object]:
    return {
        "machine": tuning.machine,
        "default": tuning.default,
        "tuned": tuning.tuned,
        "spent": tuning.spent,
        "above": dict(sorted(tuning.above.items())),
        "trials": [
            {"lines": dict(one.lines), "gain": one.turns.ratio, "taken": one.taken}
            for one in tuning.trials
        ],
        "kernels": [
            {
                "key": row.key,
                "nodes": list(row.nodes),
                "calls": row.calls,
                "seconds": row.seconds,
                "gain": row.gain,
                "tried": row.measured,
                "failed": row.failed,
                "default": row.default,
                "best": row.best,
                "taken": row.taken,
                "verdict": row.verdict,
            }
            for row in kernel_rows(tuning)
        ],
    }


def _table(tuning: Tuning) -> Table:
    """Kernels of which most time is saved, and then those that take most."""
    rows = kernel_rows(tuning)
    table = Table(title=f"Kernels on {tuning.machine}", title_justify="left")
    table.add_column("node", no_wrap=True, overflow="ellipsis", min_width=12)
    for name in ("calls", "ms", "tried", "gain"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("schedule", overflow="fold")
    for row in rows[:SHOWN]:
        more = f" + {len(row.nodes) - 1}" if len(row.nodes) > 1 else ""
        numbers = str(row.calls), f"{1e3 * row.seconds * row.calls:.3f}", str(row.measured)
        gain = f"{row.gain:.2f}" if row.gain > 1 else ""
        result = row.best if row.taken else row.verdict
        node = row.nodes[0] if row.nodes else row.key
        node = last_letters(node, LETTERS) + more
        table.add_row(Text(node), *numbers, gain, Text(result, "" if row.taken else "dim"))
    if len(rows) > SHOWN:
        table.caption = f"and {len(rows) - SHOWN} more; --page and --json have all"
    return table
