"""Bar charts of a comparison: `python -m benchmarks.plot RESULT.json --out chart.svg`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

WIDTH = 0.8
"""Share of a model's slot that its bars fill."""


def draw(found: dict[str, Any], out: Path) -> None:
    """One panel per thread count: how many times faster than the reference each engine is."""
    threads = [peak["threads"] for peak in found["peaks"]]
    rows = [row for row in found["rows"] if row["speedup"] is not None]
    models = list(dict.fromkeys(row["model"] for row in rows))
    engines = [name for name in dict.fromkeys(row["peer"] for row in rows)]
    size = (max(6.0, 0.9 * len(models)), 3.5 * len(threads))
    figure, panels = pyplot.subplots(len(threads), 1, figsize=size, squeeze=False)
    for count, panel in zip(threads, panels[:, 0], strict=True):
        for place, engine in enumerate(engines):
            chosen = [r for r in rows if r["peer"] == engine and r["threads"] == count]
            offset = WIDTH * ((place + 0.5) / len(engines) - 0.5)
            positions = [models.index(row["model"]) + offset for row in chosen]
            heights = [row["speedup"] for row in chosen]
            panel.bar(positions, heights, WIDTH / len(engines), label=engine)
        panel.axhline(1.0, color="black", linewidth=0.8)
        panel.set_xticks(range(len(models)), models, rotation=30, ha="right", fontsize=8)
        panel.set_ylabel(f"× faster than {found['reference']}")
        panel.set_title(f"{count} thread(s)", fontsize=10)
    panels[0, 0].legend(fontsize=8, ncols=len(engines))
    figure.suptitle(f"{found['machine']}, {found['date']}", fontsize=8)
    figure.tight_layout()
    figure.savefig(out)


@click.command()
@click.argument("result", type=click.Path(path_type=Path, exists=True))
@click.option("--out", type=click.Path(path_type=Path), help="PNG, SVG or PDF.")
def main(result: Path, out: Path | None) -> None:
    """Draw the RESULT.json of a comparison; next to it, as SVG, unless --out says otherwise."""
    target = out or result.with_suffix(".svg")
    draw(json.loads(result.read_text()), target)
    click.echo(f"Wrote {target}")


if __name__ == "__main__":
    main()
