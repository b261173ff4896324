"""Fixed-point products of bounded integers: one product, one addition, one shift."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.scalar_tree import transform
from modelcc.ir.tensor import (
    Apply,
    Cast,
    Item,
    Kernel,
    Number,
    Read,
    Scalar,
    Select,
    Stage,
    TensorProgram,
)
from modelcc.ir.types import BOOL, I8, I32, U8, Array
from modelcc.passes.tensor.added_constants import AddedConstants, still_read
from modelcc.passes.tensor.fused_kernel import with_stages
from modelcc.passes.tensor.magnitudes import Magnitudes

_LARGEST = 1 << 29
_MOST = (1 << 31) - 1


@dataclass(frozen=True)
class Requantization:
    """``x`` times a multiplier of 31 bits by a power of two, each rounded, for ``|x| < 2^29``.

    With ``t = floor(x m / 2^30)`` the rounded product is ``floor((t + 1) / 2)``, and its quotient
    by ``2^s``, halves away from zero, ``floor((t + 1 + 2^s - 2 [x < 0]) / 2^(s + 1))``: floors of
    floors are one (where the product is 0 the sign makes no difference).  The addend includes a
    zero point, and the offset between signed and unsigned bytes.

    before::

        program @main(%x: i16[4]) -> (%y) {
          kernel @Scale(%x: i16[4]) -> (%y: i32[4]) {
            %y: i32[4] = [i < 4] rounding_shr(rounding_high_mul(i32(%x[i]), 1518500250:i32), 3:i32) + 7:i32
          }
        }

    after::

        program @main(%x: i16[4]) -> (%y) {
          kernel @Scale(%x: i16[4]) -> (%y: i32[4]) {
            %y: i32[4] = [i < 4] shr(select(i32(%x[i]) < 0:i32, high_word(shl(i32(%x[i]), 2:i32), 1518500250:i32) + 121:i32 - 2:i32, high_word(shl(i32(%x[i]), 2:i32), 1518500250:i32) + 121:i32), 4:i32)
          }
        }
    """  # noqa: E501

    def __call__(self, program: TensorProgram) -> TensorProgram:
        rewriter = _Requantizer(program)
        items = tuple[Item, ...](
            rewriter.kernel(item) if isinstance(item, Kernel) else item for item in program.items
        )
        changed = rewriter.added.with_items(items)
        constants = still_read(items, program, changed.constants)
        return replace(changed, constants=constants).with_items(items)


class _Requantizer:
    def __init__(self, program: TensorProgram) -> None:
        self._known = program.constants
        self.added = AddedConstants(program)

    def kernel(self, kernel: Kernel) -> Kernel:
        """``kernel`` with products rewritten; their constants are added."""
        sizes = Magnitudes(self._known)
        stages: list[Stage] = []
        for stage in kernel.stages:
            body = transform(stage.body, lambda s: self._unsigned(s, sizes))
            body = transform(body, lambda s: self._moved(s, sizes))
            stages.append(replace(stage, body=transform(body, lambda s: self._bare(s, sizes))))
            sizes.add(stage)
        if tuple(stages) == kernel.stages:
            return kernel
        return with_stages(kernel, stages)

    def _unsigned(self, node: Scalar, sizes: Magnitudes) -> Scalar:
        """Folds the sign flip of a clamped byte into an addition of 128 before the clamp."""
        match node:
            case Apply("xor", (Cast(Cast(Apply("min") as clamped, to)), Number(128)), kind) if (
                to,
                kind,
            ) == (I8, U8):
                return self._clamped(clamped, sizes) or node
            case _:
                return node

    def _clamped(self, node: Apply, sizes: Magnitudes) -> Scalar | None:
        match node.args:
            case (Apply("max", (x, Number(low)), _), Number(high)):
                pass
            case _:
                return None
        if low < -128 or high > 127 or x.dtype != I32 or sizes.of(x) >= _LARGEST:
            return None
        least = Apply("max", (self._plus(x, 128), Number(int(low) + 128, I32)), I32)
        return Cast(Apply("min", (least, Number(int(high) + 128, I32)), I32), U8)

    def _plus(self, x: Scalar, more: int) -> Scalar:
        match x:
            case Apply("add", (quotient, zero), _):
                known = self._contents(zero)
                if known is not None and known.size == 1:
                    number = Number(int(known.reshape(())) + more, I32)
                    return Apply("add", (quotient, number), I32)
            case _:
                pass
        return Apply("add", (x, Number(more, I32)), I32)

    def _moved(self, node: Scalar, sizes: Magnitudes) -> Scalar:
        """Rewrites a quotient with a constant added to it."""
        match node:
            case Apply("add", (Apply("rounding_shr", _, _) as quotient, zero), _):
                known = self._contents(zero)
                if known is not None and known.size == 1:
                    return self._quotient(quotient, int(known.reshape(())), sizes) or node
            case _:
                pass
        return node

    def _bare(self, node: Scalar, sizes: Magnitudes) -> Scalar:
        match node:
            case Apply("rounding_shr", _, _):
                return self._quotient(node, 0, sizes) or node
            case _:
                return node

    def _quotient(self, node: Apply, zero: int, sizes: Magnitudes) -> Scalar | None:
        match node.args:
            case (Apply("rounding_high_mul", (x, multiplier), _), shift):
                factors, bits = self._contents(multiplier), self._contents(shift)
            case _:
                return None
        if factors is None or bits is None or not factors.size or not bits.size:
            return None
        if factors.min() < 0 or bits.min() < 0 or bits.max() > 30 or sizes.of(x) >= _LARGEST:
            return None
        half = np.where(bits > 0, np.int64(1) << bits, 0)
        added = 1 + half + (np.int64(zero) << (bits + 1))
        if 2 * sizes.of(x) + int(np.abs(added).max()) + 4 > _MOST:
            return None
        word = Apply("high_word", (Apply("shl", (x, Number(2, I32)), I32), multiplier), I32)
        total = Apply("add", (word, self._constant(added, shift, "half")), I32)
        two = self._constant(np.where(bits > 0, 2, 0), shift, "two") if bits.min() < 1 else None
        less = Apply("sub", (total, two or Number(2, I32)), I32)
        negative = Apply("lt", (x, Number(0, I32)), BOOL)
        signed = Select(negative, less, total, I32)
        return Apply("shr", (signed, self._constant(bits + 1, shift, "bits")), I32)

    def _contents(self, scalar: Scalar) -> Array | None:
        match scalar:
            case Number(value):
                return np.array(int(value), np.int64)
            case Read(tensor=name) if name in self._known:
                return self._known[name].data.astype(np.int64)
            case _:
                return None

    def _constant(self, data: Array, like: Scalar, what: str) -> Scalar:
        """``data`` at the index that ``like`` reads; a number if it is uniform."""
        if not isinstance(like, Read) or data.min() == data.max():
            return Number(int(data.reshape(-1)[0]), I32)
        name = self.added.add(data.astype(np.int32), f"{like.tensor}.{what}")
        return replace(like, tensor=name, dtype=I32)
