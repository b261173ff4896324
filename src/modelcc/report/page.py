"""Reports as one self-contained HTML page with a drawing of the memory plan."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from modelcc.report.device_share import USES, DeviceShare, use_cells
from modelcc.report.formats import byte_text
from modelcc.report.html_page import html_page, html_table
from modelcc.report.report import Region, Report, StepRow, times_text

WIDTH, HEIGHT, LEFT, BOTTOM = 1100, 460, 80, 30

_STYLE = """
rect.tensor { stroke: #fff; stroke-width: 0.5 } rect.tensor:hover { stroke: #000 }
"""
_COLUMNS = ("#step", "kernel", "from", "#MFLOP", "#bytes", "#rounding", "#roof µs", "#µs")


def report_page(report: Report) -> str:
    """A self-contained HTML page."""
    over = 100 * (report.arena / report.lower_bound - 1) if report.lower_bound else 0.0
    at = ", ".join(f"{name}={value}" for name, value in report.sizes.items())
    parts = (
        f"<p>{escape(at)}</p>" if at else "",
        f"<p>Arena {byte_text(report.arena)}; {byte_text(report.lower_bound)} live at most "
        f"({over:.1f} % above that). Weights {byte_text(report.constants)}. "
        f"{report.flops / 1e9:.3f} GFLOP in {len(report.kernels)} steps.</p>",
        *(f"<p>Note: {escape(note)}.</p>" for note in report.notes),
        f"<p>Rounding: {escape(report.rounding)}.</p>" if report.rounding else "",
        "<h2>Memory plan</h2><p>Each box is a tensor: steps to the right, bytes upwards.</p>",
        memory_drawing(report),
        "<h2>Kernels</h2>",
        *html_table(_COLUMNS, map(_kernel_row, report.kernels)),
        *(_device_part(report.device) if report.device else ()),
    )
    return html_page(report.model, f"{report.model} for {report.target}", parts, _STYLE)


def _device_part(device: DeviceShare) -> Iterator[str]:
    """Where steps run, and resource usage of kernels."""
    yield f"<h2>Device</h2><p>{escape(device.work)}; {escape(device.moved)}.</p>"
    rows = ((escape(row.function), escape(", ".join(row.source))) for row in device.host)
    if device.host:
        yield from html_table(("on the processor", "from"), rows)
    if device.uses:
        yield f"<p>Kernels are scheduled for {escape(device.machine)}; the least times by its "
        yield "rates are their roofs. Local bytes are spilled registers and arrays of a thread.</p>"
        columns = ("kernel", *(f"#{name}" for name in USES))
        yield from html_table(columns, ((escape(u.function), *use_cells(u)) for u in device.uses))


def memory_drawing(report: Report) -> str:
    """The memory plan as an SVG element."""
    steps, top = max(1, len(report.kernels)), max(1, report.arena)
    width, height = WIDTH - LEFT, HEIGHT - BOTTOM
    shapes = [_tensor(r, width / steps, height / top, height) for r in report.regions]
    bound = height - report.lower_bound * height / top
    axes = (
        f'<text x="0" y="12">{byte_text(report.arena)}</text>',
        f'<text x="0" y="{height}">0</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 10}">step 0</text>',
        f'<text x="{WIDTH - 60}" y="{HEIGHT - 10}">step {steps - 1}</text>',
        f'<line x1="{LEFT}" x2="{WIDTH}" y1="{bound:.1f}" y2="{bound:.1f}" stroke="#c00" '
        'stroke-dasharray="6 4"><title>most that is live at once</title></line>',
    )
    head = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" role="img">'
    return "\n".join((head, *shapes, *axes, "</svg>"))


def _tensor(region: Region, step: float, byte: float, height: int) -> str:
    x, w = LEFT + region.first * step, (region.last - region.first + 1) * step
    h = max(0.5, region.size * byte)
    y = height - region.offset * byte - h
    # Neighbours in the list get hues far apart on the colour circle (the golden angle).
    hue = round(region.first * 137.5) % 360
    label = f"{region.name}: {region.type}, {byte_text(region.size)} at {region.offset}, "
    label += f"steps {region.first} to {region.last}"
    return (
        f'<rect class="tensor" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" '
        f'fill="hsl({hue} 55% 65%)"><title>{escape(label)}</title></rect>'
    )


def _kernel_row(kernel: StepRow) -> tuple[str, ...]:
    time = "" if kernel.seconds is None else f"{kernel.seconds * 1e6:.1f}"
    names = escape(kernel.function), escape(", ".join(kernel.source))
    work = f"{kernel.flops / 1e6:.3f}", byte_text(kernel.bytes)
    roof = f"{kernel.roof * 1e6:.3g}" if kernel.roof else ""
    return (str(kernel.step), *names, *work, times_text(kernel.rounding), roof, time)
