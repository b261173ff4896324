"""Products by weights of few bits, which stay packed in memory and are decoded where they are used.

A product of few rows reads every weight once, so its time is that of reading them: 4-bit weights
take an eighth of what f32 takes (Frantar et al., "GPTQ", 2023, section 4).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply, index_value
from modelcc.ir.index import floordiv, product
from modelcc.ir.narrowing import Narrowing
from modelcc.ir.op import Builder, Gradients, Meeting, Op, Values, require
from modelcc.ir.types import BF16, F16, F32, U8, U32, Array, TensorType
from modelcc.ops.accumulate import Point, combined, rounded, widen
from modelcc.ops.arithmetic import Cast, Value, of
from modelcc.ops.broadcast import ReduceSum, Reshape, numbers
from modelcc.ops.generate import filled
from modelcc.ops.matmul import MatMul
from modelcc.ops.samples import bounded, scalar, tensor
from modelcc.ops.shape import Transpose

WORD_BITS = 32


def packed_words(fields: Array, bits: int, block: int) -> Array:
    """Unsigned ``fields`` of ``bits`` bits, ``[K, N]``, as words ``[K / block, words, N]``.

    The first of the fields that lie in a word one after the other is in its lowest bits.
    """
    per = WORD_BITS // bits
    parts = fields.astype(np.uint32).reshape(-1, block // per, per, fields.shape[1])
    shifts = np.arange(0, WORD_BITS, bits, dtype=np.uint32)
    return np.bitwise_or.reduce(parts << shifts[:, None], axis=2)


_sample = partial(bounded, (0, 100))


@dataclass(frozen=True)
class PackedMatMul(Op):
    """``x @ w`` with ``w[k, n] = (field(k, n) - zero[b, n]) * scale[b, n]``, b the block of k.

    Operands are x ``[…, K]``, in whose type w is multiplied (f32, f16 or bf16), words u32
    ``[blocks, words, N]`` of fields of ``bits`` bits as :func:`packed_words` makes them, scale f32
    and zero u8 ``[blocks, N]``; zero may be a scalar.
    """

    narrowing = Narrowing("products", kept=(2,))
    bits: int = 4
    samples = (
        _sample(tensor("n", 32), tensor(2, 2, 5, dtype=U32), tensor(2, 5), scalar(8, U8)),
        _sample(
            *(
                tensor(2, 3, 16),
                tensor(1, 4, 20, dtype=U32),
                tensor(1, 20),
                tensor(1, 20, dtype=U8),
            ),
            bits=8,
        ),
        _sample(
            *(tensor(64), tensor(2, 2, 17, dtype=U32), tensor(2, 17), tensor(2, 17, dtype=U8)),
            bits=2,
        ),
        _sample(
            *(tensor(3, 32, dtype=F16), tensor(2, 2, 8, dtype=U32), tensor(2, 8), scalar(8, U8))
        ),
    )

    def infer(
        self, x: TensorType, words: TensorType, scale: TensorType, zero: TensorType
    ) -> tuple[TensorType]:
        require(self.bits in (2, 4, 8), f"PackedMatMul of {self.bits} bits: it takes 2, 4 or 8")
        require(words.dtype == U32 and words.rank == 3, f"PackedMatMul needs words, not {words}")
        known = x.dtype in (F32, F16, BF16) and x.rank > 0
        require(known, f"PackedMatMul needs [..., K] of f32, f16 or bf16, not {x}")
        require(scale.dtype == F32, f"PackedMatMul needs f32 scales, not {scale}")
        require(zero.dtype == U8, f"PackedMatMul needs u8 zero points, not {zero}")
        for given in (scale, zero) if zero.rank else (scale,):
            require(given.rank == 2, f"PackedMatMul needs a number for each block, not {given}")
        self.require_meetings(x, words, scale, zero)
        return (TensorType((*x.shape[:-1], words.shape[2]), x.dtype),)

    def meetings(
        self, x: TensorType, words: TensorType, scale: TensorType, zero: TensorType
    ) -> Iterator[Meeting]:
        blocks, count, columns = words.shape
        for given in (scale, zero) if zero.rank else (scale,):
            yield given.shape[0], blocks, f"blocks of {words} and of {given} differ"
            yield given.shape[1], columns, f"columns of {words} and of {given} differ"
        rows = blocks * count * (WORD_BITS // self.bits)
        yield x.shape[-1], rows, f"inner extents of {x} and {words} differ"

    def reference(self, x: Array, words: Array, scale: Array, zero: Array) -> Array:
        shifts = np.arange(0, WORD_BITS, self.bits, dtype=np.uint32)
        fields = (words[:, :, None] >> shifts[:, None]) & np.uint32((1 << self.bits) - 1)
        fields = fields.reshape(len(words), -1, words.shape[-1]).astype(np.float32)
        steps = fields - np.broadcast_to(zero, scale.shape)[:, None].astype(np.float32)
        weights = (steps * scale[:, None]).reshape(-1, words.shape[-1]).astype(x.dtype)
        return np.asarray(np.matmul(widen(x), widen(weights))).astype(x.dtype, copy=False)

    def compute(
        self, at: StageBuilder, x: Operand, words: Operand, scale: Operand, zero: Operand
    ) -> Operand:
        blocks, count, columns = words.shape
        per = WORD_BITS // self.bits

        def body(o: Point, r: Point) -> Element:
            b, w, f = r
            shifted = apply("shr", words[b, w, o[-1]], index_value(f * self.bits, U32))
            field = apply("and", shifted, (1 << self.bits) - 1).cast(F32)
            unit, none = scale[b, o[-1]], zero[b, o[-1]] if zero.rank else zero[()]
            # Expanded, it is one fused operation for each field and one for each block.
            weight = (field * unit - none.cast(F32) * unit).cast(x.dtype)
            return x[(*o[:-1], (b * count + w) * per + f)].cast(F32) * weight.cast(F32)

        total = combined(at, (*x.shape[:-1], columns), (blocks, count, per), "sum", body)
        return rounded(at, total, x.dtype)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        x, words, scale, zero = inputs
        blocks, _, columns = build.type_of(words).shape
        rows = build.type_of(x).shape[-1]
        (count,) = numbers((rows,))
        lines = (product(build.type_of(x).shape[:-1]), rows)
        each = build.emit(Cast(F32), build.emit(Reshape(lines), x))
        dy = build.emit(Cast(F32), build.emit(Reshape((lines[0], columns)), dys[0]))
        eye = build.constant(np.eye(count, dtype=np.float32))
        one = filled(build, scale, 1.0)
        weights, steps = (build.emit(self, eye, words, unit, zero) for unit in (scale, one))
        turn = Transpose((1, 0))
        dx = build.emit(MatMul(), dy, build.emit(turn, weights))
        dw = Value(build, build.emit(MatMul(), build.emit(turn, each), dy)) * Value(build, steps)
        of_blocks = of(Reshape((blocks, floordiv(rows, blocks), columns)), dw)
        dscale = of(ReduceSum((1,), keepdims=False), of_blocks)
        dx = build.emit(Cast(build.type_of(x).dtype), dx)
        return build.emit(Reshape(build.type_of(x).shape), dx), None, dscale.name, None


OPS: tuple[type[Op], ...] = (PackedMatMul,)
