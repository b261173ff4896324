"""``modelcc tune``: faster schedules for the kernels of a model, by measurement."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from modelcc.artifact.replacement import replace_file
from modelcc.cli.console import note, output_console, print_json, progress_of
from modelcc.cli.outputs import check_outputs
from modelcc.cli.parameters import MODEL, check_writable, compiling, feeding, options_of, sizes_of
from modelcc.cli.schedules import database_option, database_path
from modelcc.cli.verbosity import verbosity_options
from modelcc.cli.workplace import workplace_of
from modelcc.environment import Environment
from modelcc.ir.op import ModelError
from modelcc.schedule.text import print_schedule
from modelcc.tune.search import Found
from modelcc.tuning import Request, Tuning, tune_model
from modelcc.verification import Request as Verified
from modelcc.verification import subject_of

HELP = """Measure schedules for the kernels of MODEL (.onnx) and keep the fastest.

Each candidate runs in a process of its own beside the default, and what is taken has made the
whole model faster. Stop it whenever you like: what was measured is kept, and the next call goes
on from there. Compile with --tuned, or with --schedule and the file of -o.

\b
  modelcc tune model.onnx --budget 3m
  modelcc compile model.onnx --tuned
  modelcc tune model.onnx --threads 1 -o model.schedule.txt
"""
SHOWN = 12
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
    as_json: bool,
    no_cache: bool,
    inputs: tuple[str, ...],
    seed: int,
    sizes: tuple[str, ...],
    **asked: Any,
) -> None:  # fmt: skip
    """See HELP."""
    if inputs:
        raise ModelError("tune uses random inputs", (), "give --seed and --size instead of -i")
    options, seconds = options_of(environment, **asked), seconds_of(budget)
    check_writable(output)
    check_outputs([output], [model])
    with progress_of() as progress:
        workplace = workplace_of(environment, no_cache, progress)
        path = database_path(environment, database)
        own = Verified(model, options, workplace, {}, sizes_of(sizes), seed)
        subject = subject_of(own)
        best: dict[str, float] = {}

        def tell(found: Found) -> None:
            best[found.task.key] = found.saved
            saved = 1e3 * sum(best.values())
            workplace.report(f"measuring kernels ({saved:.2f} ms of a run saved)", len(best), 0)

        request = Request(model, options, subject.feeds, path, seconds, workplace, tell)
        tuning = tune_model(request)
    if output is not None:
        replace_file(output, lambda temporary: _write(temporary, tuning.text))
        note(f"wrote {output}")
    if as_json:
        print_json(_summary(tuning))
        return
    output_console().print(_table(tuning))
    count = len(tuning.above)
    above = f" and {count} choice{'s' * (count != 1)} above kernels" if count else ""
    note(
        f"{1e3 * tuning.default:.3f} ms by default, {1e3 * tuning.tuned:.3f} ms with "
        f"{len(tuning.schedules)} schedules{above}: {tuning.gain:.3f} times as fast"
    )


def seconds_of(text: str) -> float:
    """``90s``, ``3m`` or ``1.5h`` in seconds; :class:`ModelError` if it is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if found is None:
        raise ModelError(f"{text!r} is no time", (), "write for example 90s, 3m or 1h")
    return float(found[1]) * _UNITS[found[2]]


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _summary(tuning: Tuning) -> dict[str, Any]:
    return {
        "machine": tuning.machine,
        "default": tuning.default,
        "tuned": tuning.tuned,
        "above": dict(sorted(tuning.above.items())),
        "kernels": [
            {
                "key": one.task.key,
                "nodes": list(one.task.nodes),
                "calls": one.task.calls,
                "seconds": one.seconds,
                "gain": one.gain,
                "tried": one.tried,
                "failed": one.failed,
                "default": print_schedule(one.task.default),
                "best": print_schedule(one.best),
                "taken": one.task.key in tuning.schedules,
            }
            for one in tuning.kernels
        ],
    }


def _table(tuning: Tuning) -> Table:
    table = Table(title=f"Kernels that take most time on {tuning.machine}", title_justify="left")
    for name in ("node", "calls", "ms", "tried", "gain", "schedule"):
        table.add_column(name, justify="left" if name in ("node", "schedule") else "right")
    for one in tuning.kernels[:SHOWN]:
        taken = one.task.key in tuning.schedules
        nodes = one.task.nodes[0] if one.task.nodes else ""
        more = f" and {len(one.task.nodes) - 1} more" if len(one.task.nodes) > 1 else ""
        table.add_row(
            f"{nodes}{more}",
            str(one.task.calls),
            f"{1e3 * one.seconds * one.task.calls:.3f}",
            str(one.tried),
            f"{one.gain:.2f}" if taken else "",
            print_schedule(one.best) if taken else "default",
        )
    return table
