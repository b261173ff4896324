"""A page of the bars and measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from benchmarks.gpu.results import Results, Row

COPY = "copy"
"""The row of the bandwidth of a large copy, in GB/s."""

LEAST_MEAN, LEAST, PEER, TERA, BANDWIDTH = 1.2, 0.9, 0.85, 600.0, 0.85


@dataclass(frozen=True)
class Bar:
    """A target and its measurement, if any; ``row`` is its kernel, if it is of one."""

    text: str
    wanted: float
    measured: float | None
    row: str = ""

    def line(self) -> str:
        """A row of the table."""
        if self.measured is None:
            return f"| {self.text} | {self.wanted:g} | | | open |"
        ratio = self.measured / self.wanted
        met = "met" if ratio >= 1 else "**not met**"
        return f"| {self.text} | {self.wanted:g} | {self.measured:.3g} | {ratio:.2f} | {met} |"


def bars(results: Results) -> Iterator[Bar]:
    """Bars of the models, then of the kernels."""
    rows = results.rows
    ratios = [row.ratio for row in results.of("model") if row.ratio is not None]
    mean, least = (geometric_mean(ratios), min(ratios)) if ratios else (None, None)
    count = f"{len(ratios)} of {len(results.of('model'))} models"
    yield Bar(f"{count}: best other / modelcc, geometric mean", LEAST_MEAN, mean)
    yield Bar(f"{count}: best other / modelcc, least", LEAST, least)
    name = "product 4096x4096x4096 bf16"
    product = rows.get(name)
    part, rate = _beside(product, ("cublas",)), product and product.notes.get("TFLOP/s")
    yield Bar("product 4096³ bf16: part of cuBLAS's rate", PEER, part, name)
    yield Bar("product 4096³ bf16: TFLOP/s", TERA, rate, name)
    for rows_of in (4096, 16384):
        for causal in ("", " causal"):
            name = f"attention {rows_of}x{rows_of}x128 bf16{causal}"
            beside = _beside(rows.get(name), ("fa3", "cudnn", "flash"))
            text = f"attention {rows_of}, 16 heads of 128{causal}: part of the best library's rate"
            yield Bar(text, LEAST, beside, name)
    copy = rows[COPY].notes.get("GB/s") if COPY in rows else None
    for row in results.of("kernel"):
        if row.name.startswith(("decode 1x16384", "softmax 16384", "layer norm 16384")):
            rate = row.notes.get("GB/s")
            part = None if copy is None or rate is None else rate / copy
            yield Bar(f"{row.name}: part of a copy's bandwidth", BANDWIDTH, part, row.name)


def missing_most(results: Results) -> Sequence[str]:
    """Kernels that miss a bar, or are slower than others, worst first."""
    found = {
        bar.row: bar.measured / bar.wanted
        for bar in bars(results)
        if bar.row and bar.measured is not None
    }
    others = {row.name: row.ratio for row in results.of("kernel") if row.ratio is not None}
    parts = others | found
    return sorted((name for name in parts if parts[name] < 1), key=parts.__getitem__)


def _beside(row: Row | None, engines: Sequence[str]) -> float | None:
    others = [row.seconds[name] for name in engines if name in row.seconds] if row else []
    return min(others) / row.seconds["modelcc"] if row and others else None


def page(results: Results, machine: str, missing: Mapping[str, str]) -> str:
    """Markdown."""
    head = "| bar | wanted | measured | ratio | |\n|---|---|---|---|---|"
    table = "\n".join((head, *(bar.line() for bar in bars(results))))
    lacking = "\n".join(f"- {name}: {why}" for name, why in missing.items()) or "- none"
    faults = [f"- {row.name}: {row.fault}" for row in results.rows.values() if row.fault]
    parts = [f"# modelcc on {machine}", table, "Engines that are missing:\n\n" + lacking]
    parts.append("Faults:\n\n" + ("\n".join(faults) or "- none"))
    for section in ("kernel", "model"):
        parts.append(_table(section, results.of(section), "us" if section == "kernel" else "ms"))
    return "\n\n".join(parts) + "\n"


def _table(section: str, rows: Sequence[Row], unit: str) -> str:
    scale = {"us": 1e6, "ms": 1e3}[unit]
    engines = list(dict.fromkeys(name for row in rows for name in row.seconds))
    head = f"| {section} | error | {' | '.join(f'{e} ({unit})' for e in engines)} | ratio |"
    cell: Callable[[Row, str], str] = lambda row, name: (  # noqa: E731
        f"{row.seconds[name] * scale:.4g}" if name in row.seconds else ""
    )
    lines = [
        f"| {row.name} | {row.fault or ('' if row.error is None else f'{row.error:.0e}')} | "
        f"{' | '.join(cell(row, name) for name in engines)} | "
        f"{'' if row.ratio is None else f'{row.ratio:.2f}'} |"
        for row in rows
    ]
    return "\n".join((head, "|" + "---|" * (len(engines) + 3), *lines))
