"""Graphs of training steps within a memory budget, by recomputation.

:mod:`modelcc.train.rematerialisation` ranks the values to recompute, and the memory planner
determines the memory: the fewest values are recomputed whose plan fits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from modelcc.api import compile, options_of
from modelcc.driver import NOWHERE, pipeline, target_of
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.model import Model
from modelcc.options import Options
from modelcc.passes.graph.bodies import in_bodies
from modelcc.passes.graph.canonicalise import Canonicalise
from modelcc.passes.graph.common_subexpressions import CommonSubexpressions
from modelcc.passes.graph.dead_code import DeadCode
from modelcc.passes.graph.decompose import Decompose
from modelcc.passes.program.order import order_steps
from modelcc.passes.program.plan_memory import plan_memory
from modelcc.pipeline import before_block, run_stages
from modelcc.report.report import RecomputedRow
from modelcc.sizes import bytes_of
from modelcc.train.rematerialisation import Recomputation, ranked, recomputed


@dataclass(frozen=True)
class Fitted:
    """A graph that needs at most ``after`` bytes, where it needed ``before``."""

    graph: Graph
    choices: tuple[Recomputation, ...]
    before: int
    after: int

    def __str__(self) -> str:
        work = sum(choice.work for choice in self.choices)
        head = f"{self.before:,} bytes at most before, {self.after:,} after; "
        head += f"{len(self.choices)} values are computed again, {work / 1e6:,.1f} MFLOP more"
        rows = (f"  {_row(choice)}" for choice in self.choices)
        return "\n".join((head, *rows))


def compiled_within(graph: Graph, memory: int | str, **options: Any) -> Model:
    """``graph`` compiled after :func:`fitted`, which the model's report describes."""
    plan = fitted(graph, memory, **options)
    model = compile(plan.graph, **options)
    rows = tuple(map(_row, plan.choices))
    report = replace(model.report(), recomputed=rows, arena_before=plan.before, stages=())
    return model.with_report(report) if rows else model


def _row(choice: Recomputation) -> RecomputedRow:
    op, source = type(choice.node.op).__name__, choice.node.source
    return RecomputedRow(op, str(choice.type), source, choice.bytes, round(choice.work))


def fitted(graph: Graph, memory: int | str, **options: Any) -> Fitted:
    """``graph`` with the fewest recomputed values such that its arena fits ``memory``.

    ``options`` are those of :func:`modelcc.compile`.  :class:`ModelError` gives the minimum of
    memory if that is too little.
    """
    budget = memory if isinstance(memory, int) else bytes_of(memory, "memory=")
    asked = options_of(**options)
    plain = _simplified(graph)
    before = planned_peak(plain, asked)
    if before <= budget:
        return Fitted(graph, (), before, before)
    choices = ranked(plain)
    enough, peak = _fewest(plain, choices, budget, asked)
    if peak > budget:
        raise ModelError(
            f"{graph.name!r} needs {before:,} bytes, {peak:,} if values are computed again, "
            f"and memory is {budget:,}",
            (),
            "give it more memory, or a smaller batch",
        )
    chosen = tuple(choices[:enough])
    return Fitted(recomputed(plain, [c.name for c in chosen]), chosen, before, peak)


def _fewest(
    plain: Graph, choices: list[Recomputation], budget: int, asked: Options
) -> tuple[int, int]:
    """How many of ``choices`` suffice, by bisection, and their peak; the least peak if none do."""
    known: dict[int, int] = {}

    def peak(count: int) -> int:
        if count not in known:
            names = [c.name for c in choices[:count]]
            known[count] = planned_peak(recomputed(plain, names), asked)
        return known[count]

    low, high = 0, len(choices)
    if peak(high) > budget:  # the last ones may not pay: their operands live longer
        steps = sorted({len(choices) * part // 8 for part in range(1, 8)})
        high = min((*steps, high), key=peak)
    while peak(high) <= budget and high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if peak(middle) <= budget else (middle, high)
    return high, peak(high)


def planned_peak(graph: Graph, options: Options) -> int:
    """Bytes of the arena that a plan of ``graph`` needs at typical sizes; nothing is built."""
    stages = pipeline(target_of(options, NOWHERE), options, NOWHERE)
    program = run_stages(before_block(stages, "loop"), graph)
    return plan_memory(order_steps(program)).peak


def _simplified(graph: Graph) -> Graph:
    """Merges equal nodes and drops dead ones, so that the values kept are visible."""
    for step in (Decompose(), CommonSubexpressions(), DeadCode(), Canonicalise(),
                 CommonSubexpressions(), DeadCode()):  # fmt: skip
        graph = in_bodies(step)(graph)
    return graph
