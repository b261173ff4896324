"""Products and quotients of fixed-point numbers in 32 bits, if nothing overflows.

A quotient by more than 2^32 only needs the upper half of a product.  A high product of numbers
below 2^30 is SMMULR of twice the first; half of a divisor, and the zero point added to the
quotient, are a single addend before the shift.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.constant import Constant
from modelcc.ir.scalar_tree import transform
from modelcc.ir.tensor import Apply, Cast, Kernel, Number, Read, Scalar, Stage, TensorProgram
from modelcc.ir.types import I32, I64, Array
from modelcc.passes.tensor.added_constants import AddedConstants
from modelcc.passes.tensor.fused_kernel import with_stages
from modelcc.passes.tensor.magnitudes import Magnitudes
from modelcc.targets.mcu.passes.scalar_constants import with_used_constants

_SMALL = 1 << 30
_MOST = (1 << 31) - 1


@dataclass(frozen=True)
class FixedPoint:
    """With 1 subtracted from negative numbers, all but the last bit are shifted out, and the last
    shift rounds halves away from zero.

    before::

        program @main(%x: i8[4]) -> (%y) {
          kernel @Scale(%x: i8[4]) -> (%y: i32[4]) {
            %y: i32[4] = [i < 4] rounding_shr(rounding_high_mul(i32(%x[i]), 1518500250:i32), 3:i32) + 7:i32
          }
        }

    after::

        program @main(%x: i8[4]) -> (%y) {
          kernel @Scale(%x: i8[4]) -> (%y: i32[4]) {
            %y: i32[4] = [i < 4] shr(shr(rounding_high_word(shl(i32(%x[i]), 1:i32), 1518500250:i32) + shr(rounding_high_word(shl(i32(%x[i]), 1:i32), 1518500250:i32), 31:i32), 2:i32) + 15:i32, 1:i32)
          }
        }
    """  # noqa: E501

    def __call__(self, program: TensorProgram) -> TensorProgram:
        rewriter = _Rewriter(program)
        items = tuple(
            rewriter.kernel(item) if isinstance(item, Kernel) else item for item in program.items
        )
        return with_used_constants(rewriter.added.with_items(items))


class _Rewriter:
    def __init__(self, program: TensorProgram) -> None:
        self._known = program.constants
        self.added = AddedConstants(program)

    def kernel(self, kernel: Kernel) -> Kernel:
        """``kernel`` with rewritten fixed-point arithmetic; its constants are added."""
        sizes = Magnitudes(self._known)
        stages: list[Stage] = []
        for stage in kernel.stages:
            new = replace(stage, body=transform(stage.body, lambda s: self._node(s, sizes)))
            stages.append(new)
            sizes.add(new)
        if all(new is old or new == old for new, old in zip(stages, kernel.stages, strict=True)):
            return kernel
        return with_stages(kernel, stages)

    def _node(self, node: Scalar, sizes: Magnitudes) -> Scalar:
        match node:
            case Apply("rounding_high_mul", (a, b), _) if sizes.of(a) < _SMALL:
                return Apply("rounding_high_word", (_shl(a), b), I32)
            case Cast(
                Apply("shr", (Apply("add", (Apply("mul") as product, half), _), bits), _), to
            ):
                return _high(product, half, bits) or node if to == I32 else node
            case Apply("rounding_shr", (x, Number(0)), _):
                return x
            case Apply("rounding_shr", (x, shift), _):
                return self._shifted(x, shift, 0, sizes) or node
            case Apply("add", (Apply("shr", (twice, Number(1)), _), Number(zero)), _):
                return _with_zero(twice, int(zero), sizes) or node
            case _:
                return node

    def _shifted(self, x: Scalar, shift: Scalar, zero: int, sizes: Magnitudes) -> Scalar | None:
        """``x`` shifted by ``shift``, plus ``zero``: all but the last bit first."""
        bits = self._contents(shift)
        if bits is None or not bits.size or bits.min() < 1 or bits.max() > 31:
            return None
        if sizes.of(x) + 2 * abs(zero) + 2 > _MOST:
            return None
        sign = Apply("shr", (x, Number(31, I32)), I32)
        total: Scalar = Apply("add", (x, sign), I32)
        if not isinstance(shift, Number):
            low = Cast(self._constant((bits - 1).astype(np.int8), shift, "bits"), I32)
            total = Apply("shr", (total, Apply("and", (low, Number(255, I32)), I32)), I32)
        elif shift.value > 1:
            total = Apply("shr", (total, Number(int(shift.value) - 1, I32)), I32)
        return _halved(total, zero)

    def _contents(self, scalar: Scalar) -> Array | None:
        match scalar:
            case Number(value):
                return np.array(value, np.int64)
            case Read(tensor=name):
                found = self.added.contents(name)
                return None if found is None else found.astype(np.int64)
            case _:
                return None

    def _constant(self, data: Array, like: Scalar, what: str) -> Scalar:
        """``data`` at the index that ``like`` reads."""
        if not isinstance(like, Read):
            return Number(int(data), I32)
        name = self.added.add(data, f"{like.tensor}.{what}")
        return replace(like, tensor=name, dtype=Constant(data).type.dtype)


def _shl(a: Scalar) -> Scalar:
    return Apply("shl", (a, Number(1, I32)), I32)


def _high(product: Apply, half: Scalar, bits: Scalar) -> Scalar | None:
    """A rounded quotient of a 64-bit product from its upper half."""
    added, by = _value(half), _value(bits)
    if product.dtype != I64 or added is None or by is None or by < 33 or added != 1 << (by - 1):
        return None
    word = Cast(Apply("shr", (product, Number(32, I64)), I64), I32)
    return Apply("shr", (Apply("add", (word, Number(1 << (by - 33), I32)), I32),
                         Number(by - 32, I32)), I32)  # fmt: skip


def _with_zero(twice: Scalar, zero: int, sizes: Magnitudes) -> Scalar | None:
    """The result of :func:`_halved`, with a number added to it."""
    match twice:
        case Apply("add", (total, Number(1)), _) if sizes.of(total) + 2 * abs(zero) + 2 <= _MOST:
            return _halved(total, zero)
        case _:
            return None


def _value(scalar: Scalar) -> int | None:
    """The value of constant arithmetic."""
    match scalar:
        case Number(value):
            return int(value)
        case Apply("add" | "sub" | "shl" as function, (a, b), _):
            one, other = _value(a), _value(b)
            if one is None or other is None:
                return None
            return {"add": one + other, "sub": one - other}.get(function, one << max(0, other))
        case _:
            return None


def _halved(twice: Scalar, zero: int) -> Scalar:
    """Half of a number, rounded up, plus ``zero``."""
    more = Apply("add", (twice, Number(2 * zero + 1, I32)), I32)
    return Apply("shr", (more, Number(1, I32)), I32)
