"""``python -m conformance``: the suite, two processes at a time, and a report of it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from conformance import expected
from conformance.cases import Case, collect
from conformance.check import Outcome
from conformance.report import counts, to_json, to_markdown
from conformance.workers import outcomes


@click.command()
@click.option(
    "--suite",
    type=click.Path(exists=True, path_type=Path),
    help="Folder of an unpacked onnx wheel (default: the installed package).",
)
@click.option("--only", default="", help="Regular expression that names must contain.")
@click.option("--jobs", default=2, show_default=True, help="Processes.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds for one case.")
@click.option("--target", default="native", show_default=True, help="opencl, webgpu …")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all outcomes.")
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the summary.")
@click.option("--strike", is_flag=True, help="Take what passes off the expected failures.")
def main(
    suite: Path | None,
    only: str,
    jobs: int,
    timeout: float,
    target: str,
    json_file: Path | None,
    markdown: Path | None,
    strike: bool,
) -> None:
    """Run the ONNX backend test suite through compiled code."""
    cases = [case for case in collect(suite) if re.search(only, case.name)]
    found = _run(cases, jobs, timeout, target)
    title = suite.name if suite else "the installed onnx package"
    table = expected.read()
    if strike:
        table = expected.without_passed(found, table)
        expected.write(table)
    if json_file:
        json_file.write_text(to_json(found, title), "utf-8")
    if markdown:
        markdown.write_text(to_markdown(found, title, table), "utf-8")
    wrong = expected.unexpected(found, table)
    print(*wrong, sep="\n")
    print(f"{len(found)} cases: {', '.join(f'{n} {s}' for s, n in counts(found).items())}")
    sys.exit(1 if wrong else 0)


def _run(cases: list[Case], jobs: int, timeout: float, target: str) -> list[Outcome]:
    found: list[Outcome] = []
    for outcome in outcomes(cases, jobs, timeout, target):
        found.append(outcome)
        if len(found) % 100 == 0:
            print(f"{len(found)} of {len(cases)}", file=sys.stderr)
    return sorted(found, key=lambda o: (o.kind, o.name))


main()
