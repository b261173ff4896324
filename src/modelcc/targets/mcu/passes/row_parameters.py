"""Interleaves constants that belong to a row of a product: one address leads to all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.constant import Constant
from modelcc.ir.index import Sym
from modelcc.ir.naming import Names
from modelcc.ir.scalar_tree import reads, transform
from modelcc.ir.tensor import Item, Kernel, Read, Scalar, TensorProgram
from modelcc.ir.types import I32
from modelcc.targets.mcu.passes.scalar_constants import with_used_constants


@dataclass(frozen=True)
class RowParameters:
    """32-bit constants of a sum's epilogue along the same axis: biases, multipliers.

    before::

        program @main(%x: i8[2, 3]) -> (%y) {
          constant %b: i32[4] = "5a"
          constant %m: i32[4] = "5b"
          constant %w: i8[4, 3] = "5c"
          kernel @Product(%x: i8[2, 3], %w: i8[4, 3], %b: i32[4], %m: i32[4]) -> (%y: i32[2, 4]) {
            %s: i32[2, 4] = [p < 2, o < 4] sum[k < 3] i32(%x[p, k]) * i32(%w[o, k])
            %y: i32[2, 4] = [p < 2, o < 4] rounding_high_word(%s[p, o] + %b[o], %m[o])
          }
        }

    after::

        program @main(%x: i8[2, 3]) -> (%y) {
          constant %b.rows: i32[4, 2] = "5d"
          constant %w: i8[4, 3] = "5c"
          kernel @Product(%x: i8[2, 3], %w: i8[4, 3], %b.rows: i32[4, 2]) -> (%y: i32[2, 4]) {
            %s: i32[2, 4] = [p < 2, o < 4] sum[k < 3] i32(%x[p, k]) * i32(%w[o, k])
            %y: i32[2, 4] = [p < 2, o < 4] rounding_high_word(%s[p, o] + %b.rows[o, 0], %b.rows[o, 1])
          }
        }
    """  # noqa: E501

    def __call__(self, program: TensorProgram) -> TensorProgram:
        names, constants, types = Names(program.types), dict(program.constants), dict(program.types)
        items: list[Item] = []
        for item in program.items:
            found = _parameters(item, program.constants) if isinstance(item, Kernel) else []
            if isinstance(item, Kernel) and len(found) > 1:
                name = names.fresh(f"{found[0]}.rows")
                columns = [program.constants[n].data.reshape(-1) for n in found]
                constants[name] = Constant(np.ascontiguousarray(np.stack(columns, 1)))
                types[name] = constants[name].type
                item = _together(item, found, name)
            items.append(item)
        changed = replace(program, items=tuple(items), types=types, constants=constants)
        return with_used_constants(changed)


def _parameters(kernel: Kernel, constants: Mapping[str, Constant]) -> list[str]:
    """Constants of the same length as the first one, each read along one axis; none if the kernel
    has no preceding sum."""
    sums = [n for n, stage in enumerate(kernel.stages) if stage.combine == "sum" and stage.reduce]
    if not sums:
        return []
    after = [read for stage in kernel.stages[sums[0] + 1 :] for read in reads(stage.body)]
    found = {r.tensor: constants[r.tensor].type.elements for r in _along(after, constants)}
    others = {r.tensor for r in after} | {r.tensor for r in reads(kernel.stages[sums[0]].body)}
    others -= {r.tensor for r in _along(after, constants)}
    size = next(iter(found.values()), 1)
    return [n for n, count in found.items() if count == size and n not in others]


def _along(found: list[Read], constants: Mapping[str, Constant]) -> Iterator[Read]:
    for read in found:
        if read.tensor in constants and read.dtype == I32 and _axis(read, constants) is not None:
            yield read


def _axis(read: Read, constants: Mapping[str, Constant]) -> Sym | None:
    """The one axis that moves a read."""
    moved = [i for i in read.indices if i != 0]
    shape = constants[read.tensor].data.shape
    if len(moved) != 1 or not isinstance(moved[0], Sym):
        return None
    return moved[0] if max(shape) == constants[read.tensor].data.size else None


def _together(kernel: Kernel, names: list[str], name: str) -> Kernel:
    def visit(node: Scalar) -> Scalar:
        if not isinstance(node, Read) or node.tensor not in names:
            return node
        row = next(i for i in node.indices if i != 0)
        return replace(node, tensor=name, indices=(row, names.index(node.tensor)))

    stages = tuple(replace(s, body=transform(s.body, visit)) for s in kernel.stages)
    kept = [n for n in kernel.inputs if n not in names]
    return replace(kernel, stages=stages, inputs=(*kept, name))
