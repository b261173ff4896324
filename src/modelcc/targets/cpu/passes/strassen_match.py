"""Recognises kernels that are matrix products of static size, by a constant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modelcc.ir.index import Index, Sym
from modelcc.ir.scalar_tree import depends_on, reads
from modelcc.ir.tensor import Apply, Axis, Kernel, Read, Stage, TensorProgram
from modelcc.ir.types import F32
from modelcc.passes.tensor.shared_axes import shared_axes

COLUMN_UNIT = 16
"""Blocks of columns start at multiples of this."""


@dataclass(frozen=True)
class MatrixProduct:
    """``sum[k] a[rows, k] * w[k, n]``, then ``epilogue`` stages over the same axes.

    ``rows`` are the axes that move ``a`` with their extents, outermost first; without extents of 1.
    ``transposed``: the constant is stored as ``w[n, k]``.
    """

    kernel: Kernel
    stage: Stage
    epilogue: tuple[Stage, ...]
    a: Read
    w: Read
    rows: tuple[tuple[str, int], ...]
    column: tuple[str, int]
    summed: tuple[str, int]
    transposed: bool


def match_product(kernel: Kernel, program: TensorProgram) -> MatrixProduct | None:
    """The product that ``kernel`` starts with; else None."""
    stages = shared_axes(kernel.stages)
    if stages is None or any(s.reduce for s in stages[1:]):
        return None
    stage, extents = stages[0], _extents(stages[0])
    operands = _operands(stage, program)
    summed = [a.name for a in stage.reduce if a.extent != 1]
    if operands is None or extents is None or len(summed) != 1:
        return None
    a, w = operands
    column = next((n for n in extents if n not in summed and depends_on(w, n)), None)
    if column is None or depends_on(a, column) or not _fits(kernel, (a, w), program):
        return None
    places: tuple[Index, ...] = (Sym(summed[0]), Sym(column))
    if w.indices not in (places, places[::-1]) or Sym(summed[0]) not in a.indices:
        return None
    rows = tuple((n, e) for n, e in extents.items() if n not in (column, *summed))
    return MatrixProduct(
        kernel,
        stage,
        stages[1:],
        a,
        w,
        rows,
        (column, extents[column]),
        (summed[0], extents[summed[0]]),
        w.indices != places,
    )


def _extents(stage: Stage) -> Mapping[str, int] | None:
    """Axes of more than one point; None if one is symbolic."""
    axes: tuple[Axis, ...] = (*stage.axes, *stage.reduce)
    found = {a.name: a.extent for a in axes if isinstance(a.extent, int) and a.extent != 1}
    return found if all(isinstance(a.extent, int) for a in axes) else None


def _operands(stage: Stage, program: TensorProgram) -> tuple[Read, Read] | None:
    """The run-time operand and the constant of a sum of products."""
    body = stage.body
    if stage.combine != "sum" or not (isinstance(body, Apply) and body.function == "mul"):
        return None
    match [r for r in body.args if isinstance(r, Read) and r.dtype == F32]:
        case [x, w] if w.tensor in program.constants and x.tensor not in program.constants:
            return x, w
        case [w, x] if w.tensor in program.constants and x.tensor not in program.constants:
            return x, w
        case _:
            return None


def _fits(kernel: Kernel, operands: tuple[Read, Read], program: TensorProgram) -> bool:
    """Whether operands are row-major, and everything else is so within blocks of columns."""
    touched = {r.tensor for s in kernel.stages for r in reads(s.body)} | set(kernel.outputs)
    layouts = {t: program.types[t].layout for t in touched if t in program.types}
    if any(layouts[r.tensor] is not None for r in operands):
        return False
    parts = [p for layout in layouts.values() if layout is not None for p in layout.parts]
    return all(p.mod is None or COLUMN_UNIT % p.mod == 0 for p in parts)
