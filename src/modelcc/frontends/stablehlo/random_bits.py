"""Counter-based random number generators, bit-exact with XLA's on CPUs.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011): ThreeFry 2x32 of 20 rounds,
Philox 4x32 of 10.  The state is a key and a counter of 64 bits each.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.stablehlo.call import HloCall
from modelcc.ir.types import U32, U64, DType
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.generate import Iota
from modelcc.ops.shape import Concat, Reshape, Slice

Words = tuple[Value, ...]
"""Words of 32 bits, the least significant first."""

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
FACTORS, STEPS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)


def random_bits(call: HloCall) -> Sequence[str]:
    """The next state, and the bits of the second result."""
    kind, shape = str(call.attribute("rng_algorithm")), call.static_shape(1)
    dtype = call.op.types[1].dtype
    if call.type().shape != (2,) or call.dtype() != U64 or dtype is None or not dtype.is_integer:
        unsupported("a state that is no pair of u64, or numbers that are no integers")
    key, counter = (of(Slice((n,), (1,), (1,)), call.value(0)) for n in range(2))
    made = threefry_bits if kind == "THREE_FRY" else philox_bits
    found, used = made(call, key, counter, shape, dtype.bits)
    after = counter + call.literal(np.array([used], np.uint64))
    state = call.emit(Concat(0), key.name, after.name)
    narrow = of(ew.Cast(_unsigned(dtype)), found)
    return state, (narrow if dtype.kind == "uint" else of(ew.BitCast(dtype), narrow)).name


def _unsigned(dtype: DType) -> DType:
    return dtype if dtype.kind == "uint" else DType(
        f"u{dtype.bits}", "uint", dtype.bits, f"uint{dtype.bits}"
    )  # fmt: skip


def threefry_bits(
    call: HloCall, key: Value, counter: Value, shape: Sequence[int], bits: int
) -> tuple[Value, int]:
    """Bits of a shape, and the increment of the counter: a count gives two words."""
    if bits == 64:
        low, high = threefry(_counts(call, counter, prod(shape)), _words(key))
        return of(Reshape(tuple(shape)), _joined(low, high)), prod(shape)
    axis = _split_axis(shape)
    half = [-(-e // 2) if a == axis else e for a, e in enumerate(shape)] or [1]
    pairs = threefry(_counts(call, counter, prod(half)), _words(key))
    columns = [of(Reshape((*half[: axis + 1], 1, *half[axis + 1 :])), p) for p in pairs]
    both = of(Concat(axis + 1), *columns)
    whole = [2 * e if a == axis else e for a, e in enumerate(half)]
    found = of(Reshape(tuple(whole)), both)
    wanted = tuple(shape) or (1,)
    cut = of(Slice((0,) * len(wanted), wanted, (1,) * len(wanted)), found)
    return of(Reshape(tuple(shape)), cut), prod(half)


def _split_axis(shape: Sequence[int]) -> int:
    """The first axis of even extent, else the first longest one."""
    even = [axis for axis, extent in enumerate(shape) if extent % 2 == 0]
    return even[0] if even else shape.index(max(shape)) if shape else 0


def threefry(counts: Words, key: Words) -> Words:
    """Two words of each count."""
    keys = (*key, _xor(_xor(key[0], key[1]), key[0].lift(PARITY)))
    x, y = counts[0] + keys[0], counts[1] + keys[1]
    for turn in range(5):
        for by in ROTATIONS[turn % 2]:
            x = x + y
            y = _xor(x, _rotated(y, by))
        x, y = x + keys[(turn + 1) % 3], y + keys[(turn + 2) % 3] + (turn + 1)
    return x, y


def philox_bits(
    call: HloCall, key: Value, counter: Value, shape: Sequence[int], bits: int
) -> tuple[Value, int]:
    """Bits of a shape, and the increment of the counter: a count gives four words."""
    count = prod(shape)
    rounds = -(-count * max(1, bits // 32) // 4)
    line = call.made(Iota((rounds,), 0, 0, 1, U64)) + counter
    carry = of(ew.Cast(U64), of(ew.Less(), line, counter))  # the key is the counter's upper half
    words = philox((*_words(line), *_words(carry + key)), _words(key))
    made = words if bits < 64 else (_joined(*words[:2]), _joined(*words[2:]))
    columns = [of(Reshape((rounds, 1)), word) for word in made]
    found = of(Reshape((rounds * len(made),)), of(Concat(1), *columns))
    return of(Reshape(tuple(shape)), of(Slice((0,), (count,), (1,)), found)), rounds


def philox(counts: Words, key: Words) -> Words:
    """Four words of each count of four words."""
    a, b, c, d = counts
    k, m = key
    for turn in range(10):
        if turn:
            k, m = k + k.lift(STEPS[0]), m + m.lift(STEPS[1])
        (low, high), (lower, higher) = _product(a, FACTORS[0]), _product(c, FACTORS[1])
        a, b, c, d = _xor(_xor(higher, b), k), lower, _xor(_xor(high, d), m), low
    return a, b, c, d


def _counts(call: HloCall, counter: Value, count: int) -> Words:
    """Words of the counter and those after it."""
    return _words(call.made(Iota((count,), 0, 0, 1, U64)) + counter)


def _words(x: Value) -> Words:
    return of(ew.Cast(U32), x), of(ew.Cast(U32), of(ew.BitShift(False), x, x.lift(32)))


def _joined(low: Value, high: Value) -> Value:
    wide, other = (of(ew.Cast(U64), word) for word in (high, low))
    return of(ew.BitwiseOr(), of(ew.BitShift(True), wide, wide.lift(32)), other)


def _product(x: Value, factor: int) -> Words:
    wide = of(ew.Cast(U64), x)
    return _words(wide * wide.lift(factor))


def _rotated(x: Value, by: int) -> Value:
    left, right = of(ew.BitShift(True), x, x.lift(by)), of(ew.BitShift(False), x, x.lift(32 - by))
    return of(ew.BitwiseOr(), left, right)


def _xor(x: Value, y: Value) -> Value:
    return of(ew.BitwiseXor(), x, y)
