"""The columns of figures in the table of kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from modelcc.report.formats import byte_text
from modelcc.report.report import Report, StepRow, of_roof, times_text


@dataclass(frozen=True)
class KernelFigure:
    """A column: the ``cell`` of a step, and the ``total``, empty where a sum means nothing."""

    name: str
    cell: Callable[[StepRow], str]
    total: str = ""


def kernel_figures(report: Report) -> tuple[KernelFigure, ...]:
    """Work, rounding and roofs of steps, and their times in a profile; where times stand beside
    roofs, what follows from both is left out, so that 80 columns have room for names."""
    seconds, roof = report.seconds, report.roof
    moved = byte_text(sum(kernel.bytes for kernel in report.kernels))
    figures = [
        KernelFigure("MFLOP", lambda k: _mega(k.flops), _mega(report.flops)),
        KernelFigure("bytes", lambda k: byte_text(k.bytes), moved),
    ]
    if report.rounding:
        figures.append(KernelFigure("rounding", lambda k: times_text(k.rounding)))
    times = _times(report, seconds) if seconds else ()
    if roof and seconds:
        reached = KernelFigure("of roof", of_roof, f"{roof / seconds:.0%}")
        return (*figures[1:], *times, reached)
    if roof:
        figures.append(KernelFigure("roof µs", lambda k: _roof(k.roof), _roof(roof)))
    return (*figures, *times)


def _times(report: Report, seconds: float) -> tuple[KernelFigure, ...]:
    """Of a profile that took ``seconds`` in all."""

    def timed(text: Callable[[StepRow, float], str]) -> Callable[[StepRow], str]:
        return lambda k: "" if k.seconds is None else text(k, k.seconds)

    rate = _rate(report.flops, seconds)
    return (
        KernelFigure("µs", timed(lambda k, s: f"{s * 1e6:.1f}"), f"{seconds * 1e6:.1f}"),
        KernelFigure("%", timed(lambda k, s: f"{100 * s / seconds:.1f}"), "100.0"),
        KernelFigure("GFLOP/s", timed(lambda k, s: _rate(k.flops, s)), rate),
    )


def _mega(flops: int) -> str:
    return f"{flops / 1e6:.3f}"


def _roof(seconds: float | None) -> str:
    return f"{seconds * 1e6:.3g}" if seconds else ""


def _rate(flops: int, seconds: float) -> str:
    return f"{flops / seconds / 1e9:.1f}" if seconds else "0.0"
