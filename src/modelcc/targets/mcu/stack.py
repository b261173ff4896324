"""The memory of a planned program, with a stack that no compiler has told yet."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.loop import Alloc, RoutineCall, Stmt
from modelcc.ir.loop_traversal import statements
from modelcc.ir.program import Launch, Program
from modelcc.passes.program.plan_memory import MemoryPlan
from modelcc.passes.program.timeline import timeline
from modelcc.targets.mcu.streaming import MemoryNeed

FRAMES = 640
"""Bytes of stack beside arrays: GCC's frames for the kernels of DS-CNN take 290 of a Cortex-M4,
for those of ResNet-8 570."""


def need(program: Program, plan: MemoryPlan) -> MemoryNeed:
    """Arena, states and stack of ``program``, placed as ``plan`` says."""
    sizes = (plan.arena, *(program.types[name].bytes for name in program.states.values()))
    numbers = [size for size in sizes if isinstance(size, int)]
    stack = FRAMES + max((local_bytes(f.body) for f in program.functions), default=0)
    return MemoryNeed(sum(numbers) + stack, stack, _fullest(program, plan))


def local_bytes(body: Sequence[Stmt]) -> int:
    """Bytes of the arrays that statements, and the routines that they call, have on the stack."""
    own = called = 0
    for s in statements(body):
        if isinstance(s, Alloc) and isinstance(s.buffer.size, int):
            own += s.buffer.size * s.buffer.dtype.bytes
        elif isinstance(s, RoutineCall):
            called = max(called, local_bytes(s.routine.body))
    return own + called


def _fullest(program: Program, plan: MemoryPlan) -> tuple[str, ...]:
    """The nodes of the step at which most of the arena is needed."""
    placed = [s for s in plan.storages if s.place == "arena" and isinstance(s.size, int)]

    def live(step: int) -> int:
        found = (s.size for s in placed if s.first <= step <= s.last)
        return sum(size for size in found if isinstance(size, int))

    calls = {n: c for n, c in timeline(program).calls.items() if isinstance(c, Launch)}
    return calls[max(calls, key=live)].source if calls else ()
