"""Inlines differences of bytes and a zero point into products.

Stored, they would take twice the memory of the bytes, and in a product they are free: Arm's
instructions that extend bytes to halves also add.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from modelcc.ir.index import Index, substitute, symbols
from modelcc.ir.scalar_tree import substitute_indices, transform
from modelcc.ir.tensor import (
    Apply,
    Cast,
    Item,
    Kernel,
    Number,
    Read,
    Scalar,
    Stage,
    TensorProgram,
    item_inputs,
)
from modelcc.ir.types import I8, I16, U8
from modelcc.passes.tensor.fused_kernel import with_stages


@dataclass(frozen=True)
class InlineZeroPoints:
    """Inlines differences with constants into all readers.

    before::

        program @main(%x: i8[4, 8], %w: i8[8, 3]) -> (%y) {
          kernel @Sub(%x: i8[4, 8]) -> (%d: i16[4, 8]) {
            %d: i16[4, 8] = [i < 4, j < 8] i16(%x[i, j]) - -128:i16
          }
          kernel @MatMul(%d: i16[4, 8], %w: i8[8, 3]) -> (%y: i32[4, 3]) {
            %y: i32[4, 3] = [m < 4, n < 3] sum[k < 8] i32(%d[m, k]) * i32(%w[k, n])
          }
        }

    after::

        program @main(%x: i8[4, 8], %w: i8[8, 3]) -> (%y) {
          kernel @MatMul(%w: i8[8, 3], %x: i8[4, 8]) -> (%y: i32[4, 3]) {
            %y: i32[4, 3] = [m < 4, n < 3] sum[k < 8] i32(i16(%x[m, k]) - -128:i16) * i32(%w[k, n])
          }
        }
    """

    def __call__(self, program: TensorProgram) -> TensorProgram:
        needed = {n for i in program.items if not isinstance(i, Kernel) for n in item_inputs(i)}
        needed |= set(program.outputs)
        differences: dict[str, Stage] = {}
        items: list[Item] = []
        for item in program.items:
            match item:
                case Kernel(stages=(stage,)) if _is_difference(stage, needed):
                    differences[stage.output] = stage
                case Kernel():
                    items.append(_inlined(item, differences))
                case _:
                    items.append(item)
        return program.with_items(tuple(items))


def _inlined(kernel: Kernel, differences: Mapping[str, Stage]) -> Kernel:
    if differences.keys().isdisjoint(kernel.inputs):
        return kernel
    stages = tuple(replace(s, body=_with(s.body, differences)) for s in kernel.stages)
    return with_stages(kernel, stages)


def _with(body: Scalar, differences: Mapping[str, Stage]) -> Scalar:
    def visit(node: Scalar) -> Scalar:
        if not isinstance(node, Read) or node.tensor not in differences:
            return node
        stage = differences[node.tensor]
        values: dict[str, Index] = {}
        for index, own in zip(node.indices, stage.write, strict=True):
            for name in symbols(own):
                values[name] = index
        return substitute_indices(stage.body, values)

    return transform(body, visit)


def _is_difference(stage: Stage, needed: Collection[str]) -> bool:
    if stage.output in needed:
        return False
    whole = all(any(substitute(i, {a.name: 0}) == 0 for a in stage.axes) for i in stage.write)
    match stage.body:
        case Apply("sub", (Cast(Read(dtype=source), _), Number()), dtype) if whole:
            return source in (I8, U8) and dtype == I16 and not stage.reduce
        case _:
            return False
