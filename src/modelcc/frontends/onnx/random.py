"""Handlers of random numbers: drawn when the model is compiled, by NumPy's Mersenne Twister.

A compiled model is a function: the same inputs give the same outputs, so every call sees the same
numbers.  They follow from attribute ``seed`` (0 where there is none).
"""

from __future__ import annotations

from math import prod
from types import MappingProxyType

import numpy as np

from modelcc.frontends.onnx.call import Call, Handlers
from modelcc.frontends.onnx.errors import unsupported
from modelcc.frontends.onnx.tensors import dtype_from_onnx
from modelcc.ir.index import Index
from modelcc.ir.types import BOOL, F32, I32, Array, DType
from modelcc.ops import elementwise as ew
from modelcc.ops.reduce import ArgMax
from modelcc.ops.shape import Full, Reshape

LARGEST = 1 << 26
"""More numbers than this are no constant of a sensible size."""


def _generator(call: Call) -> np.random.RandomState:
    whole = call.op_type.endswith("Dropout")
    seed = call.attrs.integer("seed", 0) if whole else int(call.attrs.number("seed", 0.0))
    return np.random.RandomState(seed & 0xFFFFFFFF)


def _extents(call: Call, shape: tuple[Index, ...]) -> tuple[int, ...]:
    found = tuple(e for e in shape if isinstance(e, int))
    if len(found) < len(shape):
        unsupported("as many random numbers as a named dimension says; fix the dimension")
    if prod(found) > LARGEST:
        unsupported(f"{prod(found)} random numbers; up to {LARGEST} are supported")
    return found


def _like(call: Call) -> tuple[tuple[Index, ...], DType]:
    """Shape and dtype of the result: attributes, or the operand's."""
    code = call.attrs.integer("dtype", 0)
    if call.op_type.endswith("Like"):
        dtype = dtype_from_onnx(code, call.source[-1]) if code else call.dtype()
        return call.shape(), dtype
    return call.attrs.integers("shape"), dtype_from_onnx(code, call.source[-1]) if code else F32


def _stored(call: Call, values: Array, dtype: DType) -> str:
    if not dtype.is_float:
        unsupported(f"random numbers of {dtype}")
    return call.constant(values.astype(dtype.numpy))


def uniform(call: Call) -> str:
    shape, dtype = _like(call)
    low, high = call.attrs.number("low", 0.0), call.attrs.number("high", 1.0)
    return _stored(call, _generator(call).uniform(low, high, _extents(call, shape)), dtype)


def normal(call: Call) -> str:
    shape, dtype = _like(call)
    mean, scale = call.attrs.number("mean", 0.0), call.attrs.number("scale", 1.0)
    return _stored(call, _generator(call).normal(mean, scale, _extents(call, shape)), dtype)


def multinomial(call: Call) -> str:
    """Draws from rows of log-probabilities: the greatest after adding Gumbel noise."""
    batch, classes = _extents(call, call.shape())
    count = call.attrs.integer("sample_size", 1)
    noise = _generator(call).gumbel(size=(batch, count, classes)).astype(call.dtype().numpy)
    rows = call.emit(Reshape((batch, 1, classes)), call.input(0))
    drawn = call.emit(ArgMax(2, False), call.emit(ew.Add(), rows, call.constant(noise)))
    code = call.attrs.integer("dtype", 0)
    return call.emit(ew.Cast(dtype_from_onnx(code, call.source[-1]) if code else I32), drawn)


def dropout(call: Call) -> tuple[str, ...]:
    """The operand, or in training mode (from opset 12 on) some of its elements, scaled."""
    mode = call.known(2) if call.opset >= 12 and call.has(2) else np.array(False)
    if mode is not None and not mode.any():
        return _kept(call)
    x, dtype = call.input(0), call.dtype()
    ratio = call.input(1) if call.has(1) else call.constant(0.5, dtype)
    ratio = call.emit(ew.Cast(F32), ratio)
    drawn = _generator(call).uniform(0.0, 1.0, _extents(call, call.shape()))
    mask = call.emit(ew.GreaterOrEqual(), call.constant(drawn.astype(np.float32)), ratio)
    share = call.emit(ew.Reciprocal(), call.emit(ew.Sub(), call.constant(1.0, F32), ratio))
    scaled = call.emit(ew.Mul(), x, call.emit(ew.Cast(dtype), share))
    result = call.emit(ew.Where(), mask, scaled, call.constant(0.0, dtype))
    if mode is None:
        training = call.input(2)
        result = call.emit(ew.Where(), training, result, x)
        mask = call.emit(ew.Or(), mask, call.emit(ew.Not(), training))
    return (result, mask)


def _kept(call: Call) -> tuple[str, ...]:
    if not call.want(1):
        return (call.input(0),)
    dtype = call.dtype() if call.opset < 10 else BOOL
    return (call.input(0), call.emit(Full(call.shape(), 1 if dtype != BOOL else True, dtype)))


RANDOM: Handlers = MappingProxyType(
    {
        "RandomUniform": uniform,
        "RandomUniformLike": uniform,
        "RandomNormal": normal,
        "RandomNormalLike": normal,
        "Multinomial": multinomial,
        "Dropout": dropout,
    }
)
