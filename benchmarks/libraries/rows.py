"""Figures of one operator at one size, and a table of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import geometric_mean
from typing import TypeAlias

import click
import onnx.parser

import modelcc
from benchmarks.irregular.case import Feeds
from benchmarks.irregular.turns import turns_on

Run: TypeAlias = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """Seconds of modelcc, and the others' time relative to it."""

    family: str
    size: str
    seconds: float
    ratios: tuple[float, ...]


def compiled(graph: str, opset: int = 18) -> modelcc.Model:
    """A graph in ONNX's text form, compiled for one thread."""
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g {graph}'
    return modelcc.compile(onnx.parser.parse_model(text), threads=1, cache=None)


def row(family: str, size: str, net: modelcc.Model, feeds: Feeds, *others: Run) -> Row:
    """``net`` and ``others`` interleaved, in CPU time."""
    own, *rest = turns_on(1).times([partial(net.run, feeds), *others])
    return Row(family, size, own, tuple(seconds / own for seconds in rest))


def show(rows: Iterable[Row], others: tuple[str, ...]) -> None:
    """Prints a line for each as it is measured, then the minimum and the geometric mean for each
    other."""
    head = "".join(f"{name:>22}" for name in others)
    click.echo(f"{'':34}{'us':>12}{head}")
    found = list(_shown(rows))
    for number, name in enumerate(others):
        ratios = [(r.ratios[number], f"{r.family} {r.size}") for r in found]
        least, where = min(ratios)
        mean = geometric_mean([ratio for ratio, _ in ratios])
        below = sum(ratio < 1 for ratio, _ in ratios)
        click.echo(
            f"{name}: geometric mean {mean:.2f}, least {least:.2f} ({where}), "
            f"{below} of {len(ratios)} below 1"
        )


def _shown(rows: Iterable[Row]) -> Iterator[Row]:
    for one in rows:
        ratios = "".join(f"{ratio:22.2f}" for ratio in one.ratios)
        click.echo(f"{one.family:24}{one.size:>10}{1e6 * one.seconds:12.1f}{ratios}")
        yield one
