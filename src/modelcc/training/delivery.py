"""A training step as a folder of C, for machines without Python and without an allocator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from modelcc.driver import NOWHERE, target_of
from modelcc.emit.delivery import Delivery, deliver
from modelcc.ir.constant import Constant
from modelcc.ir.graph import Graph
from modelcc.ir.types import Array
from modelcc.options import Options
from modelcc.targets.c.delivery.facts import DeliveryRequest
from modelcc.targets.native.host import PORTABLE
from modelcc.training.program import StepProgram
from modelcc.version import VERSION


def write_c(
    program: StepProgram,
    values: Mapping[str, Array],
    folder: Path,
    name: str,
    options: Mapping[str, Any],
) -> Delivery:
    """The step ``program`` as C in ``folder``, its states ``values`` at first; sizes and files.

    What the step only reads, such as frozen layers, is among the weights.
    """
    wanted: dict[str, Any] = {"threads": 1, "cpu": PORTABLE, **options, "target": "c"}
    asked = Options(**wanted)
    request = DeliveryRequest(name, "array", program.graph.name, VERSION)
    graph = _self_contained(program, values)
    delivery = deliver(graph, None, request, target_of(asked), asked, NOWHERE)
    folder.mkdir(parents=True, exist_ok=True)
    for file in delivery.files:
        (folder / file.name).write_bytes(file.contents)
    return delivery


def _self_contained(program: StepProgram, values: Mapping[str, Array]) -> Graph:
    """The graph with the contents of all that a batch does not bring."""
    graph, interface = program.graph, program.graph.interface
    assert interface is not None
    first = {n: Constant(values[n]) for n in program.states if values[n].any()}
    states = {n: replace(s, given=n in first) for n, s in interface.states.items()}
    return replace(
        graph,
        inputs=tuple(n for n in graph.inputs if n not in program.reads),
        constants={**graph.constants, **{n: Constant(values[n]) for n in program.reads}},
        initial=first,
        interface=replace(
            interface,
            inputs={n: s for n, s in interface.inputs.items() if n not in program.reads},
            states=states,
        ),
    )
