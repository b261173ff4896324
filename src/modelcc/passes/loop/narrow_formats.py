"""Narrow number formats, as arithmetic on their bits.

A small float with ``m`` bits of mantissa is widened by moving exponent and mantissa to their
positions in f32 and multiplying by a power of two for the difference of the exponents' biases,
which also handles subnormal numbers.  It is rounded to by adding half of the dropped bits, to even;
for subnormal results, adding the power of two with the same unit in the last place rounds.

Formats: OCP 8-bit floating point (e4m3fn, e5m2), those with IEEE 754 semantics (e3m4, e4m3), Noune
et al. 2022 (the ``fnuz`` ones, in which the only NaN is 0x80), and OCP microscaling formats (e2m3,
e3m2, e2m1, and e8m0 for scales).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from types import MappingProxyType

from modelcc.ir.types import (
    F4E2M1,
    F6E2M3,
    F6E3M2,
    F8E3M4,
    F8E4M3,
    F8E4M3B11FNUZ,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F8E8M0,
    F32,
    F64,
    I8,
    U8,
    U32,
    DType,
)
from modelcc.passes.loop.elementary.builder import CodeBuilder, Term


@dataclass(frozen=True)
class FloatFormat:
    """A small float: bits of mantissa, bias of the exponent, and its special codes.

    ``largest`` is the code of the largest number; larger ones become ``overflow``, and NaN
    becomes ``nan``.  ``infinity`` is None if there is none; with ``unsigned_zero`` the code of -0
    is NaN.
    """

    mantissa: int
    bias: int
    largest: int
    overflow: int
    nan: int
    sign: int = 0x80
    infinity: int | None = None
    unsigned_zero: bool = False


_FORMATS: Mapping[DType, FloatFormat] = MappingProxyType(
    {
        F8E3M4: FloatFormat(4, 3, 0x6F, 0x70, 0x78, infinity=0x70),
        F8E4M3: FloatFormat(3, 7, 0x77, 0x78, 0x7C, infinity=0x78),
        F8E4M3B11FNUZ: FloatFormat(3, 11, 0x7F, 0x80, 0x80, unsigned_zero=True),
        F8E4M3FN: FloatFormat(3, 7, 0x7E, 0x7F, 0x7F),
        F8E4M3FNUZ: FloatFormat(3, 8, 0x7F, 0x80, 0x80, unsigned_zero=True),
        F8E5M2: FloatFormat(2, 15, 0x7B, 0x7C, 0x7E, infinity=0x7C),
        F8E5M2FNUZ: FloatFormat(2, 16, 0x7F, 0x80, 0x80, unsigned_zero=True),
        F6E2M3: FloatFormat(3, 1, 0x1F, 0x1F, 0x20, sign=0x20),
        F6E3M2: FloatFormat(2, 3, 0x1F, 0x1F, 0x20, sign=0x20),
        F4E2M1: FloatFormat(1, 1, 0x7, 0x7, 0x8, sign=0x8),
    }
)
_INFINITY = 0x7F800000


def wide_dtype(dtype: DType) -> DType:
    """The dtype of computation: f32 for narrow floats, 8 bits for narrow integers, else itself."""
    if not dtype.is_narrow:
        return dtype
    if dtype.is_float:
        return F32
    return I8 if dtype.kind == "int" else U8


def widened(build: CodeBuilder, byte: Term, dtype: DType) -> Term:
    """The value with code ``byte`` (u8) in ``dtype``, in the dtype of computation; exact."""
    if dtype == F8E8M0:
        return _power_of_two(byte)
    if dtype.is_float:
        return _widened_float(build, byte, _FORMATS[dtype])
    unused = 8 - dtype.bits
    if dtype.kind == "uint":
        return byte & ((1 << dtype.bits) - 1)
    return (byte << unused).to(I8) >> unused


def narrowed(build: CodeBuilder, value: Term, dtype: DType) -> Term:
    """The code of ``value`` as a byte: f32 rounded to nearest even, or the low bits of an i32."""
    if dtype == F8E8M0:
        return _exponent(build, value)
    if dtype.is_float:
        return _narrowed_float(build, value, _FORMATS[dtype])
    return (value & ((1 << dtype.bits) - 1)).to(U8)


def odd_single(build: CodeBuilder, value: Term) -> Term:
    """An f64 as f32, rounded to odd: another rounding then equals a single one.

    Boldo and Melquiond 2008, "Emulation of a FMA and correctly rounded sums".
    """
    single = build.let(value.to(F32))
    back = build.let(single.to(F64))
    beyond = (back.call("abs") > value.call("abs")).to(U32)
    inexact = back.differs(value).to(U32)
    return ((single.unsigned_bits - beyond) | inexact).as_float


def _widened_float(build: CodeBuilder, byte: Term, form: FloatFormat) -> Term:
    code = build.let(byte.to(U32))
    magnitude = build.let(code & (form.sign - 1))
    placed = (magnitude << (23 - form.mantissa)).as_float
    scaled = (placed * 2.0 ** (127 - form.bias)).unsigned_bits
    if form.infinity is not None:
        special = magnitude.call("ge", form.infinity)
        mantissa = magnitude << (23 - form.mantissa)
        scaled = (mantissa | _INFINITY).where(special, scaled)
    sign = (code & form.sign) << (31 - (form.sign.bit_length() - 1))
    result = build.let((scaled | sign).as_float)
    if form.nan == 0x80 and form.unsigned_zero:
        return result.number(nan).where((code & 0xFF).equal(form.nan), result)
    if form.infinity is None and form.nan == form.sign - 1:
        return result.number(nan).where(magnitude.equal(form.nan), result)
    return result


def _narrowed_float(build: CodeBuilder, value: Term, form: FloatFormat) -> Term:
    bits = build.let(value.unsigned_bits)
    size = build.let(bits & 0x7FFFFFFF)
    shift = 23 - form.mantissa
    even = (size >> shift) & 1
    offset = (127 - form.bias) << 23
    normal = (size + even + ((1 << (shift - 1)) - 1 - offset) % (1 << 32)) >> shift
    exponent = 24 - form.bias - form.mantissa
    rounded = build.let(size.as_float + 2.0**exponent).unsigned_bits
    small = rounded - ((exponent + 127) << 23)
    code = build.let(small.where(size < (128 - form.bias) << 23, normal))
    above = code > form.largest
    code = code.number(form.overflow).where(above, code)
    is_nan = size > _INFINITY
    code = build.let(code.number(form.nan).where(is_nan, code))
    sign = (bits >> 31) << (form.sign.bit_length() - 1)
    if form.unsigned_zero:
        sign = sign.number(0).where(code.equal(0), sign)
    return (code | sign).to(U8)


def _power_of_two(byte: Term) -> Term:
    """2^(code - 127): the code is f32's exponent; 0 is 2^-127, subnormal there, and 255 NaN."""
    code = byte.to(U32)
    bits = code.number(0x00400000).where(code.equal(0), code << 23)
    return bits.number(0x7FC00000).where(code.equal(0xFF), bits).as_float


def _exponent(build: CodeBuilder, value: Term) -> Term:
    """The nearest power of two, ties upwards; undefined for 0, negatives and NaN."""
    bits = build.let(value.unsigned_bits)
    rounded = (bits + 0x00400000) >> 23
    tiny = (bits.call("ge", 0x00600000)).to(U32)
    code = tiny.where(bits < 0x00800000, rounded)
    outside = (bits - 1).call("ge", 0x7F400000 - 1)
    return code.number(0xFF).where(outside, code).to(U8)
