"""Handlers of onnxruntime's arithmetic of integers (com.microsoft)."""

from __future__ import annotations

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call
from modelcc.frontends.onnx.contrib.operands import operators
from modelcc.ir.types import F32, F64, I32, I64, U32, U64
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import BitCast, Value, of
from modelcc.ops.matmul import MatMul
from modelcc.ops.reduce import ReduceSum
from modelcc.ops.views import cast


def product_of_integers(
    call: Call, a: Value, a_zero: Value | None, b: Value, b_zero: Value | None
) -> Value:
    """``(a - a_zero) * (b - b_zero)`` in i32."""
    return _centred(a, a_zero) * _centred(b, b_zero)


def _centred(x: Value, zero: Value | None) -> Value:
    return cast(x, I32) if zero is None else cast(x, I32) - cast(zero, I32)


def wide_product(call: Call, a: Value, b: Value) -> Value:
    """A product of 16-bit integer matrices in 32 bits, signed if either of them is."""
    signed = any(x.type.dtype.kind == "int" for x in (a, b))
    dtype = I32 if signed else U32
    return of(MatMul(), cast(a, dtype), cast(b, dtype))


def sum_of_integers(call: Call, x: Value) -> Value:
    """Sums over axes in 32 bits."""
    axes = tuple(sorted(call.normal(a, x.type.rank) for a in call.attrs.integers("axes")))
    wide = cast(x, U32 if x.type.dtype.kind == "uint" else I32)
    return of(ReduceSum(axes, call.attrs.flag("keepdims", True)), wide)


def murmur_hash(call: Call, x: Value) -> Value:
    """32-bit MurmurHash3 (Appleby, 2011) of the bytes of each number."""
    dtype = x.type.dtype
    words: list[Value]
    if dtype in (U32, I32, F32):
        words = [x if dtype == U32 else of(BitCast(U32), x)]
    elif dtype in (U64, I64, F64):
        whole = x if dtype == U64 else of(BitCast(U64), x)
        words = [cast(whole, U32), cast(of(ew.BitShift(False), whole, whole.lift(32)), U32)]
    else:
        unsupported(f"hashes of {dtype}")
    seed = call.attrs.integer("seed", 0) & 0xFFFFFFFF
    state = words[0].lift(seed)
    for word in words:
        key = _rotated(word * 0xCC9E2D51, 15) * 0x1B873593
        state = _rotated(of(ew.BitwiseXor(), state, key), 13) * 5 + 0xE6546B64
    state = of(ew.BitwiseXor(), state, state.lift(4 * len(words)))
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        high = of(ew.BitShift(False), state, state.lift(shift))
        state = of(ew.BitwiseXor(), state, high) * factor
    positive = call.attrs.flag("positive", True)
    return state if positive else of(BitCast(I32), state)


def _rotated(x: Value, bits: int) -> Value:
    left = of(ew.BitShift(True), x, x.lift(bits))
    right = of(ew.BitShift(False), x, x.lift(32 - bits))
    return of(ew.BitwiseOr(), left, right)


CONTRIB_INTEGER = operators(
    MulInteger=("A:int A_zero_point:int? B:int B_zero_point:int?", product_of_integers),
    MatMulInteger16=("A:int B:int", wide_product),
    ReduceSumInteger=("data:int", sum_of_integers),
    MurmurHash3=("X", murmur_hash),
)
