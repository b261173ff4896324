"""Packing of run-time operands that a product would read from far apart places.

Constants are packed at compile time by the schedule and are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from modelcc.ir.index import Index, Sym, coefficient, product, symbols
from modelcc.ir.scalar_tree import reads, transform
from modelcc.ir.tensor import Apply, Axis, Item, Kernel, Read, Scalar, Stage, TensorProgram
from modelcc.ir.types import Layout, Part, TensorType


@dataclass(frozen=True)
class PackOperands:
    """``block`` vector lanes innermost; an operand read fewer than ``reuse`` times stays.

    So does one whose lanes lie side by side, unless it is read ``rows`` times (None: never) and has
    more than ``near`` bytes to a product.  Vectors that follow each other along the sum are in
    different rows then, maybe in different pages, and fight for few places of the first cache
    (Goto & van de Geijn, "Anatomy of high-performance matrix multiplication", 2008).

    before::

        program @main(%q: f32[8, 4], %k: f32[24, 4]) -> (%s) {
          kernel @MatMul(%q: f32[8, 4], %k: f32[24, 4]) -> (%s: f32[8, 24]) {
            %s: f32[8, 24] = [m < 8, n < 24] sum[d < 4] %q[m, d] * %k[n, d]
          }
        }

    after::

        program @main(%q: f32[8, 4], %k: f32[24, 4]) -> (%s) {
          kernel @Pack(%k: f32[24, 4]) -> (%s.packed: f32[24, 4]<d0/16 d1 d0%16>) {
            %s.packed: f32[24, 4]<d0/16 d1 d0%16> = [n < 24, d < 4] %k[n, d]
          }
          kernel @MatMul(%q: f32[8, 4], %s.packed: f32[24, 4]<d0/16 d1 d0%16>)
            -> (%s: f32[8, 24]) {
            %s: f32[8, 24] = [m < 8, n < 24] sum[d < 4] %q[m, d] * %s.packed[n, d]
          }
        }
    """

    block: int = 16
    reuse: int = 4
    rows: int | None = None
    near: int = 32 << 10

    def __call__(self, program: TensorProgram) -> TensorProgram:
        types = dict(program.types)
        items: list[Item] = []
        for item in program.items:
            packed = self._pack(item, program) if isinstance(item, Kernel) else None
            if packed is None:
                items.append(item)
                continue
            copy, kernel, type_ = packed
            types[copy.outputs[0]] = type_
            items += [copy, kernel]
        return replace(program, items=tuple(items), types=types)

    def _pack(
        self, kernel: Kernel, program: TensorProgram
    ) -> tuple[Kernel, Kernel, TensorType] | None:
        stage, *others = kernel.stages
        lane = _vector_axis(stage)
        read = _vectors(stage, lane, program) if lane is not None else None
        if lane is None or read is None or not self._worth(stage, read, lane):
            return None
        if others and (self.rows is None or any(s.reduce for s in others)):
            return None
        if read.tensor not in kernel.inputs:
            return None
        axes = _axes_of(read, stage)
        name = f"{stage.output}.packed"
        point: tuple[Index, ...] = tuple(Sym(a.name) for a in axes)
        layout = self._layout(axes, lane, stage.reduce)
        type_ = TensorType(tuple(a.extent for a in axes), read.dtype, layout)
        copy = Stage(name, axes, point, read)
        body = _replace_read(stage.body, read, Read(name, point, read.dtype))
        stages = (replace(stage, body=body), *others)
        left = {r.tensor for s in stages for r in reads(s.body)}
        inputs = [name if t == read.tensor else t for t in kernel.inputs]
        inputs += [read.tensor] if read.tensor in left else []
        changed = replace(kernel, inputs=tuple(inputs), stages=stages)
        return Kernel("Pack", (read.tensor,), (name,), (copy,), kernel.source), changed, type_

    def _worth(self, stage: Stage, read: Read, lane: Axis) -> bool:
        used = {n for i in read.indices for n in symbols(i)}
        reuse = product(a.extent for a in stage.axes if a.name not in used)
        wide = not isinstance(lane.extent, int) or lane.extent * 2 >= self.block
        least = self.reuse
        if coefficient(read.indices[-1], lane.name) != 0:
            if any(len(symbols(i)) > 1 for i in read.indices):
                return False  # what windows share would be copied for each
            size = product(a.extent for a in (lane, *stage.reduce)) * read.dtype.bytes
            if self.rows is None or (isinstance(size, int) and size <= self.near):
                return False
            least = self.rows
        return wide and (not isinstance(reuse, int) or reuse >= least)

    def _layout(self, axes: tuple[Axis, ...], lane: Axis, summed: tuple[Axis, ...]) -> Layout:
        """Blocks of lanes innermost, those that are summed next to each other."""
        position = axes.index(lane)
        parts = [Part(n, self.block if n == position else 1) for n in range(len(axes))]
        parts.sort(key=lambda part: axes[part.axis] in summed)
        return Layout((*parts, Part(position, 1, self.block)), ((0, 0),) * len(axes))


def _vector_axis(stage: Stage) -> Axis | None:
    """The axis of the output's last dimension, for sums of products."""
    is_product = isinstance(stage.body, Apply) and stage.body.function == "mul"
    if stage.combine != "sum" or not is_product or not stage.write:
        return None
    return next((a for a in stage.axes if stage.write[-1] == Sym(a.name)), None)


def _vectors(stage: Stage, lane: Axis, program: TensorProgram) -> Read | None:
    """The operand that moves along ``lane``, if it alone does and lies as the model says."""
    if not isinstance(stage.body, Apply):
        return None
    moving = [
        r
        for r in stage.body.args
        if isinstance(r, Read) and any(lane.name in symbols(i) for i in r.indices)
    ]
    if len(moving) != 1 or len([r for r in stage.body.args if isinstance(r, Read)]) != 2:
        return None
    read = moving[0]
    plain = program.types[read.tensor].layout is None and read.tensor not in program.constants
    return read if plain else None


def _axes_of(read: Read, stage: Stage) -> tuple[Axis, ...]:
    """The axes that move ``read``, in the order of its dimensions."""
    order = dict.fromkeys(n for i in read.indices for n in sorted(symbols(i)))
    by_name: Mapping[str, Axis] = {a.name: a for a in (*stage.axes, *stage.reduce)}
    return tuple(by_name[n] for n in order if n in by_name)


def _replace_read(body: Scalar, old: Read, new: Read) -> Scalar:
    return transform(body, lambda node: new if node == old else node)
