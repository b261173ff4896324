"""Kernels whose launches compute some rows: those inside an image, of a range that may exceed it.

Rows outside of the image have a fill value::

    y[r + 2, c] = ... if 0 <= 3*turn + r - 1 < 25 else -128     [r < 3, c < 64]

is computed for rows ``begin`` to ``end``, arguments of a launch, and filled elsewhere.  The
destination of the first row may be an argument, too: ``row``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from modelcc.ir.condition import Condition
from modelcc.ir.index import Index, Sym, coefficient, maximum, minimum, substitute, symbols
from modelcc.ir.loop import Const, For, Stmt, Store
from modelcc.ir.tensor import Axis, Guard, Number, Scalar, Stage
from modelcc.ir.types import TensorType
from modelcc.schedule.canonical import CanonicalKernel, dimensions
from modelcc.schedule.expression import FreshNames

BEGIN, END, ROW = "begin", "end", "row"
"""Sizes of the function."""


@dataclass(frozen=True)
class SomeRows:
    """``kernel`` for all of its ``rows``, of which those from ``begin`` to ``end`` are computed,
    the others being ``fill``; ``sizes`` are the arguments of launches."""

    kernel: CanonicalKernel
    rows: int
    sizes: Mapping[str, Index]
    fill: Number

    def points(self, whole: int) -> tuple[Index, Index]:
        """The first and the end of the computed points, of ``whole`` points in all rows."""
        each = whole // self.rows
        return Sym(BEGIN) * each, Sym(END) * each

    def filled(
        self, tensor: str, start: Index, elements: int, names: FreshNames
    ) -> tuple[Stmt, ...]:
        """Fills the other rows of ``elements`` elements from ``start`` on."""
        first, last = self.points(elements)

        def loop(begin: Index, end: Index) -> For:
            i = names.fresh("i")
            value = Const(self.fill.value, self.fill.dtype)
            return For(i, begin, end, (Store(tensor, start + Sym(i), value),))

        return loop(0, first), loop(last, elements)


def some_rows(kernel: CanonicalKernel) -> SomeRows | None:
    """``kernel`` without the sizes that select its rows; None if it has none, or others."""
    final = kernel.stages[-1]
    known = {name for name, _ in kernel.dims}
    conditions, inside, fill = _guarded(final.body)
    named = {n for c in conditions for n in symbols(c.left) | symbols(c.right)}
    at = _place(final, named, known, dict(kernel.types)[final.output])
    if not known or kernel.outputs != (final.output,) or final.reduce or at is None:
        return None
    axis, dim = at
    assert isinstance(axis.extent, int)
    begin: Index = 0
    end: Index = axis.extent
    for c in conditions:
        apart = c.right - c.left
        step, rest = coefficient(apart, axis.name), substitute(apart, {axis.name: 0})
        if (c.comparison, step) == ("<=", 1):
            begin = maximum(0, minimum(axis.extent, 0 - rest))
        elif (c.comparison, step) == ("<", -1):
            end = maximum(0, minimum(axis.extent, rest))
        else:
            return None
    sizes: dict[str, Index] = {BEGIN: begin, END: end}
    write, place = final.write, substitute(final.write[dim], {axis.name: 0})
    if symbols(place):
        sizes[ROW] = place
        write = (*write[:dim], Sym(ROW) + Sym(axis.name), *write[dim + 1 :])
    bare = replace(kernel, stages=(*kernel.stages[:-1], replace(final, body=inside, write=write)))
    if dimensions(bare.stages, bare.types) & known:
        return None
    return SomeRows(replace(bare, dims=()), axis.extent, sizes, fill)


def _guarded(body: Scalar) -> tuple[tuple[Condition, ...], Scalar, Number]:
    """Conditions on a row, the value if they hold, and the fill value."""
    match body:
        case Guard(conditions, inside, Number() as fill):
            return conditions, inside, fill
        case _:
            return (), body, Number(0, body.dtype)


def _place(
    final: Stage, named: set[str], known: set[str], type_: TensorType
) -> tuple[Axis, int] | None:
    """The axis of rows, and its dimension: the outermost of extent other than 1."""
    for dim, extent in enumerate(type_.shape):
        index = final.write[dim]
        axis = next((a for a in final.axes if coefficient(index, a.name) == 1), None)
        here = axis is not None and (axis.name in named or symbols(index) & known)
        if axis is not None and here and isinstance(axis.extent, int) and type_.layout is None:
            before = final.axes[: final.axes.index(axis)]
            return (axis, dim) if all(a.extent == 1 for a in before) else None
        if extent != 1:
            return None
    return None
