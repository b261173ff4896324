"""A kernel in Triton, its launch, and the simplest kind: a block of elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from modelcc.ir.index import Index, product
from modelcc.ir.index_text import python_source
from modelcc.ir.scalar import identity
from modelcc.ir.tensor import Axis, Stage
from modelcc.ir.types import BOOL
from modelcc.passes.tensor.shared_axes import shared_axes
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.targets.triton.block import AxisPlace, BlockCode
from modelcc.targets.triton.functions import combined, element, number

POINTS = 256
"""Elements of a block."""

Config = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class TritonKernel:
    """``lines`` of a body that programs of ``grid`` run, given ``blocks``.

    Block sizes are expressions in Python of named dimensions; ``configs`` are alternatives for the
    autotuner, the first of which is the default, for each value of the numbers in ``key``.
    """

    kind: str
    lines: tuple[str, ...]
    grid: tuple[str, ...]
    blocks: tuple[tuple[str, str], ...] = ()
    configs: tuple[Config, ...] = ()
    key: tuple[str, ...] = ()
    checked: bool = False


def size(e: Index, kernel: CanonicalKernel) -> str:
    """An extent in Python, where named dimensions are variables."""
    return python_source(e, {name: name for name, _ in kernel.dims})


def code_of(kernel: CanonicalKernel) -> BlockCode:
    """An empty body."""
    return BlockCode(dict(kernel.types), dict(kernel.dims))


def points_kernel(kernel: CanonicalKernel) -> TritonKernel | None:
    """A program per block of elements; reductions term by term."""
    stages = _one_space(kernel.stages)
    if stages is None:
        return None
    first, code = stages[0], code_of(kernel)
    total = product(a.extent for a in first.axes)
    at = code.let("at", f"{code.program(0)} * BLOCK + {code.arange('BLOCK')}")
    inside = code.let("inside", f"{at} < {code.index(total)}")
    code.along("a", at)
    code.flat(first.axes, at, inside, "a")
    if first.reduce:
        code.values[first.output] = _serial(code, first)
        stored_by_now(code, kernel, first)
    finish(code, kernel, stages[1:] if first.reduce else stages)
    grid = f"triton.cdiv({size(total, kernel)}, {POINTS})"
    blocks = (("BLOCK", str(POINTS)),)
    return TritonKernel("points", tuple(code.lines), (grid,), blocks, checked=code.checked)


def _one_space(stages: Sequence[Stage]) -> tuple[Stage, ...] | None:
    """All stages on the axes of the first; None if they have others."""
    shared = shared_axes(stages)
    if shared is None or any(s.reduce for s in shared[1:]):
        return None
    names = {a.name for a in shared[0].axes}
    fits = all(a.name in names or a.extent == 1 for s in shared for a in s.axes)
    return shared if fits else None


def _serial(code: BlockCode, stage: Stage) -> str:
    """The reduction in a loop over each axis."""
    assert stage.combine is not None
    dtype = stage.body.dtype
    start = number(identity(stage.combine, dtype), dtype)
    total = code.let("total", f"tl.full([BLOCK], {start}, {element(dtype)})")
    loops(code, stage.reduce, lambda: _accumulate(code, stage, total))
    return total


def _accumulate(code: BlockCode, stage: Stage, total: str) -> None:
    value = code.value(stage.body)
    if stage.body.dtype == BOOL:
        value = f"({value}).to(tl.int1)"
    code.line(f"{total} = {combined(stage.combine or 'sum', total, value, stage.body.dtype)}")


def loops(code: BlockCode, axes: Sequence[Axis], inner: Callable[[], None]) -> None:
    """``inner`` in loops over ``axes``."""
    if not axes:
        inner()
        return
    variable = code.fresh(axes[0].name)
    with code.loop(f"for {variable} in range(0, {code.index(axes[0].extent)}):"):
        code.place(axes[0], AxisPlace(variable))
        loops(code, axes[1:], inner)


def finish(code: BlockCode, kernel: CanonicalKernel, stages: Sequence[Stage]) -> None:
    """Stages without reduction, in order; results of the kernel are stored."""
    for stage in stages:
        for axis in stage.axes:
            if axis.name not in code.places:
                code.place(axis, AxisPlace("0"))
        code.values[stage.output] = code.let(stage.output + "_here", code.value(stage.body))
        stored_by_now(code, kernel, stage)


def stored_by_now(code: BlockCode, kernel: CanonicalKernel, stage: Stage) -> None:
    """Stores the result of a stage if it is one of the kernel's."""
    if stage.output in kernel.outputs:
        code.store(stage, code.values[stage.output])
