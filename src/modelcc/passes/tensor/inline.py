"""Inlining of elementwise producers into the stages that read them.

Before and after::

    %b = [i < n] %x[i] + 1.0            %c = [i < n] max(%x[i] + 1.0, 0.0)
    %c = [i < n] max(%b[i], 0.0)

Data movement (a read at other indices) is inlined wherever it is read, also into reductions;
arithmetic only where it is read once, by an elementwise stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from modelcc.ir.index import Bounds, Index, Sym, loop_range, simplify
from modelcc.ir.scalar_tree import cost, map_indices, reads, substitute_indices, transform, walk
from modelcc.ir.tensor import Bind, Item, Kernel, Read, Scalar, Stage, TensorProgram, View


@dataclass(frozen=True)
class InlineStages:
    """Inline single-stage producers; ``movement_readers`` bounds the copies of a moved read."""

    movement_readers: int = 8

    def __call__(self, program: TensorProgram) -> TensorProgram:
        usage = _Usage.of(program)
        bodies: dict[str, Kernel] = {}
        items: list[Item] = []
        for item in program.items:
            if isinstance(item, View):
                items.append(item)
                continue
            kernel = _inline_into(item, bodies, program.dims)
            stage = kernel.stages[0]
            if self._inlines(stage, usage):
                bodies[stage.output] = kernel
                if stage.output not in usage.pinned:
                    continue
            items.append(kernel)
        return replace(program, items=tuple(items))

    def _inlines(self, stage: Stage, usage: _Usage) -> bool:
        simple = stage.write == tuple(Sym(a.name) for a in stage.axes) and not stage.reduce
        readers = usage.readers.get(stage.output, [])
        if not simple or not readers or usage.writers[stage.output] != 1:
            return False
        if any(isinstance(s, Bind) for s in walk(stage.body)):
            return False
        if cost(stage.body) == 0:
            return len(readers) <= self.movement_readers
        return len(readers) == 1 and not readers[0].reduce and stage.output not in usage.pinned


class _Usage:
    """Who reads and writes tensors, and which must exist in memory (outputs, viewed ones)."""

    def __init__(self, pinned: frozenset[str]) -> None:
        self.pinned = pinned
        self.readers: dict[str, list[Stage]] = {}
        self.writers: dict[str, int] = {}

    @staticmethod
    def of(program: TensorProgram) -> _Usage:
        viewed = {i.input for i in program.items if isinstance(i, View)}
        usage = _Usage(frozenset(viewed | set(program.outputs)))
        for item in program.items:
            if isinstance(item, View):
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
        producer = bodies[node.tensor].stages[0]
        values: dict[str, Index] = {
            axis.name: index for axis, index in zip(producer.axes, node.indices, strict=True)
        }
        return substitute_indices(producer.body, values)

    body = map_indices(transform(stage.body, visit), lambda i: simplify(i, ranges))
    inputs = tuple(dict.fromkeys(r.tensor for r in reads(body)))
    absorbed = [bodies[r.tensor].source for r in reads(stage.body) if r.tensor in bodies]
    source = tuple(dict.fromkeys(name for names in (*absorbed, kernel.source) for name in names))
    return replace(kernel, inputs=inputs, stages=(replace(stage, body=body),), source=source)
