"""Reduction of huge arguments of trigonometric functions by multiples of pi/2.

``|x|`` is ``m 2^e`` with an integer ``m``.  The bits of ``1 / 2 pi`` before ``2^-e`` contribute
whole turns and those far after it nothing, so that a few 32-bit words from the middle, multiplied
by ``m`` in integers, give the fraction of a turn to any precision (M. H. Payne and R. N. Hanek,
"Radian reduction for trigonometric functions", 1983; K. C. Ng, "Argument reduction for huge
arguments: good to the last bit", 1992).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from modelcc.ir.types import F32, F64, I32, I64, U32, U64
from modelcc.passes.loop.elementary.builder import CodeBuilder, Term

_Table = Callable[[Term, int], list[Term]]
_LOW = 0xFFFFFFFF
_LEAD = 64
"""Zeros before the bits of ``1 / 2 pi``, since ``e`` may be negative."""

TURN_BITS = 1184
INVERSE_TURN = int(
    "28be60db9391054a7f09d5f47d4d377036d8a5664f10e4107f9458eaf7aef158"
    "6dc91b8e909374b801924bba827464873f877ac72c4a69cfba208d7d4baed121"
    "3a671c09ad17df904e64758e60d4ce7d272117e2ef7e4a0ec7fe25fff7816603"
    "fbcbc462d6829b47db4d9fb3c9f2c26dd3d18fd9a797fa8b5d49eeb1faf97c5e"
    "cf41ce7de294a4ba9afed7ec47e357421580cc11",
    16,
)
"""The first :data:`TURN_BITS` bits of ``1 / 2 pi`` after the binary point."""


@dataclass(frozen=True)
class _BitFormat:
    """A float's layout, and the number of 32-bit words that the fraction of a turn needs.

    No float is closer to a multiple of pi/2 than 2^-33 (f32) or 2^-62 (f64).
    """

    mantissa: int
    bias: int
    fraction: int
    words: int


_FORMATS = {32: _BitFormat(23, 127, 2, 9), 64: _BitFormat(52, 1023, 4, 39)}


def reduced_huge(b: CodeBuilder, x: Term) -> tuple[Term, Term]:
    """``r`` within pi/4 of 0 and the quadrant (I32 or I64, modulo 4) for finite ``|x| >= 1``.

    Lane by lane, since processors multiply 64 bits in scalars, and for small code; without arrays
    on a scalar.
    """
    words = _FORMATS[x.dtype.bits].words
    padded = INVERSE_TURN >> (TURN_BITS + _LEAD - 32 * words)
    read = b.table([padded >> 32 * k & _LOW for k in reversed(range(words))], U32)
    if not b.arrays:
        r, quadrant = _reduced_lane(b, x, read)
        return b.let(r), b.let(quadrant)
    r, quadrant = b.each_lane(x, lambda lane: _reduced_lane(b, b.let(lane), read))
    return r, quadrant


def _reduced_lane(b: CodeBuilder, x: Term, read: _Table) -> tuple[Term, Term]:
    form = _FORMATS[x.dtype.bits]
    bits = b.let(x.bits)
    field = (bits & ((1 << (x.dtype.bits - 1)) - 1)) >> form.mantissa
    place = b.let(field - (form.bias + form.mantissa - _LEAD))
    m = b.let(((bits & ((1 << form.mantissa) - 1)) | (1 << form.mantissa)).to(U64))
    digits = [m] if x.dtype == F32 else [b.let(m & _LOW), b.let(m >> 32)]
    fraction = _turn_fraction(b, digits, _window(b, read, place, form.fraction + len(digits)))
    high = b.let((fraction[0] << 32) | fraction[1])
    if x.dtype == F32:
        quarter, rest = _nearest_quarter(b, high)
        r = (rest.to(F64) * (math.pi / 2 * 2.0**-62)).to(F32)
    else:
        low = b.let((fraction[2] << 32) | fraction[3])
        quarter, rest = _nearest_quarter(b, b.let(high + (low >> 63)))
        r = _radians(b, rest, low.to(I64))
    negative = b.let(x < 0.0)
    quadrant = b.let(quarter.to(I32 if x.dtype == F32 else I64))
    r = b.let(r)
    return (-r).where(negative, r), (-quadrant).where(negative, quadrant)


def _window(b: CodeBuilder, read: _Table, place: Term, count: int) -> list[Term]:
    """``count`` words (in u64) of a table from bit ``place`` on."""
    first = b.let(place >> 5)
    back = b.let(32 - (place & 31).to(U64))
    words = [b.let(word.to(U64)) for word in read(first, count + 1)]
    return [b.let((((this << 32) | after) >> back) & _LOW) for this, after in pairwise(words)]


def _turn_fraction(b: CodeBuilder, digits: list[Term], words: list[Term]) -> list[Term]:
    """The first words after the point of the product of an integer and a fraction.

    ``digits`` are the integer's, least significant first, ``words`` the fraction's, most
    significant first.
    """
    count = len(words) - len(digits)
    columns: list[list[Term]] = [[] for _ in range(count + 2)]
    for power, digit in enumerate(digits):
        for place, word in enumerate(words, 1 - power):
            if 0 < place <= count + 1:
                product = b.let(digit * word)
                columns[place].append(product & _LOW)
                columns[place - 1].append(product >> 32)
    result: list[Term] = []
    carry: Term | None = None
    for column in reversed(columns[1 : count + 1]):
        for term in column:
            carry = term if carry is None else carry + term
        assert carry is not None
        total = b.let(carry)
        result.insert(0, b.let(total & _LOW))
        carry = total >> 32
    return result


def _nearest_quarter(b: CodeBuilder, turn: Term) -> tuple[Term, Term]:
    """The nearest number of quarters of a fraction of 2^64, and the signed remainder."""
    quarter = b.let((turn + (1 << 61)) >> 62)
    return quarter, b.let((turn - (quarter << 62)).to(I64))


_HALF_PI = (1.570796325802803, 9.920935796805404e-10)
"""pi/2 as its first 27 bits plus the rest."""


def _radians(b: CodeBuilder, high: Term, low: Term) -> Term:
    """``(high + low 2^-64) 2^-62 pi/2``; the leading product, of 26 and 27 bits, is exact."""
    few = b.let(high & ((1 << 35) - 1))
    top = b.let((high - few).to(F64) * 2.0**-62)
    tail = b.let(low.to(F64).times(2.0**-64, few.to(F64)) * 2.0**-62)
    return top.times(_HALF_PI[0], top.times(_HALF_PI[1], tail * (math.pi / 2)))
