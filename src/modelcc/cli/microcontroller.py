"""What commands about microcontrollers share: the planned model, and its layers as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from modelcc.cli.compile import stem_of
from modelcc.cli.console import right
from modelcc.driver import target_of
from modelcc.emit.delivery import planned
from modelcc.ir.errors import ModelError
from modelcc.on_device.layers import LayerCost
from modelcc.options import Options
from modelcc.pipeline import Observer
from modelcc.targets.base import BuildConfig
from modelcc.targets.c.delivery.facts import DeliveryRequest
from modelcc.targets.c.delivery.naming import prefix_of
from modelcc.targets.mcu.delivery.model import EmbeddedModel, embedded_model
from modelcc.targets.mcu.machine import MODELS
from modelcc.targets.mcu.target import McuTarget
from modelcc.version import VERSION

MHZ = click.option(
    "--mhz", type=click.FloatRange(0, min_open=True), metavar="N",
    help="Clock of the processor: adds milliseconds.",
)  # fmt: skip


def embedded_of(
    model: Path,
    options: Options,
    config: BuildConfig,
    others: Iterable[str] = (),
    observer: Observer | None = None,
) -> EmbeddedModel:
    """The model, planned for its microcontroller; :class:`ModelError` for any other target, which
    tells of microcontrollers and of ``others``."""
    target = target_of(options, config, model)
    if not isinstance(target, McuTarget):
        hint = f"--target NAME, one of {', '.join((*MODELS, *others))}"
        raise ModelError(f"{target.name!r} is no microcontroller", (), hint)
    named = DeliveryRequest(prefix_of(stem_of(model)), "array", model.name, VERSION)
    program, request = planned(model, None, named, target, options, config, observer)
    return embedded_model(program, request, target.model)


def milliseconds(cycles: float, mhz: float) -> float:
    """At a clock."""
    return cycles / mhz / 1e3


def layer_table(layers: Sequence[LayerCost], mhz: float | None, title: str) -> Table:
    """One row for each layer, and one for all."""
    whole = max(1, sum(layer.cycles for layer in layers))
    table = Table(title=title, title_justify="left", show_footer=True, box=SIMPLE)
    table.add_column("step", str(len(layers)), no_wrap=True)
    table.add_column("layer", "all")
    totals = [sum(getattr(one, name) for one in layers) for name in _NUMBERS]
    numbers = [f"{total:,}" for total in totals] + ["100.0"]
    heads = [*_NUMBERS, "%"]
    if mhz is not None:
        heads, numbers = [*heads, "ms"], [*numbers, f"{milliseconds(whole, mhz):.3f}"]
    for column, footer in zip(right(*heads), numbers, strict=True):
        table.add_column(column.header, footer, justify="right", no_wrap=True)
    for layer in layers:
        cells = [f"{getattr(layer, name):,}" for name in _NUMBERS]
        cells.append(f"{100 * layer.cycles / whole:.1f}")
        cells += [f"{milliseconds(layer.cycles, mhz):.3f}"] if mhz is not None else []
        title = f"{layer.calls}: {layer.name}" if layer.calls else layer.name
        name = Text(title, no_wrap=True, overflow="ellipsis")
        table.add_row(str(layer.step), name, *cells)
    return table


_NUMBERS = "macs", "instructions", "cycles"


def layer_facts(layers: Sequence[LayerCost], mhz: float | None) -> list[Mapping[str, object]]:
    """For JSON."""
    found: list[Mapping[str, object]] = []
    for layer in layers:
        time = {} if mhz is None else {"milliseconds": milliseconds(layer.cycles, mhz)}
        found.append({**asdict(layer), **time})
    return found
