"""Constant weights as rows, in the order in which their products are added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.constant import Constant
from modelcc.ir.index import Index, Sym, symbols
from modelcc.ir.naming import Names
from modelcc.ir.scalar_tree import reads, transform
from modelcc.ir.tensor import Axis, Item, Kernel, Read, Stage, TensorProgram
from modelcc.ir.types import TensorType
from modelcc.targets.mcu.passes.scalar_constants import with_used_constants


@dataclass(frozen=True)
class FlatWeights:
    """A product's reduction steps follow the memory order of the other operand.

    before::

        program @main(%x: i8[8, 8, 4]) -> (%y) {
          constant %w: i8[6, 4, 3, 3] = "5a"
          kernel @Conv(%x: i8[8, 8, 4], %w: i8[6, 4, 3, 3]) -> (%y: i32[6, 6, 6]) {
            %y: i32[6, 6, 6] = [p < 6, q < 6, o < 6] sum[c < 4, a < 3, b < 3] i32(%x[p + a, q + b, c]) * i32(%w[o, c, a, b])
          }
        }

    after::

        program @main(%x: i8[8, 8, 4]) -> (%y) {
          constant %w.flat: i8[6, 36] = "c3"
          kernel @Conv(%x: i8[8, 8, 4], %w.flat: i8[6, 36]) -> (%y: i32[6, 6, 6]) {
            %y: i32[6, 6, 6] = [p < 6, q < 6, o < 6] sum[a < 3, b < 3, c < 4] i32(%x[p + a, q + b, c]) * i32(%w.flat[o, 12*a + 4*b + c])
          }
        }
    """  # noqa: E501

    def __call__(self, program: TensorProgram) -> TensorProgram:
        names, known = Names(program.types), dict(program.constants)
        types, items = dict(program.types), list[Item]()
        for item in program.items:
            found = _flat(item, program.constants) if isinstance(item, Kernel) else None
            if found is not None and isinstance(item, Kernel):
                name = names.fresh(f"{found.read.tensor}.flat")
                known[name] = Constant(found.data)
                types[name] = TensorType(tuple(found.data.shape), found.read.dtype)
                item = found.applied(item, name)
            items.append(item)
        return with_used_constants(
            replace(program, items=tuple(items), types=types, constants=known)
        )


@dataclass(frozen=True)
class _Flat:
    """The stage, its read of weights, the data and indices that replace it, and the order of its
    reduction."""

    stage: Stage
    read: Read
    data: np.ndarray[tuple[int, ...], np.dtype[np.generic]]
    indices: tuple[Index, ...]
    reduce: tuple[Axis, ...]

    def applied(self, kernel: Kernel, name: str) -> Kernel:
        """``kernel`` reading the weights ``name``."""
        new = Read(name, self.indices, self.read.dtype)
        body = transform(self.stage.body, lambda node: new if node == self.read else node)
        stage = replace(self.stage, body=body, reduce=self.reduce)
        stages = tuple(stage if s is self.stage else s for s in kernel.stages)
        old = self.read.tensor
        inputs = tuple(name if n == old else n for n in kernel.inputs)
        kept = (old,) if any(r.tensor == old for s in stages for r in reads(s.body)) else ()
        return replace(kernel, stages=stages, inputs=(*inputs, *kept))


def _flat(kernel: Kernel, constants: Mapping[str, Constant]) -> _Flat | None:
    for stage in kernel.stages:
        operands = [r for r in reads(stage.body) if r.tensor not in constants]
        weights = [r for r in reads(stage.body) if r.tensor in constants]
        if stage.combine == "sum" and len(operands) == len(weights) == 1:
            return _ordered(stage, operands[0], weights[0], constants)
    return None


def _ordered(
    stage: Stage, operand: Read, weights: Read, constants: Mapping[str, Constant]
) -> _Flat | None:
    """Weights whose dimensions each have one axis; those of extent 1 need none."""
    data = constants[weights.tensor].data
    axes = {a.name: a for a in (*stage.axes, *stage.reduce)}
    dims: dict[str, int] = {}
    for dim, index in enumerate(weights.indices):
        match index:
            case Sym(name) if name in axes and axes[name].extent == data.shape[dim]:
                dims[name] = dim
            case 0 if data.shape[dim] == 1:
                pass
            case _:
                return None
    summed = [a for a in stage.reduce if a.extent != 1]
    outside = [a.name for a in stage.axes if a.name in dims]
    order = _by_place(summed, operand)
    if order is None or any(a.name not in dims for a in summed) or not summed:
        return None
    lead = [dims[name] for name in outside]
    last = [dims[a.name] for a in order]
    rest = [d for d in range(data.ndim) if d not in (*lead, *last)]
    rows = np.transpose(data, (*rest, *lead, *last))
    flat = np.ascontiguousarray(rows.reshape(*(data.shape[d] for d in lead), -1))
    place: Index = 0
    for axis in order:
        place = place * axis.extent + Sym(axis.name)
    if flat.shape == data.shape and weights.indices == (*map(Sym, outside), place):
        return None
    ones = tuple(a for a in stage.reduce if a.extent == 1)
    return _Flat(stage, weights, flat, (*map(Sym, outside), place), (*ones, *order))


def _by_place(axes: Sequence[Axis], operand: Read) -> list[Axis] | None:
    """Reduction axes ordered by the dimension of the operand that they move along."""
    places: dict[str, int] = {}
    for dim, index in enumerate(operand.indices):
        for name in symbols(index):
            if name in places:
                return None
            places[name] = dim
    if any(a.name not in places or not isinstance(a.extent, int) for a in axes):
        return None
    return sorted(axes, key=lambda axis: places[axis.name])
