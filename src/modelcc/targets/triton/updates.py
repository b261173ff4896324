"""Updates at places from memory: a program has points that no other one meets, and takes the
updates that may meet there one after the other, in the model's order.  So nothing is atomic, and no
result depends on who comes first."""

from __future__ import annotations

from modelcc.ir.index import product
from modelcc.ir.tensor import Read, Stage
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.targets.gpu.scatter.group_updates import axes_apart
from modelcc.targets.triton.block import AxisPlace, BlockCode
from modelcc.targets.triton.functions import combined
from modelcc.targets.triton.kernel import POINTS, TritonKernel, code_of, loops, size


def updates_kernel(kernel: CanonicalKernel) -> TritonKernel:
    """The updates of a copy, which are the one stage of ``kernel``."""
    (stage,), code = kernel.stages, code_of(kernel)
    found = axes_apart(stage)
    apart = [a for a in stage.axes if a.name in found]
    for axis in stage.axes:
        code.place(axis, AxisPlace("0"))
    total, blocks = product(a.extent for a in apart), ()
    if apart:
        at = code.let("at", f"{code.program(0)} * BLOCK + {code.arange('BLOCK')}")
        code.along("a", at)
        code.flat(apart, at, code.let("inside", f"{at} < {code.index(total)}"), "a")
        blocks = (("BLOCK", str(POINTS)),)
    meeting = [a for a in stage.axes if a not in apart and a.extent != 1]
    loops(code, meeting, lambda: _update(code, stage))
    grid = f"triton.cdiv({size(total, kernel)}, {POINTS})"
    return TritonKernel("updates", tuple(code.lines), (grid,), blocks, checked=code.checked)


def _update(code: BlockCode, stage: Stage) -> None:
    """One update of each point; threads see what others have stored before they go on."""
    value, dtype = code.value(stage.body), stage.body.dtype
    if stage.combine is not None:
        there = code.value(Read(stage.output, stage.write, dtype))
        value = combined(stage.combine, there, value, dtype)
    code.store(stage, code.let("changed", value))
    code.line("tl.debug_barrier()")
