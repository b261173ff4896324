"""Self-contained HTML pages: their style, and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; color: #222; max-width: 1200px }
table { border-collapse: collapse; margin: 1em 0 } td, th { padding: 2px 10px; text-align: left }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
tr:nth-child(even) { background: #f4f6f8 } svg text { font-size: 11px; fill: #444 }
"""


def html_page(title: str, heading: str, parts: Iterable[str], style: str = "") -> str:
    """A page of ``parts``, which are HTML; the other arguments are plain text."""
    lines = (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f"<title>{escape(title)}</title><style>{_STYLE}{style}</style></head><body>",
        f"<h1>{escape(heading)}</h1>",
        *parts,
        "</body></html>\n",
    )
    return "\n".join(line for line in lines if line)


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines of a table of HTML cells; columns whose names begin with ``#`` are numeric."""
    kinds = [" class='n'" if name.startswith("#") else "" for name in columns]
    names = [escape(name.removeprefix("#")) for name in columns]
    head = "".join(f"<th{k}>{name}</th>" for k, name in zip(kinds, names, strict=True))
    yield f"<table><tr>{head}</tr>"
    for row in rows:
        cells = "".join(f"<td{k}>{cell}</td>" for k, cell in zip(kinds, row, strict=True))
        yield f"<tr>{cells}</tr>"
    yield "</table>"
