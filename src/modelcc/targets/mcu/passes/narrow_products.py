"""Narrows constant factors to the bytes that their values need, and sums likewise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.constant import Constant
from modelcc.ir.scalar_tree import transform
from modelcc.ir.tensor import Apply, Cast, Item, Kernel, Read, Scalar, Stage, TensorProgram
from modelcc.ir.types import I8, I16, I32, I64, Array, DType
from modelcc.passes.tensor.added_constants import AddedConstants
from modelcc.passes.tensor.fused_kernel import with_stages
from modelcc.passes.tensor.magnitudes import Magnitudes
from modelcc.targets.mcu.passes.scalar_constants import with_used_constants

_MOST = (1 << 31) - 1


@dataclass(frozen=True)
class NarrowProducts:
    """Products of 64-bit integers extended from fewer bits, as for 16-bit images in TFLite.

    before::

        program @main(%x: i16[4, 8]) -> (%y) {
          constant %w: i64[3, 8] = "0c"
          kernel @MatMul(%x: i16[4, 8], %w: i64[3, 8]) -> (%y: i64[4, 3]) {
            %s: i64[4, 3] = [m < 4, n < 3] sum[k < 8] i64(%x[m, k]) * %w[n, k]
            %y: i64[4, 3] = [i < 4, j < 3] %s[i, j] * 5:i64
          }
        }

    after::

        program @main(%x: i16[4, 8]) -> (%y) {
          constant %w.i8: i8[3, 8] = "0c"
          kernel @MatMul(%x: i16[4, 8], %w.i8: i8[3, 8]) -> (%y: i64[4, 3]) {
            %s: i32[4, 3] = [m < 4, n < 3] sum[k < 8] i32(%x[m, k]) * i32(%w.i8[n, k])
            %y: i64[4, 3] = [i < 4, j < 3] i64(%s[i, j]) * 5:i64
          }
        }
    """

    def __call__(self, program: TensorProgram) -> TensorProgram:
        narrowing = _Narrowing(program)
        items = tuple(narrowing.item(item) for item in program.items)
        changed = narrowing.added.with_items(items)
        types = dict(changed.types)
        types |= {n: replace(types[n], dtype=I32) for n in narrowing.narrowed if n in types}
        return with_used_constants(replace(changed, types=types))


class _Narrowing:
    def __init__(self, program: TensorProgram) -> None:
        self._known = program.constants
        self.added = AddedConstants(program)
        self.narrowed: list[str] = []

    def item(self, item: Item) -> Item:
        """``item``, with a narrow sum if only its other stages read that."""
        if not isinstance(item, Kernel):
            return item
        stage = next((s for s in item.stages if _is_wide(s, self._known)), None)
        if stage is None or stage.output in item.outputs:
            return item
        return self._narrow(item, stage)

    def _narrow(self, kernel: Kernel, stage: Stage) -> Kernel:
        match stage.body:
            case Apply("mul", (left, Read() as weights), _):
                pass
            case _:
                return kernel
        data = self._known[weights.tensor].data
        dtype = _narrowest(data)
        if dtype is None:
            return kernel
        sizes = Magnitudes(self._known)
        sizes.add(replace(stage, body=Apply("mul", (left, Cast(weights, I64)), I64)))
        sum_type = I32 if sizes.of(Read(stage.output, (), I64)) <= _MOST else I64
        self.narrowed += [stage.output] if sum_type == I32 else []
        name = self.added.add(data.astype(dtype.numpy), f"{weights.tensor}.{dtype}")
        read = replace(weights, tensor=name, dtype=dtype)
        value = left.value if isinstance(left, Cast) else left
        body = Apply("mul", (Cast(value, sum_type), Cast(read, sum_type)), sum_type)

        def visit(node: Scalar) -> Scalar:
            if sum_type == I64 or not isinstance(node, Read) or node.tensor != stage.output:
                return node
            return Cast(replace(node, dtype=I32), I64)

        stages = tuple(
            replace(s, body=body if s is stage else transform(s.body, visit)) for s in kernel.stages
        )
        return with_stages(kernel, stages)


def _is_wide(stage: Stage, constants: Mapping[str, Constant]) -> bool:
    """Whether it sums 64-bit products of extended integers and a 64-bit constant."""
    match stage.body:
        case Apply("mul", (Cast(value, _), Read(tensor=name)), dtype):
            narrow = value.dtype.is_integer and value.dtype.bits <= 32
            return stage.combine == "sum" and dtype == I64 and narrow and name in constants
        case _:
            return False


def _narrowest(data: Array) -> DType | None:
    """The narrower of i8 and i16 that holds all values."""
    for dtype in (I8, I16):
        info = np.iinfo(dtype.numpy)
        if data.size and info.min <= data.min() and data.max() <= info.max:
            return dtype
    return None
