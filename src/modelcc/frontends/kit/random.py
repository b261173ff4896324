"""Random numbers computed from element positions at run time: the same in every run."""

from __future__ import annotations

import math

import numpy as np

from modelcc.frontends.kit.conversion import Conversion
from modelcc.ir.index import Index, product
from modelcc.ir.types import F32, U32
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.generate import Iota
from modelcc.ops.shape import Reshape


def uniform(call: Conversion, shape: tuple[Index, ...], seed: int, stream: int = 0) -> Value:
    """Uniform f32 in [0, 1): a hash of each element's position, ``seed`` and ``stream``.

    The hash is Wellons' lowbias32 (Hash Function Prospector, 2018).
    """

    def word(number: int) -> Value:
        return call.literal(np.array(number, np.uint32))

    def folded(x: Value, bits: int) -> Value:
        return of(ew.BitwiseXor(), x, of(ew.BitShift(False), x, word(bits)))

    line = call.made(Iota((product(shape),), 0, 0, 1, U32))
    offset = (seed * 0x9E3779B9 + stream * 0x85EBCA6B + 1) & 0xFFFFFFFF
    x = line + word(offset)
    for bits, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = of(ew.Mul(), folded(x, bits), word(factor))
    x = of(ew.BitShift(False), folded(x, 16), word(8))
    return of(Reshape(shape), of(ew.Cast(F32), x) * 2.0**-24)


def normal(call: Conversion, shape: tuple[Index, ...], seed: int) -> Value:
    """Normally distributed f32, of mean 0 and variance 1.

    Box and Muller, "A note on the generation of random normal deviates", 1958.
    """
    logarithm = of(ew.Log(), uniform(call, shape, seed) * -1.0 + 1.0)
    turn = of(ew.Cos(), uniform(call, shape, seed, 1) * (2.0 * math.pi))
    return of(ew.Sqrt(), logarithm * -2.0) * turn
