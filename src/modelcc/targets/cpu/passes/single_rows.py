"""A branch at run time: products with a symbolic number of rows, which may be one.

A product that reads each element of an operand once is memory-bound, and gains nothing from a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from modelcc.ir.index import Index, Sym, compare, product
from modelcc.ir.region import Branch
from modelcc.ir.scalar_tree import substitute_stage
from modelcc.ir.tensor import Apply, Axis, IndexValue, Item, Kernel, Number, Stage, TensorProgram
from modelcc.ir.types import BOOL, I64, TensorType


def unless_single(
    kernel: Kernel, rows: Sequence[Axis], otherwise: Sequence[Item], program: TensorProgram
) -> tuple[list[Item], dict[str, TensorType]] | None:
    """A branch: ``kernel`` unchanged if its ``rows`` are one, ``otherwise`` if not.

    Returns items, and the types of new tensors.  None if the extents are not symbolic or never one,
    or others write parts of the kernel's outputs.
    """
    if any(compare(a.extent, "==", 1, program.dims) is False for a in rows):
        return None
    sizes: dict[str, Index] = {a.extent.name: 1 for a in rows if isinstance(a.extent, Sym)}
    if not sizes or not all(a.extent == 1 or isinstance(a.extent, Sym) for a in rows):
        return None
    if any(s.output in kernel.outputs and not _is_whole(s, program) for s in kernel.stages):
        return None
    name = f"{kernel.outputs[0]}.single"
    count = IndexValue(product(a.extent for a in rows), I64)
    stage = Stage(name, (), (), Apply("eq", (count, Number(1, I64)), BOOL))
    single = replace(kernel, stages=tuple(substitute_stage(s, sizes) for s in kernel.stages))
    items: list[Item] = [
        Kernel("Single", (), (name,), (stage,), kernel.source),
        Branch(name, kernel.outputs, (single,), tuple(otherwise), kernel.source),
    ]
    return items, {name: TensorType((), BOOL)}


def _is_whole(stage: Stage, program: TensorProgram) -> bool:
    """Whether the stage alone writes all of its output."""
    writers = [i for i in program.items if isinstance(i, Kernel) and stage.output in i.outputs]
    plain = stage.write == tuple(Sym(a.name) for a in stage.axes)
    extents = tuple(a.extent for a in stage.axes)
    return plain and len(writers) == 1 and program.types[stage.output].shape == extents
