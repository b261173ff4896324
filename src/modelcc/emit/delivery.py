"""A model as a folder of C, to be built and called without modelcc."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from modelcc.driver import check_stage, pipeline
from modelcc.emit.emission import resumed
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.index import Index
from modelcc.ir.program import Program
from modelcc.options import Options
from modelcc.pipeline import Observer, StageRun, all_of, before_block, run_stages
from modelcc.targets.base import BuildConfig, Target
from modelcc.targets.c.delivery.facts import DeliveryRequest
from modelcc.targets.c.delivery.folder import File
from modelcc.targets.native.c_target import CTarget


@dataclass(frozen=True)
class Delivery:
    """The files of a folder, and the memory its functions need in bytes: the arena (an expression
    of named dimensions, if any), weights, and states."""

    files: tuple[File, ...]
    arena: Index
    weights: int
    states: Index


def deliver(
    source: object,
    level: str | None,
    request: DeliveryRequest,
    target: Target,
    options: Options,
    config: BuildConfig,
    observer: Observer | None = None,
) -> Delivery:
    """The folder for ``source`` (a model, or a program of ``level``).

    :class:`ModelError` if the target has no C output, or part of the model cannot be expressed in
    C.
    """
    if not isinstance(target, CTarget):
        raise ModelError(f"target {target.name!r} writes no C", (), "leave --target out")
    program, request = planned(source, level, request, target, options, config, observer)
    states = cast(Index, 0)
    for taken in program.states.values():
        states = states + program.types[taken].bytes
    weights = sum(constant.nbytes for constant in program.constants.values())
    return Delivery(target.deliver(program, request), program.placed.arena, weights, states)


def planned(
    source: object,
    level: str | None,
    request: DeliveryRequest,
    target: Target,
    options: Options,
    config: BuildConfig,
    observer: Observer | None = None,
) -> tuple[Program, DeliveryRequest]:
    """The program to be delivered of ``source``, and the request completed by its graph."""
    graphs: list[Graph] = []

    def note(run: StageRun) -> None:
        if isinstance(run.after, Graph):
            graphs[:] = [run.after]

    stages = before_block(pipeline(target, options, config), "emit")
    program = run_stages(resumed(stages, level), source, all_of(note, check_stage, observer))
    for graph in graphs:
        request = replace(request, interface=graph.interface, initial=graph.initial)
    return program, request
