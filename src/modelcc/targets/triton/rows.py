"""Rows: a program for each, which keeps it in registers (softmax, norms, long sums)."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.index import Index, Sym, product
from modelcc.ir.scalar import identity
from modelcc.ir.scalar_tree import reads, substitute_stage
from modelcc.ir.tensor import Axis, Stage
from modelcc.ir.types import BOOL
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.targets.triton.functions import REDUCE, number
from modelcc.targets.triton.kernel import TritonKernel, code_of, size

MOST = 1 << 16
"""Elements of a row."""

LEAST = 32
"""Terms that are worth a program of their own where elements could be reduced in parallel."""


def rows_kernel(kernel: CanonicalKernel) -> TritonKernel | None:
    """The kernel by rows, if its stages allow."""
    stages = kernel.stages
    if not any(s.reduce for s in stages) or not all(_reduces(s) for s in stages if s.reduce):
        return None
    for depth in range(min(len(s.axes) for s in stages), -1, -1):
        row = max((_space(s, depth) for s in stages), key=len)
        if any(_reaches(s, depth, stages[0]) for s in stages):
            continue
        extent = _known(product(a.extent for a in row))
        if extent > MOST or (len(stages) == 1 and extent < LEAST):
            continue
        renamed = _on_one_row(stages, depth, row)
        if renamed is not None:
            return _kernel(kernel, renamed, depth, row)
    return None


def _reduces(stage: Stage) -> bool:
    return stage.combine in REDUCE and stage.body.dtype != BOOL


def _known(extent: Index) -> int:
    return extent if isinstance(extent, int) else MOST


def _reaches(stage: Stage, depth: int, first: Stage) -> bool:
    """Whether the axes before a row are not those of the first stage."""
    pairs = zip(stage.axes[:depth], first.axes[:depth], strict=True)
    return any(a.extent != b.extent for a, b in pairs)


def _space(stage: Stage, depth: int) -> tuple[Axis, ...]:
    """The axes of a stage's row, without those of length 1."""
    return tuple(a for a in (*stage.axes[depth:], *stage.reduce) if a.extent != 1)


def _on_one_row(
    stages: Sequence[Stage], depth: int, row: tuple[Axis, ...]
) -> tuple[Stage, ...] | None:
    """Stages whose outer axes are the first one's and whose row is ``row``; None if an intermediate
    result is read at another index than it is written."""
    outer, made, found = stages[0].axes[:depth], dict[str, Stage](), list[Stage]()
    for stage in stages:
        own = _space(stage, depth)
        if stage.reduce and any(a.extent != 1 for a in stage.axes[depth:]):
            return None
        if own and [a.extent for a in own] != [a.extent for a in row]:
            return None
        names = {a.name: Sym(b.name) for a, b in zip(stage.axes, outer, strict=False)}
        names |= {a.name: Sym(b.name) for a, b in zip(own, row, strict=False)}
        ones = (a for a in (*stage.axes[depth:], *stage.reduce) if a.extent == 1)
        moved = substitute_stage(stage, {**names, **dict.fromkeys((a.name for a in ones), 0)})
        for read in reads(moved.body):
            if read.tensor in made and read.indices != made[read.tensor].write:
                return None
        made[stage.output] = moved
        found.append(moved)
    return tuple(found)


def _kernel(
    kernel: CanonicalKernel, stages: Sequence[Stage], depth: int, row: tuple[Axis, ...]
) -> TritonKernel:
    code, outer = code_of(kernel), kernel.stages[0].axes[:depth]
    whole = product(a.extent for a in row)
    if depth:
        code.flat(outer, code.let("row", code.program(0)), "", "")
    at = code.let("at", code.arange("BLOCK"))
    inside = code.let("inside", f"{at} < {code.index(whole)}")
    code.along("r", at)
    code.flat(row, at, inside, "r")
    for stage, given in zip(stages, kernel.stages, strict=True):
        value = code.value(stage.body)
        if stage.combine is not None and stage.reduce:
            none = number(identity(stage.combine, stage.body.dtype), stage.body.dtype)
            value = REDUCE[stage.combine].format(f"tl.where({inside}, {value}, {none})", 0)
        code.values[stage.output] = code.let(f"{stage.output}_here", value)
        if stage.output in kernel.outputs:
            own = not stage.reduce and _space(given, depth)
            code.store(stage, code.values[stage.output], "r" if own else "")
    count = size(product(a.extent for a in outer), kernel)
    blocks = (("BLOCK", f"triton.next_power_of_2({size(whole, kernel)})"),)
    return TritonKernel("rows", tuple(code.lines), (count,), blocks, checked=code.checked)
