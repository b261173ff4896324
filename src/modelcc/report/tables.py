"""Reports as tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from modelcc.report.device_share import USES, DeviceShare, use_cells
from modelcc.report.formats import byte_text
from modelcc.report.kernel_figures import kernel_figures
from modelcc.report.memory_savings import MemorySaving
from modelcc.report.report import Report, StageTime
from modelcc.report.savings import savings_rows


def report_tables(report: Report) -> RenderableType:
    """Summary, kernels in order, their resource usage on a device, and overlapping results."""
    parts: list[RenderableType] = [summary(report), kernel_table(report)]
    if report.device and report.device.uses:
        parts.append(use_table(report.device))
    if report.shared:
        parts.append(saving_table(report.shared))
    return Group(*parts)


def summary(report: Report) -> RenderableType:
    """Inputs, outputs and memory."""
    table = Table.grid(padding=(0, 2))
    table.add_row("model", f"{report.model} for {report.target}")
    for kind, values in (("input", report.inputs), ("output", report.outputs)):
        for name, type in values.items():
            table.add_row(kind, Text(f"{name}: {type}"))
    for state in report.states:
        table.add_row("state", Text(str(state)))
    for note in report.notes:
        table.add_row("note", Text(note))
    for step in report.host_steps:
        table.add_row("runtime", Text(step))
    if report.sizes:
        table.add_row("at", ", ".join(f"{n}={v}" for n, v in report.sizes.items()))
    over = 100 * (report.arena / report.lower_bound - 1) if report.lower_bound else 0.0
    bound = f"{byte_text(report.lower_bound)} live at most, {over:.1f} % above that"
    table.add_row("arena", f"{byte_text(report.arena)} ({bound})")
    table.add_row("weights", byte_text(report.constants))
    table.add_row("work", f"{report.flops / 1e9:.3f} GFLOP in {len(report.kernels)} steps")
    if report.device:
        table.add_row("device", report.device.work)
        table.add_row("moved", report.device.moved)
    for row in report.device.host if report.device else ():
        table.add_row("processor", Text(str(row)))
    if report.recomputed:
        table.add_row("again", report.recomputation)
    for row in report.recomputed:
        table.add_row("", Text(str(row)))
    for row in savings_rows(report.savings):
        table.add_row("left out", Text(row))
    if report.rounding:
        table.add_row("rounding", report.rounding)
    if report.precision:
        table.add_row("precision", Text(report.precision))
    return table


def kernel_table(report: Report) -> Table:
    """One row for each step of the program, and totals."""
    figures = kernel_figures(report)
    table = Table(title="kernels", title_justify="left")
    table.add_column("step", no_wrap=True)
    for name in ("kernel", "from"):
        table.add_column(name)
    for figure in figures:
        table.add_column(figure.name, justify="right", no_wrap=True)
    for kernel in report.kernels:
        names = (_shortened(kernel.function), _shortened(_sources(kernel.source)))
        table.add_row(str(kernel.step), *names, *(figure.cell(kernel) for figure in figures))
    if len(report.kernels) > 1:
        table.add_section()
        table.add_row("", "in all", "", *(figure.total for figure in figures), style="bold")
    return table


def use_table(device: DeviceShare) -> Table:
    """A row for each kernel of a device."""
    table = Table(title=f"kernels on the device ({device.machine})", title_justify="left")
    table.add_column("kernel")
    for name in USES:
        table.add_column(name, justify="right", no_wrap=True)
    for use in device.uses:
        table.add_row(_shortened(use.function), *use_cells(use))
    return table


def saving_table(found: Sequence[MemorySaving]) -> Table:
    """A row for each result that overlaps an operand."""
    table = Table(title="results over operands", title_justify="left")
    table.add_column("step", no_wrap=True)
    table.add_column("from")
    table.add_column("bytes", justify="right", no_wrap=True)
    for name in ("result", "over"):
        table.add_column(name)
    table.add_column("how", no_wrap=True)
    for one in sorted(found, key=lambda one: (one.step, -one.bytes)):
        names = [_shortened(text) for text in (one.tensor, one.operand)]
        source = _shortened(_sources(one.source))
        table.add_row(str(one.step), source, f"{one.bytes:,}", *names, one.how)
    return table


def stage_table(stages: Sequence[StageTime]) -> Table:
    """Seconds that each stage of the compiler took."""
    table = Table(title="compiler", title_justify="left")
    table.add_column("stage")
    table.add_column("ms", justify="right")
    for stage in stages:
        table.add_row(stage.stage, f"{stage.seconds * 1e3:.1f}")
    table.add_row("in all", f"{sum(s.seconds for s in stages) * 1e3:.1f}", style="bold")
    return table


def _shortened(text: str) -> Text:
    """One line that gives way to the figures: only columns that may wrap are made narrower."""
    return Text(text, no_wrap=True, overflow="ellipsis")


def _sources(names: Sequence[str]) -> str:
    return names[0] + (f" + {len(names) - 1}" if len(names) > 1 else "") if names else ""
