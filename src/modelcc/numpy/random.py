"""Random numbers from explicit keys: the same key gives the same numbers, on any machine.

A key is a tensor u32[2]; :func:`split` makes others of it, and each should be used once.  Numbers
are made by Threefry-2x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), each
from its place; for the same key they have the
bits of ``jax.random`` of JAX 0.5 and later: ``bits``, ``uniform``, ``randint``, ``bernoulli``,
``permutation``, ``split``, ``fold_in``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import ml_dtypes
import numpy as np

from modelcc.frontends.kit.special import erfinv
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, product
from modelcc.ir.types import BF16, F16, F32, F64, I32, I64, U8, U16, U32, U64, DType
from modelcc.numpy.arrays import Shape, arange, asarray, of_array
from modelcc.numpy.joining import stack
from modelcc.ops.arithmetic import BitCast, Value
from modelcc.ops.generate import Iota
from modelcc.tensor.axes import axis_of, extents_of
from modelcc.tensor.builder import TensorBuilder
from modelcc.tensor.lazy import apply, callers_line
from modelcc.tensor.promotion import named_type
from modelcc.tensor.tensor import Tensor

MANTISSAS = {F32: (U32, U32, 23), F64: (U64, U64, 52), F16: (U16, U16, 10), BF16: (U8, U16, 7)}
"""The type of the random bits of a float, that of all its bits, and how many its fraction has."""


ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
"""Bits by which words are turned: four rounds of one row, four of the other, and so on."""

PARITY = 0x1BD11BDA
"""What makes a third word of a key."""


def key(seed: int) -> Tensor:
    """The key of a seed, of which 64 bits count."""
    words = np.array([(seed >> 32) & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)
    return of_array(words)


def split(key: Tensor, num: int = 2) -> Tensor:
    """``num`` keys of one, u32[num, 2]."""
    return stack(counted(_checked(key), (num,)), -1)


def fold_in(key: Tensor, data: Any) -> Tensor:
    """The key of a key and a number, such as that of a step."""
    number = asarray(data).cast(U32)
    return stack(threefry(_checked(key), number * 0, number), -1)


def _checked(key: Any) -> Tensor:
    found = asarray(key)
    if found.dtype != U32 or found.shape != (2,):
        raise ModelError(f"{found.type} is no key of random numbers", callers_line(),
                         "make one with modelcc.numpy.random.key(seed)")  # fmt: skip
    return found


def bits(key: Tensor, shape: Shape = (), dtype: Any = "u32") -> Tensor:
    """Whole numbers without sign, all bits random."""
    wanted = named_type(dtype)
    if wanted.kind != "uint":
        raise ModelError(f"bits of type {wanted}", callers_line(), "u8, u16, u32 or u64")
    high, low = counted(_checked(key), extents_of(shape))
    if wanted == U64:
        return (high.cast(U64) << 32) | low.cast(U64)
    return (high ^ low).cast(wanted)


def uniform(
    key: Tensor, shape: Shape = (), dtype: Any = "f32", minval: Any = 0.0, maxval: Any = 1.0
) -> Tensor:
    """Floats from ``minval`` on, below ``maxval``, each as likely."""
    kind = _float(dtype)
    drawn, words, fraction = MANTISSAS[kind]
    found = (bits(key, shape, drawn) >> (drawn.bits - fraction)).cast(words)
    one = int(np.ones((), kind.numpy).view(words.numpy))
    whole = found | one
    unit = whole.result(BitCast(kind), whole) - 1.0
    low, high = (asarray(v).cast(kind) for v in (minval, maxval))
    return low.maximum(unit * (high - low) + low)


def _float(dtype: Any) -> DType:
    kind = named_type(dtype)
    if kind not in MANTISSAS:
        raise ModelError(f"random numbers of type {kind}", callers_line(), "f16, bf16, f32 or f64")
    return kind


def normal(key: Tensor, shape: Shape = (), dtype: Any = "f32") -> Tensor:
    """Floats of mean 0 and variance 1: the inverse of the normal distribution of uniform ones."""
    kind = _float(dtype)
    low = float(np.nextafter(np.array(-1, kind.numpy), np.array(0, kind.numpy)))
    return _inverse_erf(uniform(key, shape, kind, low, 1.0)) * math.sqrt(2)


def _inverse_erf(x: Tensor) -> Tensor:
    build = TensorBuilder(Tensor)
    wide = x if x.dtype in (F32, F64) else x.cast(F32)
    return build.tensor(erfinv(Value(build, build.name(wide))).name).cast(x.dtype)


def truncated_normal(
    key: Tensor, lower: float, upper: float, shape: Shape = (), dtype: Any = "f32"
) -> Tensor:
    """Of the normal distribution what lies between ``lower`` and ``upper``."""
    kind = _float(dtype)
    ends = [math.erf(bound / math.sqrt(2)) for bound in (lower, upper)]
    found = _inverse_erf(uniform(key, shape, kind, *ends)) * math.sqrt(2)
    inner = [float(np.nextafter(np.array(b, kind.numpy), np.array(d, kind.numpy)))
             for b, d in ((lower, math.inf), (upper, -math.inf))]  # fmt: skip
    return found.clip(*inner)


def bernoulli(key: Tensor, p: Any = 0.5, shape: Shape | None = None) -> Tensor:
    """Bools that hold with probability ``p``."""
    chance = asarray(p).floats()
    return uniform(key, chance.shape if shape is None else shape, chance.dtype) < chance


def randint(key: Tensor, shape: Shape, minval: int, maxval: int, dtype: Any = "i32") -> Tensor:
    """Whole numbers from ``minval`` on, below ``maxval``, each as likely but for 2^-32.

    Of two words, the upper one counts as its remainder times 2^32.
    """
    kind = named_type(dtype)
    if kind not in (I32, I64, U32, U64):
        raise ModelError(f"randint of type {kind}", callers_line(), "i32, i64, u32 or u64")
    words = U32 if kind.bits == 32 else U64
    upper, lower = (bits(k, shape, words) for k in split(key))
    span = max(maxval - minval, 1)
    half = 2 ** (kind.bits // 2) % span
    factor = half * half % (2**kind.bits) % span
    found = ((upper % span) * factor + lower % span) % span
    return found.cast(kind) + minval


def permutation(key: Tensor, x: Any, axis: int = 0) -> Tensor:
    """The slices of ``x`` along ``axis`` (or whole numbers below ``x``) in random order.

    They are sorted by random words, as often as makes equal words unlikely to matter.
    """
    value = arange(x) if isinstance(x, int) else asarray(x)
    place = axis_of(axis, value.ndim)
    count = value.shape[place]
    if not isinstance(count, int):
        raise ModelError(f"a permutation of {count} slices", callers_line(), "a known number")
    order = arange(count)
    for _ in range(math.ceil(3 * math.log(max(1, count)) / math.log(2**32 - 1))):
        key, own = split(key)
        order = order[bits(own, (count,)).argsort()]
    return value.take(order, place)


def choice(key: Tensor, a: Any, shape: Shape = (), replace: bool = True) -> Tensor:
    """Slices of ``a`` (or whole numbers below it), each as likely; without ``replace`` once."""
    value = arange(a) if isinstance(a, int) else asarray(a)
    count, size = value.shape[0], product(extents_of(shape))
    if replace:
        return value[randint(key, shape, 0, count)]
    if not isinstance(size, int) or size > count:
        raise ModelError(f"{size} different ones of {count}", callers_line(), "choose fewer")
    picked = permutation(key, count)[:size].reshape(extents_of(shape))
    return value[picked]


def gumbel(key: Tensor, shape: Shape = (), dtype: Any = "f32") -> Tensor:
    """``-log(-log(u))`` of uniform u."""
    kind = _float(dtype)
    limits: Any = cast(Any, ml_dtypes.finfo)(kind.numpy)
    return -(-uniform(key, shape, kind, float(limits.tiny), 1.0).log()).log()


def exponential(key: Tensor, shape: Shape = (), dtype: Any = "f32") -> Tensor:
    """Of mean 1."""
    return -(-uniform(key, shape, dtype)).log1p()


def categorical(key: Tensor, logits: Any, axis: int = -1, shape: Shape | None = None) -> Tensor:
    """Whole numbers with the probabilities of which ``logits`` along ``axis`` are logarithms.

    The places of the greatest sums of a logit and a Gumbel number.
    """
    value = asarray(logits).floats()
    place = axis_of(axis, value.ndim)
    batch = (*value.shape[:place], *value.shape[place + 1 :])
    wanted = batch if shape is None else extents_of(shape)
    lead = wanted[: len(wanted) - len(batch)]
    noise = gumbel(key, (*lead, *value.shape), value.dtype)
    return (noise + value).argmax(place + len(lead))


def threefry(key: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Two words for each pair of words, in 20 rounds; ``key`` is u32[..., 2]."""
    words = [key[..., 0], key[..., 1]]
    words.append(words[0] ^ words[1] ^ PARITY)
    x, y = first + words[0], second + words[1]
    for group in range(5):
        for bits in ROTATIONS[group % 2]:
            x = x + y
            y = _turned(y, bits) ^ x
        x = x + words[(group + 1) % 3]
        y = y + words[(group + 2) % 3] + (group + 1)
    return x, y


def _turned(x: Tensor, bits: int) -> Tensor:
    return (x << bits) | (x >> (32 - bits))


def counted(key: Tensor, shape: Sequence[Index]) -> tuple[Tensor, Tensor]:
    """Two words for each place of ``shape``, whose number in order is what is counted.

    Places have numbers of 32 bits: the upper word of the count is 0.
    """
    (low,) = apply(Tensor, Iota((product(shape),), 0, 0, 1, U32), ())
    x, y = threefry(key, low.of_number(0, U32), low)
    return x.reshape(tuple(shape)), y.reshape(tuple(shape))
