"""Inlining of elementwise producers into the stages that read them.

Data movement (a read at other indices) is inlined wherever it is read, also into reductions;
arithmetic only where it is read once, by an elementwise stage, and dear arithmetic only where that
does not repeat it for every point of an axis that the producer lacks (gates of channels).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from modelcc.ir.index import Bounds, Index, Sym, loop_range, simplify, split_affine, symbols
from modelcc.ir.scalar_tree import cost, map_indices, reads, substitute_indices, transform, walk
from modelcc.ir.tensor import (
    Apply,
    Axis,
    Bind,
    Item,
    Kernel,
    Read,
    Scalar,
    Stage,
    TensorProgram,
    item_inputs,
)
from modelcc.ir.types import TensorType

WORTH_STORING = 8
"""Cost of a value that is rather read from memory than computed anew for every reader's point."""


@dataclass(frozen=True)
class InlineStages:
    """Inline single-stage producers; ``movement_readers`` bounds the copies of a moved read.

    before::

        program @main(%x: f32[n, 4]) -> (%c) dims(n in 1:) {
          kernel @Add(%x: f32[n, 4]) -> (%b: f32[n, 4]) {
            %b: f32[n, 4] = [i < n, j < 4] %x[i, j] + 1.0
          }
          kernel @Transpose(%b: f32[n, 4]) -> (%t: f32[4, n]) {
            %t: f32[4, n] = [i < 4, j < n] %b[j, i]
          }
          kernel @Relu(%t: f32[4, n]) -> (%c: f32[4, n]) {
            %c: f32[4, n] = [i < 4, j < n] max(%t[i, j], 0.0)
          }
        }

    after::

        program @main(%x: f32[n, 4]) -> (%c) dims(n in 1:) {
          kernel @Relu(%x: f32[n, 4]) -> (%c: f32[4, n]) {
            %c: f32[4, n] = [i < 4, j < n] max(%x[j, i] + 1.0, 0.0)
          }
        }
    """

    movement_readers: int = 8

    def __call__(self, program: TensorProgram) -> TensorProgram:
        usage = _Usage.of(program)
        bodies: dict[str, Kernel] = {}
        items: list[Item] = []
        for item in program.items:
            if not isinstance(item, Kernel):
                items.append(item)
                continue
            kernel = _inline_into(item, bodies, program.dims)
            stage = kernel.stages[0]
            if self._inlines(stage, usage, program):
                bodies[stage.output] = kernel
                if stage.output not in usage.pinned:
                    continue
            items.append(kernel)
        return program.with_items(tuple(items))

    def _inlines(self, stage: Stage, usage: _Usage, program: TensorProgram) -> bool:
        simple = stage.write == tuple(Sym(a.name) for a in stage.axes) and not stage.reduce
        readers = usage.readers.get(stage.output, [])
        if not simple or not readers or usage.writers[stage.output] != 1:
            return False
        if _has_border(program.types[stage.output]):
            return False
        if any(isinstance(s, Bind) for s in walk(stage.body)):
            return False
        if cost(stage.body) == 0:
            accepted = all(_accepts_movement(r, stage, program) for r in readers)
            return accepted and len(readers) <= self.movement_readers
        if len(readers) != 1 or readers[0].reduce or stage.output in usage.pinned:
            return False
        return cost(stage.body) < WORTH_STORING or not _repeats(readers[0], stage.output)


def _has_border(type_: TensorType) -> bool:
    """Whether readers count on a zero border, which only a stored tensor has."""
    return type_.layout is not None and any(b or a for b, a in type_.layout.halo)


def _repeats(reader: Stage, tensor: str) -> bool:
    """Whether ``reader`` has an axis along which it reads one element of ``tensor`` over again."""
    found = [r for r in reads(reader.body) if r.tensor == tensor]
    moving = {n for r in found for i in r.indices for n in symbols(i)}
    return any(a.extent != 1 and a.name not in moving for a in reader.axes)


def _accepts_movement(reader: Stage, moved: Stage, program: TensorProgram) -> bool:
    """Whether ``reader`` may read through the movement ``moved``.

    Reductions accept it only as operands of a product and where positions stay affine; walking a
    row through a permutation several times would cost more than moving it once.
    """
    if not reader.reduce:
        return True
    if not _is_product(reader):
        return False
    ranges = {**program.dims, **{a.name: loop_range(a.extent) for a in _axes(reader)}}
    names = [a.name for a in _axes(reader)]
    for read in reads(reader.body):
        if read.tensor != moved.output:
            continue
        for inner in reads(_moved_body(moved, read.indices)):
            indices = [simplify(i, ranges) for i in inner.indices]
            if any(split_affine(i, names) is None for i in indices):
                return False
    return True


def _axes(stage: Stage) -> tuple[Axis, ...]:
    return (*stage.axes, *stage.reduce)


def _is_product(stage: Stage) -> bool:
    return stage.combine == "sum" and isinstance(stage.body, Apply) and stage.body.function == "mul"


def _moved_body(moved: Stage, indices: tuple[Index, ...]) -> Scalar:
    values = {a.name: i for a, i in zip(moved.axes, indices, strict=True)}
    return substitute_indices(moved.body, values)


class _Usage:
    """Who reads and writes tensors, and which must exist in memory (outputs, viewed ones)."""

    def __init__(self, pinned: frozenset[str]) -> None:
        self.pinned = pinned
        self.readers: dict[str, list[Stage]] = {}
        self.writers: dict[str, int] = {}

    @staticmethod
    def of(program: TensorProgram) -> _Usage:
        whole = {t for i in program.items if not isinstance(i, Kernel) for t in item_inputs(i)}
        usage = _Usage(frozenset(whole | set(program.outputs)))
        for item in program.items:
            if not isinstance(item, Kernel):
                continue
            for stage in item.stages:
                usage.writers[stage.output] = usage.writers.get(stage.output, 0) + 1
                for read in reads(stage.body):
                    usage.readers.setdefault(read.tensor, []).append(stage)
        return usage


def _inline_into(kernel: Kernel, bodies: Mapping[str, Kernel], dims: Bounds) -> Kernel:
    stage = kernel.stages[0]
    if not any(r.tensor in bodies for r in reads(stage.body)):
        return kernel
    ranges = {**dims, **{a.name: loop_range(a.extent) for a in (*stage.axes, *stage.reduce)}}

    def visit(node: Scalar) -> Scalar:
        if not (isinstance(node, Read) and node.tensor in bodies):
            return node
        return _moved_body(bodies[node.tensor].stages[0], node.indices)

    body = map_indices(transform(stage.body, visit), lambda i: simplify(i, ranges))
    inputs = tuple(dict.fromkeys(r.tensor for r in reads(body)))
    absorbed = [bodies[r.tensor].source for r in reads(stage.body) if r.tensor in bodies]
    source = tuple(dict.fromkeys(name for names in (*absorbed, kernel.source) for name in names))
    return replace(kernel, inputs=inputs, stages=(replace(stage, body=body),), source=source)
