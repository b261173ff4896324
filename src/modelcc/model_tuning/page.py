"""Tuning results as a self-contained HTML page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from html import escape

from modelcc.model_tuning.drawings import kernels_drawing, turns_drawing
from modelcc.model_tuning.rows import KernelRow, earlier_trials, kernel_rows, set_aside
from modelcc.model_tuning.tuning import Tuning
from modelcc.report.html_page import html_page, html_table
from modelcc.tune.turns import Turns

NODES = 3
"""Number of nodes sharing a kernel that are named; all are in its tooltip."""

_STYLE = """
td { vertical-align: top } td.n { white-space: nowrap }
code { font: 12px/1.35 ui-monospace, monospace; overflow-wrap: anywhere }
code.key { color: #777 } code mark { background: #ffe08a; padding: 0 1px }
code.old { color: #666; display: block } code.new { display: block }
p.big { font-size: 20px; margin: 0.4em 0 } .yes { color: #0a6b2d } .no { color: #666 }
dl { display: grid; grid-template-columns: max-content auto; gap: 2px 1.2em } dd { margin: 0 }
dt { color: #666 }
"""
_KERNELS = ("nodes", "#calls", "#share", "#default µs", "#best µs", "#gain", "#saved µs",
            "schedule: default, best", "#tried", "verdict")  # fmt: skip


def tuning_page(tuning: Tuning, model: str, threads: int, budget: float) -> str:
    """A self-contained HTML page; ``budget`` in seconds."""
    rows = kernel_rows(tuning)
    parts = (
        _outcome(tuning),
        "<dl>",
        f"<dt>machine</dt><dd>{escape(tuning.machine)}</dd>",
        f"<dt>threads</dt><dd>{threads}</dd>",
        f"<dt>budget</dt><dd>{budget:.0f} s; all took {tuning.spent:.0f} s</dd>",
        f"<dt>kernels</dt><dd>{len(rows)} of {tuning.distinct} distinct ones measured, "
        f"{len(tuning.schedules)} have another schedule</dd></dl>",
        *_together(tuning),
        *_kernels(rows),
        *_above(tuning),
        *_aside(tuning),
    )
    return html_page(f"{model}, tuned", f"{model}, tuned", parts, _STYLE)


def _outcome(tuning: Tuning) -> str:
    default, tuned = 1e3 * tuning.default, 1e3 * tuning.tuned
    if not (tuning.schedules or tuning.above):
        return f"<p class='big'>{default:.3f} ms: the defaults stay, nothing was faster.</p>"
    return (
        f"<p class='big'>{default:.3f} ms by default, {tuned:.3f} ms tuned: "
        f"<b class='yes'>{tuning.gain:.3f} times as fast</b></p>"
    )


def _together(tuning: Tuning) -> Iterator[str]:
    if not tuning.attempts:
        return
    yield "<h2>The whole model, in turns with its default</h2>"
    yield from html_table(
        ("schedules", "choices above kernels", "#default ms", "#tuned ms", "#gain", "#turns faster",
         "verdict"),
        ((str(one.schedules), str(one.above), *_turns(one.turns), _verdict(one.turns, one.faster))
         for one in tuning.attempts),
    )  # fmt: skip
    yield "<p>Each dot is a turn, the last row's: how many times as long the default took.</p>"
    yield turns_drawing(tuning.attempts[-1].turns)


def _turns(turns: Turns) -> tuple[str, ...]:
    faster = sum(a > b for a, b in turns.times)
    times = f"{1e3 * turns.first:.3f}", f"{1e3 * turns.second:.3f}"
    return (*times, f"{turns.ratio:.3f}", f"{faster} of {len(turns.times)}")


def _verdict(turns: Turns, taken: bool) -> str:
    return _coloured("taken" if taken else f"{turns.verdict().value}: left out", taken)


def _coloured(text: str, good: bool) -> str:
    return f"<span class='{'yes' if good else 'no'}'>{escape(text)}</span>"


def _kernels(rows: Sequence[KernelRow]) -> Iterator[str]:
    yield "<h2>Kernels</h2>"
    if not rows:
        yield "<p>None was measured before the budget was spent.</p>"
        return
    yield "<p>Microseconds of a run of the model, on cold caches, by default (grey) and with the "
    yield "best schedule: green if it was taken. These kernels take most time.</p>"
    yield kernels_drawing(rows)
    yield "<p>Times are of a call; what is saved, of a run. What differs is marked.</p>"
    yield from html_table(_KERNELS, map(_kernel, rows))


def _kernel(row: KernelRow) -> tuple[str, ...]:
    named = ", ".join(row.nodes[:NODES]) + (" …" if len(row.nodes) > NODES else "")
    nodes = f"<span title='{escape(', '.join(row.nodes))}'>{escape(named)}</span>"
    better = row.best != row.default
    failed = f", {row.failed} failed" if row.failed else ""
    return (
        f"{nodes}<br><code class='key'>{row.key}</code>",
        str(row.calls),
        f"{100 * row.share:.1f} %",
        f"{1e6 * row.seconds:.1f}",
        f"{1e6 * row.own:.1f}" if better else "",
        f"{row.gain:.2f}" if better else "",
        f"{1e6 * row.saved:.1f}" if better else "",
        compared(row.default, row.best),
        f"{row.measured}{failed}",
        _coloured(row.verdict, row.taken),
    )


def compared(default: str, best: str) -> str:
    """Both schedules one above the other, differences marked; a single one if they are equal."""
    if default == best:
        return f"<code class='old'>{escape(default)}</code>"
    sides = _fields(default), _fields(best)
    marked: tuple[list[str], list[str]] = [], []
    for kind, *places in SequenceMatcher(None, *sides, autojunk=False).get_opcodes():
        for side, out, start in zip(sides, marked, (0, 2), strict=True):
            text = escape("".join(side[places[start] : places[start + 1]]))
            out.append(text if kind == "equal" or not text else f"<mark>{text}</mark>")
    old, new = map("".join, marked)
    return f"<code class='old'>{old}</code><code class='new'>{new}</code>"


def _fields(schedule: str) -> list[str]:
    """Pieces of a schedule that are compared as units."""
    return re.findall(r"\w+: \d+|\w+=[\w.]+|\w+|\W", schedule)


def _above(tuning: Tuning) -> Iterator[str]:
    earlier = list(earlier_trials(tuning))
    if not (tuning.trials or earlier):
        return
    yield "<h2>Choices above kernels</h2><p>Each tried in the whole model, in turns with the best "
    yield "before it.</p>"
    rows = [
        (_lines(one.text), *_turns(one.turns), _verdict(one.turns, one.taken))
        for one in tuning.trials
    ]
    rows += [
        (_lines(one.schedule), f"{1e3 * one.default:.3f}", f"{1e3 * one.seconds:.3f}",
         f"{one.gain or 0:.3f}", "", "tried in an earlier run")
        for one in earlier
    ]  # fmt: skip
    yield from html_table(
        ("choice", "#before ms", "#with it ms", "#gain", "#turns faster", "verdict"), rows
    )


def _lines(text: str) -> str:
    return "<br>".join(f"<code>{escape(line)}</code>" for line in text.split("; "))


def _aside(tuning: Tuning) -> Iterator[str]:
    rows = [
        (", ".join(map(escape, found.task.nodes[:NODES])), f"<code>{found.task.key}</code>",
         f"<code>{escape(one.schedule)}</code>", one.state.value)
        for found, one in set_aside(tuning)
    ]  # fmt: skip
    if rows:
        yield "<h2>Candidates set aside</h2><p>They are never taken, nor measured again.</p>"
        yield from html_table(("nodes", "kernel", "schedule", "what it did"), rows)
