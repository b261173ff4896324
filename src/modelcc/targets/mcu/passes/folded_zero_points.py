"""Folds zero points of bytes that are multiplied by constants into biases.

``sum (x - z) w`` is ``sum x w`` less ``z`` times the sum of weights, a constant: instructions that
multiply bytes need no differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.constant import Constant
from modelcc.ir.index import Index, Sym, symbols
from modelcc.ir.scalar_tree import reads, transform, walk
from modelcc.ir.tensor import (
    Apply,
    Cast,
    Guard,
    Item,
    Kernel,
    Number,
    Read,
    Scalar,
    Stage,
    TensorProgram,
)
from modelcc.ir.types import I8, I32, Array
from modelcc.passes.tensor.added_constants import AddedConstants
from modelcc.passes.tensor.fused_kernel import with_stages
from modelcc.targets.mcu.passes.scalar_constants import with_used_constants


@dataclass(frozen=True)
class FoldZeroPoints:
    """Every sum of products by rows of bytes gets a bias of each row, and loses its zero point.

    before::

        program @main(%x: i8[4, 8]) -> (%y) {
          constant %w: i8[3, 8] = "0c"
          kernel @MatMul(%x: i8[4, 8], %w: i8[3, 8]) -> (%y: i32[4, 3]) {
            %s: i32[4, 3] = [m < 4, n < 3] sum[k < 8] i32(i16(%x[m, k]) - -1:i16) * i32(%w[n, k])
            %y: i32[4, 3] = [i < 4, j < 3] %s[i, j] * 2:i32
          }
        }

    after::

        program @main(%x: i8[4, 8]) -> (%y) {
          constant %w: i8[3, 8] = "0c"
          constant %s.bias: i32[3] = "e2"
          kernel @MatMul(%x: i8[4, 8], %w: i8[3, 8], %s.bias: i32[3]) -> (%y: i32[4, 3]) {
            %s: i32[4, 3] = [m < 4, n < 3] sum[k < 8] i32(%x[m, k]) * i32(%w[n, k])
            %y: i32[4, 3] = [i < 4, j < 3] (%s[i, j] + %s.bias[j]) * 2:i32
          }
        }
    """

    def __call__(self, program: TensorProgram) -> TensorProgram:
        folding = _Folding(program)
        items = tuple(folding.item(item) for item in program.items)
        return with_used_constants(folding.added.with_items(items))


@dataclass(frozen=True)
class _Sum:
    """A stage that sums products: ``body`` is its body without the zero point, and ``missing`` the
    correction of each row; its results have the row at index ``axis``."""

    stage: Stage
    body: Scalar
    missing: Array
    axis: int


class _Folding:
    def __init__(self, program: TensorProgram) -> None:
        self._program = program
        self.added = AddedConstants(program)

    def item(self, item: Item) -> Item:
        """``item``, with a bias if it is a sum read by its other stages."""
        if not isinstance(item, Kernel):
            return item
        sums = (_sum(stage, self._program.constants) for stage in item.stages)
        found = next((s for s in sums if s is not None), None)
        if found is None or found.stage.output in item.outputs:
            return item
        return self._with_bias(item, found)

    def _with_bias(self, kernel: Kernel, found: _Sum) -> Kernel:
        bias = self._known_bias(kernel, found)
        data = found.missing
        if bias is not None:
            old = self._program.constants[bias.tensor].data
            data = (old.astype(np.int64) + data.reshape(old.shape)).astype(np.int32)
        stem = found.stage.output if bias is None else bias.tensor
        name = self.added.add(np.asarray(data, np.int32), f"{stem}.bias")

        def visit(node: Scalar) -> Scalar:
            if bias is not None and isinstance(node, Read) and node.tensor == bias.tensor:
                return replace(node, tensor=name)
            if bias is None and isinstance(node, Read) and node.tensor == found.stage.output:
                return Apply("add", (node, Read(name, (node.indices[found.axis],), I32)), I32)
            return node

        stages = tuple(
            replace(s, body=found.body if s is found.stage else transform(s.body, visit))
            for s in kernel.stages
        )
        return with_stages(kernel, stages)

    def _known_bias(self, kernel: Kernel, found: _Sum) -> Read | None:
        """The constant that all readers of the sums add first, and no others read."""
        total, nodes = found.stage.output, [n for s in kernel.stages for n in walk(s.body)]
        adds = [n for n in nodes if isinstance(n, Apply) and _adds(n, total)]
        uses = [n for n in nodes if isinstance(n, Read) and n.tensor == total]
        others = [a for n in adds for a in n.args if isinstance(a, Read) and a.tensor != total]
        biases = {a.tensor for a in others}
        if len(uses) != len(adds) or len(biases) != 1:
            return None
        (name,) = biases
        constant = self._program.constants.get(name)
        reading = [n for n in nodes if isinstance(n, Read) and n.tensor == name]
        if constant is None or constant.type.elements != found.missing.size:
            return None
        if len(reading) != len(others) or constant.data.dtype != np.int32:
            return None
        along = all(_row_of(add, name, total, found.axis) for add in adds)
        return others[0] if along else None


def _adds(node: Apply, total: str) -> bool:
    names = [a.tensor for a in node.args if isinstance(a, Read)]
    return node.function == "add" and len(names) == 2 and names.count(total) == 1


def _row_of(add: Apply, bias: str, total: str, axis: int) -> bool:
    """Whether the bias is read at the row of the sum."""
    by_name = {a.tensor: a.indices for a in add.args if isinstance(a, Read)}
    row = by_name[total][axis]
    return [i for i in by_name[bias] if i != 0] == [row]


def _sum(stage: Stage, constants: Mapping[str, Constant]) -> _Sum | None:
    """The stage as a sum of bytes, with or without a zero point, by rows of constant bytes."""
    match stage.body:
        case Apply("mul", (left, Cast(Read(tensor=name, dtype=dtype) as weights, _)), _) if (
            stage.combine == "sum" and name in constants and dtype == I8
        ):
            pass
        case _:
            return None
    found, data = _without_zero(left), constants[name].data
    if found is None or data.ndim != 2 or not isinstance(weights.indices[0], Sym):
        return None
    row, (value, zero) = weights.indices[0].name, found
    axes = [n for n, index in enumerate(stage.write) if symbols(index) & {row}]
    if row in _symbols(left) or len(axes) != 1 or stage.write[axes[0]] != Sym(row):
        return None
    missing = -zero * data.astype(np.int64).sum(1)
    body = Apply("mul", (Cast(value, I32), Cast(weights, I32)), I32)
    return _Sum(stage, body, missing.astype(np.int32), axes[0])


def _without_zero(scalar: Scalar) -> tuple[Scalar, int] | None:
    """The byte of a difference, and the zero point; for a byte without one, 0."""
    match scalar:
        case Cast(Apply("sub", (Cast(value, _), Number(zero)), _), _) if _is_byte(value):
            return value, int(zero)
        case Cast(
            Guard(conditions, Apply("sub", (Cast(value, _), Number(zero)), _), Number(0)), _
        ) if _is_byte(value):
            return Guard(conditions, value, Number(int(zero), I8), I8), int(zero)
        case Cast(value, _) if _is_byte(value):
            return value, 0
        case _:
            return None


def _is_byte(scalar: Scalar) -> bool:
    """Whether it is an element of an image, or of its border."""
    match scalar:
        case Guard(_, Read(), Number()) | Read():
            return scalar.dtype == I8
        case _:
            return False


def _symbols(scalar: Scalar) -> set[str]:
    found: set[Index] = {i for r in reads(scalar) for i in r.indices}
    return {name for index in found for name in symbols(index)}
