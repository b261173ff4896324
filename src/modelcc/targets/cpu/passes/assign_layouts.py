"""Layout assignment: blocked channels and zero borders for convolution networks.

Ops are written on logical indices, so this changes types only; where a row-major tensor is
required (model inputs and outputs, views) a copy is inserted.  Layout propagation follows NeoCPU
(Liu et al., "Optimizing CNN model inference on CPUs", 2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from modelcc.ir.index import Index, Sym
from modelcc.ir.scalar_tree import reads, transform
from modelcc.ir.tensor import (
    Axis,
    Item,
    Kernel,
    Read,
    Scalar,
    Stage,
    TensorProgram,
    View,
    item_inputs,
    item_outputs,
)
from modelcc.ir.types import BF16, Layout, TensorType, blocked, row_major
from modelcc.targets.cpu.passes.layout_preference import (
    QUAD,
    Border,
    blocked_dims,
    blocked_operands,
    byte_dims,
    halos,
    stages_of,
    view_indices,
)


@dataclass(frozen=True)
class AssignLayouts:
    """``block`` channels innermost, ``several`` times as many of bf16 if that divides them; halos
    of up to ``widest_halo`` elements per side for tensors of symbolic shape.

    before::

        program @main(%x: f32[1, 4, 9]) -> (%y) {
          constant %w: f32[16, 4, 3] = "w"
          kernel @Conv(%x: f32[1, 4, 9], %w: f32[16, 4, 3]) -> (%y: f32[1, 16, 9]) {
            %y: f32[1, 16, 9] = [n < 1, o < 16, h < 9] sum[i < 4, a < 3]
              (%x[n, i, a + h - 1] if [a + h >= 1, a + h < 10] else 0.0) * %w[o, i, a]
          }
        }

    after::

        program @main(%x: f32[1, 4, 9]) -> (%y) {
          constant %w: f32[16, 4, 3] = "w"
          kernel @Copy(%x: f32[1, 4, 9])
            -> (%x.padded: f32[1, 4, 9]<d0 d1 d2 halo0:0,0:0,1:1>) {
            %x.padded: f32[1, 4, 9]<d0 d1 d2 halo0:0,0:0,1:1> =
              [c0 < 1, c1 < 4, c2 < 9] %x[c0, c1, c2]
          }
          kernel @Conv(%x.padded: f32[1, 4, 9]<d0 d1 d2 halo0:0,0:0,1:1>, %w: f32[16, 4, 3])
            -> (%y.blocked: f32[1, 16, 9]<d0 d1/16 d2 d1%16>) {
            %y.blocked: f32[1, 16, 9]<d0 d1/16 d2 d1%16> =
              [n < 1, o < 16, h < 9] sum[i < 4, a < 3]
              (%x.padded[n, i, a + h - 1] if [a + h >= 1, a + h < 10] else 0.0) * %w[o, i, a]
          }
          kernel @Copy(%y.blocked: f32[1, 16, 9]<d0 d1/16 d2 d1%16>) -> (%y: f32[1, 16, 9]) {
            %y: f32[1, 16, 9] = [c0 < 1, c1 < 16, c2 < 9] %y.blocked[c0, c1, c2]
          }
        }
    """

    block: int = 16
    widest_halo: int = 64
    several: int = 1

    def __call__(self, program: TensorProgram) -> TensorProgram:
        constants = frozenset(program.constants)
        inputs = frozenset(program.inputs)
        dims = blocked_dims(program.items, program.types, constants, inputs, self.block)
        borders = halos(program.items, program.types, program.dims, self.widest_halo)
        summed = _read_by_reductions(program)
        copied = (inputs | (_plain_results(program) - dims.keys())) & summed
        moved = _movable_views(program) & borders.keys() & summed
        own = dims.keys() | copied | moved | (summed - _fixed(program))
        borders = {t: b for t, b in borders.items() if t in own}
        operands = blocked_operands(program.items, program.types, copied | moved, dims, self.block)
        operands = {t: d for t, d in operands.items() if t in copied or t not in program.outputs}
        bytes = byte_dims(program.items, program.types)
        operands |= {t: d for t, d in bytes.items() if t in copied}
        program = _copied(program, copied & (borders.keys() | operands.keys()))
        program = _copy_outputs(program, dims)
        types = {**program.types}
        for name in dict.fromkeys((*dims, *operands, *borders)):
            dim = dims.get(name, operands.get(name))
            layout = self._layout(program.types[name], dim, borders.get(name))
            target = next((t for t in (_blocked(name), _padded(name)) if t in types), name)
            types[target] = types[target].with_layout(layout)
        return _expand_views(replace(program, types=types))

    def _layout(self, type_: TensorType, dim: int | None, border: Border | None) -> Layout:
        extent = self.block if dim is None else type_.shape[dim]
        few = isinstance(extent, int) and extent * 2 < self.block
        wide = self.block * (self.several if type_.dtype == BF16 else 1)
        whole = isinstance(extent, int) and extent % wide == 0
        block = QUAD if few else wide if whole else self.block
        plain = row_major(type_.rank) if dim is None else blocked(type_.rank, dim, block)
        if border is None:
            return plain
        # Blocks start at multiples of their size, so the blocked dimension has no border.
        halo = tuple((0, 0) if d == dim else h for d, h in enumerate(border.sides))
        return Layout(plain.parts, halo, border.fill)


def _read_by_reductions(program: TensorProgram) -> frozenset[str]:
    """Tensors that benefit from a halo, inputs and results in a copy."""
    reductions = [s for s in stages_of(program.items) if s.reduce]
    return frozenset(r.tensor for s in reductions for r in reads(s.body))


def _fixed(program: TensorProgram) -> frozenset[str]:
    """Tensors that others access as row-major memory."""
    viewed = {t for i in program.items if isinstance(i, View) for t in (i.input, i.output)}
    return frozenset((*program.inputs, *program.outputs, *program.constants, *viewed))


def _plain_results(program: TensorProgram) -> frozenset[str]:
    """Program outputs computed by kernels: others access them without a halo."""
    kernels = [item for item in program.items if isinstance(item, Kernel)]
    return frozenset(program.outputs) & {t for k in kernels for t in k.outputs}


def _movable_views(program: TensorProgram) -> frozenset[str]:
    """Results of views that only kernels read: copied where they are made, they may have a halo."""
    views = [item for item in program.items if isinstance(item, View)]
    others = {t for i in program.items if not isinstance(i, Kernel) for t in item_inputs(i)}
    return frozenset(v.output for v in views) - others - frozenset(program.outputs)


def _padded(name: str) -> str:
    return f"{name}.padded"


def _blocked(name: str) -> str:
    return f"{name}.blocked"


def _copy(source: str, target: str, type_: TensorType, nodes: tuple[str, ...]) -> Kernel:
    axes = tuple(Axis(f"c{n}", e) for n, e in enumerate(type_.shape))
    point: tuple[Index, ...] = tuple(Sym(a.name) for a in axes)
    stage = Stage(target, axes, point, Read(source, point, type_.dtype))
    return Kernel("Copy", (source,), (target,), (stage,), nodes)


def _copied(program: TensorProgram, copied: frozenset[str]) -> TensorProgram:
    """Copies inputs and results that reductions read in another layout; they read the copies."""
    names = {t: _padded(t) for t in (*program.inputs, *program.outputs) if t in copied}
    if not names:
        return program
    types = {**program.types, **{new: program.types[old] for old, new in names.items()}}
    copies = {old: _copy(old, new, types[old], ()) for old, new in names.items()}
    last = {t: n for n, item in enumerate(program.items) for t in item_outputs(item)}
    items: list[Item] = [copies[t] for t in copies if t not in last]
    for position, item in enumerate(program.items):
        items.append(_rename_guarded(item, names))
        items += (copies[t] for t in item_outputs(item) if t in copies and last[t] == position)
    return replace(program, items=tuple(items), types=types)


def _rename_guarded(item: Item, names: Mapping[str, str]) -> Item:
    """Renames tensors in the reads of reductions."""
    if not isinstance(item, Kernel) or not any(s.reduce for s in item.stages):
        return item
    return _rename_reads(item, names)


def _rename_reads(kernel: Kernel, names: Mapping[str, str]) -> Kernel:
    def visit(node: Scalar) -> Scalar:
        if isinstance(node, Read) and node.tensor in names:
            return replace(node, tensor=names[node.tensor])
        return node

    stages = tuple(replace(s, body=transform(s.body, visit)) for s in kernel.stages)
    inputs = dict.fromkeys(r.tensor for s in stages for r in reads(s.body))
    return replace(kernel, stages=stages, inputs=tuple(inputs))


def _copy_outputs(program: TensorProgram, dims: Mapping[str, int]) -> TensorProgram:
    """Computes blocked graph outputs in a blocked tensor of their own, and copies them."""
    names = {o: _blocked(o) for o in program.outputs if o in dims}
    if not names:
        return program
    types = {**program.types, **{new: program.types[old] for old, new in names.items()}}
    items: list[Item] = []
    last = {o: n for n, i in enumerate(program.items) for o in item_outputs(i) if o in names}
    for position, item in enumerate(program.items):
        items.append(_renamed_everywhere(item, names))
        for output in item_outputs(item):
            if last.get(output) == position:
                copy = _copy(names[output], output, types[output], item.source)
                items.append(copy)
    return replace(program, items=tuple(items), types=types)


def _renamed_everywhere(item: Item, names: Mapping[str, str]) -> Item:
    if isinstance(item, View):
        return replace(item, input=names.get(item.input, item.input))
    if not isinstance(item, Kernel):
        return item  # its tensors are never blocked
    kernel = _rename_reads(item, names)
    stages = tuple(replace(s, output=names.get(s.output, s.output)) for s in kernel.stages)
    outputs = tuple(names.get(o, o) for o in kernel.outputs)
    return replace(kernel, stages=stages, outputs=outputs)


def _expand_views(program: TensorProgram) -> TensorProgram:
    """Replaces views of tensors that are no longer row-major by copies (which may be inlined)."""
    items: list[Item] = []
    for item in program.items:
        ends = (item.input, item.output) if isinstance(item, View) else ()
        if isinstance(item, View) and any(program.types[t].layout is not None for t in ends):
            stage = view_indices(item, program.types, program.dims)
            items.append(Kernel("Reshape", (item.input,), (item.output,), (stage,), item.source))
        else:
            items.append(item)
    return replace(program, items=tuple(items))
