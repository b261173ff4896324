"""Handlers of random numbers: drawn when the model is compiled, by NumPy's Mersenne Twister.

A compiled model is a function: the same inputs give the same outputs, so every call sees the same
numbers.  They are determined by attribute ``seed`` (0 by default).  Tensors of symbolic size, or
too large for a constant, are computed from element positions at run time.
"""

from __future__ import annotations

from math import prod

import numpy as np

from modelcc.frontends.kit import random
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call, table
from modelcc.ir.index import Index
from modelcc.ir.types import BOOL, F32, I32, DType
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import where
from modelcc.ops.reduce import ArgMax
from modelcc.ops.shape import Full, Reshape

LARGEST = 1 << 26
"""More numbers than this are too large for a constant."""


def _seed(call: Call) -> int:
    whole = call.op_type.endswith("Dropout")
    seed = call.attrs.integer("seed", 0) if whole else int(call.attrs.number("seed", 0.0))
    return seed & 0xFFFFFFFF


def _generator(call: Call) -> np.random.RandomState:
    return np.random.RandomState(_seed(call))


def _fixed(shape: tuple[Index, ...]) -> tuple[int, ...] | None:
    """The extents if the numbers may be stored as a constant."""
    found = tuple(e for e in shape if isinstance(e, int))
    return found if len(found) == len(shape) and prod(found) <= LARGEST else None


def _counted(call: Call, shape: tuple[Index, ...]) -> Value:
    return random.uniform(call, shape, _seed(call))


def _like(call: Call) -> tuple[tuple[Index, ...], DType]:
    """Shape and dtype of the result: attributes, or the operand's."""
    if call.op_type.endswith("Like"):
        return call.shape(), call.attrs.dtype("dtype", call.dtype())
    return call.attrs.integers("shape"), call.attrs.dtype("dtype", F32)


def _checked(dtype: DType) -> DType:
    if not dtype.is_float:
        unsupported(f"random numbers of {dtype}")
    return dtype


def uniform(call: Call) -> str:
    shape, dtype = _like(call)
    low, high = call.attrs.number("low", 0.0), call.attrs.number("high", 1.0)
    fixed = _fixed(shape)
    if fixed is not None:
        drawn = _generator(call).uniform(low, high, fixed)
        return call.constant(drawn.astype(_checked(dtype).numpy))
    found = _counted(call, shape) * (high - low) + low
    return of(ew.Cast(_checked(dtype)), found).name


def normal(call: Call) -> str:
    shape, dtype = _like(call)
    mean, scale = call.attrs.number("mean", 0.0), call.attrs.number("scale", 1.0)
    fixed = _fixed(shape)
    if fixed is not None:
        drawn = _generator(call).normal(mean, scale, fixed)
        return call.constant(drawn.astype(_checked(dtype).numpy))
    found = random.normal(call, shape, _seed(call)) * scale + mean
    return of(ew.Cast(_checked(dtype)), found).name


def multinomial(call: Call) -> str:
    """Samples from rows of log-probabilities: the argmax after adding Gumbel noise."""
    batch, classes = call.shape()
    shape = (batch, call.attrs.integer("sample_size", 1), classes)
    fixed, dtype = _fixed(shape), call.dtype()
    if fixed is not None:
        noise = call.constant(_generator(call).gumbel(size=fixed).astype(dtype.numpy))
    else:
        logarithm = of(ew.Log(), _counted(call, shape))
        gumbel = of(ew.Log(), logarithm * -1.0) * -1.0
        noise = of(ew.Cast(dtype), gumbel).name
    rows = call.emit(Reshape((batch, 1, classes)), call.input(0))
    drawn = call.emit(ArgMax(2, False), call.emit(ew.Add(), rows, noise))
    return call.emit(ew.Cast(call.attrs.dtype("dtype", I32)), drawn)


def dropout(call: Call) -> tuple[str, ...]:
    """The operand, or in training mode (from opset 12 on) a scaled random subset of its
    elements."""
    mode = call.known(2) if call.opset >= 12 and call.has(2) else np.array(False)
    if mode is not None and not mode.any():
        return _kept(call)
    x, dtype = call.value(0), call.dtype()
    share = call.known(1) if call.has(1) else None
    if share is not None and not (0 <= share.reshape(-1)[0] < 1):
        call.fail(f"its ratio {share.reshape(-1)[0]} is not within [0, 1)")
    ratio = of(ew.Cast(F32), call.given(1) or call.literal(0.5, dtype))
    fixed = _fixed(call.shape())
    if fixed is not None:
        drawn = call.literal(_generator(call).uniform(0.0, 1.0, fixed).astype(np.float32))
    else:
        drawn = _counted(call, call.shape())
    mask = of(ew.GreaterOrEqual(), drawn, ratio)
    scaled = x * of(ew.Cast(dtype), of(ew.Reciprocal(), 1.0 - ratio))
    result = where(mask, scaled, 0.0)
    if mode is None:
        training = call.value(2)
        result = where(training, result, x)
        mask = of(ew.Or(), mask, of(ew.Not(), training))
    return (result.name, mask.name)


def _kept(call: Call) -> tuple[str, ...]:
    if not call.want(1):
        return (call.input(0),)
    dtype = call.dtype() if call.opset < 10 else BOOL
    return (call.input(0), call.emit(Full(call.shape(), 1 if dtype != BOOL else True, dtype)))


RANDOM = table(
    RandomUniform=uniform,
    RandomUniformLike=uniform,
    RandomNormal=normal,
    RandomNormalLike=normal,
    Multinomial=multinomial,
    Dropout=dropout,
)
