"""SVG charts of tuning results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from modelcc.model_tuning.rows import KernelRow
from modelcc.report.formats import last_letters
from modelcc.tune.search import GAIN
from modelcc.tune.turns import MARGIN, Turns

BARS = 24
"""Maximum kernels in the chart."""

WIDTH, LEFT, RIGHT, BAR = 1100, 300, 60, 22
_STRIP = 90
_LETTERS = 44
_GREY, _GREEN, _BLUE = "#c9ced6", "#2f9e5b", "#7aa7d9"


def kernels_drawing(rows: Sequence[KernelRow]) -> str:
    """Bars of microseconds per run: the default's, overlaid by the best schedule's, green if that
    was accepted."""
    shown = sorted(rows, key=lambda row: -row.share)[:BARS]
    longest = max(row.calls * row.seconds for row in shown) or 1.0
    height = BAR * len(shown) + 4
    bars = (_bars(row, number, longest) for number, row in enumerate(shown))
    head = f'<svg viewBox="0 0 {WIDTH} {height}" width="100%" role="img">'
    return "\n".join((head, *(line for lines in bars for line in lines), "</svg>"))


def _bars(row: KernelRow, number: int, longest: float) -> Iterator[str]:
    y, scale = number * BAR + 2, (WIDTH - LEFT - RIGHT) / longest
    default, best = row.calls * row.seconds, row.calls * row.own
    name = row.nodes[0] if row.nodes else row.key
    title = f"{name}: {1e6 * default:.1f} µs by default, {1e6 * best:.1f} µs at best"
    yield f"<g><title>{escape(title)}</title>"
    yield _text(LEFT - 8, y + 13, last_letters(name, _LETTERS), "end")
    yield _rectangle(y, default * scale, BAR - 4, _GREY)
    better = row.gain >= GAIN
    if better:
        yield _rectangle(y + 3, best * scale, BAR - 10, _GREEN if row.taken else _BLUE)
    label = f"{1e6 * default:.0f}" + (f" / {row.gain:.2f}" if better else "")
    yield f"{_text(LEFT + default * scale + 5, y + 13, label)}</g>"


def turns_drawing(turns: Turns) -> str:
    """Runs in order, by their ratios, with a line at no gain and a dashed one at the median."""
    ratios = [a / b for a, b in turns.times]
    low, high = min(*ratios, 1 / MARGIN), max(*ratios, MARGIN)
    left, right = 70, WIDTH - 110
    step = (right - left) / len(ratios)

    def height(ratio: float) -> float:
        return 8 + (_STRIP - 16) * (high - ratio) / (high - low)

    def line(ratio: float, more: str) -> str:
        y = f"{height(ratio):.1f}"
        return f'<line x1="{left}" x2="{right}" y1="{y}" y2="{y}" stroke="#666"{more}/>'

    dots = (
        f'<circle cx="{left + (n + 0.5) * step:.1f}" cy="{height(r):.1f}" r="3" '
        f'fill="{_GREEN if r > 1 else _GREY}"><title>{r:.3f}</title></circle>'
        for n, r in enumerate(ratios)
    )
    lines = (
        line(1.0, ""),
        line(turns.ratio, ' stroke-dasharray="6 4"'),
        _text(left - 8, height(1.0) + 4, "1.0", "end"),
        _text(right + 8, height(turns.ratio) + 4, f"median {turns.ratio:.3f}"),
    )
    head = f'<svg viewBox="0 0 {WIDTH} {_STRIP}" width="100%" role="img">'
    return "\n".join((head, *dots, *lines, "</svg>"))


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="11" text-anchor="{anchor}"'
    return f"<text {place}>{escape(text)}</text>"


def _rectangle(y: float, width: float, height: float, colour: str) -> str:
    size = f'width="{max(width, 1):.1f}" height="{height}"'
    return f'<rect x="{LEFT:.1f}" y="{y}" {size} fill="{colour}"/>'
