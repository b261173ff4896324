"""Chart of a comparison: `python -m benchmarks.plot RESULT.json --out chart.svg`."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import click
import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from benchmarks.peers import LOWERED, OURS
from benchmarks.results import Comparison, from_json
from benchmarks.rows import Row
from benchmarks.summary import Standing, means, standings

MARKERS = "osD^vP*X"
TICKS = (0.25, 0.5, 1, 1.5, 2, 3, 5, 10, 20)


def draw(found: Comparison, out: Path) -> None:
    """One panel per thread count: each engine's time relative to modelcc's, by model."""
    rows = [row for row in found.rows if row.rounds]
    models = list(dict.fromkeys(row.model for row in rows))
    engines = [name for name in dict.fromkeys(row.peer for row in rows) if name != OURS]
    size = (1.5 + 5.0 * len(found.peaks), 1.8 + 0.3 * len(models))
    figure, panels = pyplot.subplots(
        1, len(found.peaks), figsize=size, squeeze=False, sharey=True, layout="constrained"
    )
    for peak, panel in zip(found.peaks, panels[0], strict=True):
        chosen = [row for row in rows if row.threads == peak.threads]
        for place, engine in enumerate(engines):
            _points(panel, chosen, models, engine, MARKERS[place % len(MARKERS)])
        _finish(panel, models)
        panel.set_title(_title(peak.threads, standings(chosen)), fontsize=9)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(engines), fontsize=8)
    figure.suptitle(f"{found.machine}, {found.date}", fontsize=8)
    figure.savefig(out, dpi=120)
    pyplot.close(figure)


def _title(threads: int, found: Sequence[Standing]) -> str:
    key = (threads, 1)
    mean, strict = means(found).get(key), means(found, strict=True).get(key)
    if mean is None:
        return f"{threads} core(s)"
    also = "" if strict is None else f", strict {strict:.2f} ×"
    of = "faster than the best f32 engine (geometric mean)"
    return f"{threads} core(s), {mean:.2f} ×{also} {of}"


def _points(panel: Axes, rows: list[Row], models: list[str], engine: str, marker: str) -> None:
    """The marker is hollow if the engine lowers precision."""
    ours = {row.model: statistics.median(row.rounds) for row in rows if row.peer == OURS}
    theirs = {row.model: statistics.median(row.rounds) for row in rows if row.peer == engine}
    both = [model for model in models if model in ours and model in theirs]
    panel.plot(
        [theirs[model] / ours[model] for model in both],
        [models.index(model) for model in both],
        linestyle="none",
        marker=marker,
        fillstyle="none" if engine in LOWERED else "full",
        label=f"{engine} (may lower precision)" if engine in LOWERED else engine,
    )


def _finish(panel: Axes, models: list[str]) -> None:
    panel.axvline(1.0, color="black", linewidth=0.8)
    panel.set_xscale("log")
    low, high = panel.get_xlim()
    panel.set_xticks([tick for tick in TICKS if low <= tick <= high], minor=False)
    panel.set_xticks([], minor=True)
    panel.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g} ×"))
    panel.grid(axis="both", linewidth=0.3)
    panel.tick_params(labelsize=8)
    panel.set_yticks(range(len(models)), models)
    panel.set_ylim(len(models) - 0.5, -0.5)
    panel.set_xlabel("time by that of modelcc (right of the line: modelcc is faster)", fontsize=8)


@click.command()
@click.argument("result", type=click.Path(path_type=Path, exists=True))
@click.option("--out", type=click.Path(path_type=Path), help="PNG, SVG or PDF.")
def main(result: Path, out: Path | None) -> None:
    """Draw the RESULT.json of a comparison; next to it, as PNG, unless --out says otherwise."""
    target = out or result.with_suffix(".png")
    draw(from_json(json.loads(result.read_text())), target)
    click.echo(f"Wrote {target}")


if __name__ == "__main__":
    main()
