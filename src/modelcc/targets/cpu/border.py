"""Borders (halos): a kernel that writes a tensor with a halo also fills it."""

from __future__ import annotations

from modelcc.ir.index import Index, Sym, ceildiv
from modelcc.ir.loop import Const, For, Stmt, Store
from modelcc.ir.types import TensorType
from modelcc.schedule.expression import FreshNames
from modelcc.targets.cpu.machine import CpuModel


def clear_border(name: str, type_: TensorType, names: FreshNames, machine: CpuModel) -> list[Stmt]:
    """Statements that fill the border of ``name``; nothing without one.

    Follows the physical order: for each bordered part, the slabs before and after its interior.
    """
    layout = type_.physical
    extents = layout.physical_shape(type_.shape)
    result: list[Stmt] = []
    for position, part in enumerate(layout.parts):
        before, after = layout.halo[part.axis]
        if part.mod is not None or part.div != 1 or not (before or after):
            continue
        inner: Index = 1
        for extent in extents[position + 1 :]:
            inner = inner * extent
        outer: Index = 1
        for extent in extents[:position]:
            outer = outer * extent
        plane = extents[position] * inner
        interior = before + type_.shape[part.axis]
        for start, count in ((0, before), (interior, after)):
            if count:
                slab = _Slab(outer, plane, start * inner, inner * count)
                result += _clear(name, type_, slab, names, machine)
    return result


class _Slab:
    """``outer`` runs of ``length`` contiguous elements, ``stride`` apart, from ``first``."""

    def __init__(self, outer: Index, stride: Index, first: Index, length: Index) -> None:
        self.outer = outer
        self.stride = stride
        self.first = first
        self.length = length


def _clear(
    name: str, type_: TensorType, slab: _Slab, names: FreshNames, machine: CpuModel
) -> list[Stmt]:
    lanes = machine.lanes(type_.dtype.bits)
    run, vector = names.fresh("border"), names.fresh("z")
    fill = type_.physical.fill
    zero = Const(float(fill) if type_.dtype.is_float else fill, type_.dtype, lanes)
    start = slab.first + Sym(run) * slab.stride
    whole = isinstance(slab.length, int) and slab.length % lanes == 0
    active = None if whole else slab.length - Sym(vector) * lanes
    store = Store(name, start + Sym(vector) * lanes, zero, 1, active)
    across = For(vector, 0, ceildiv(slab.length, lanes), (store,))
    return [For(run, 0, slab.outer, (across,))]
