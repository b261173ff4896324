"""Floats rounded to fewer exponent and mantissa bits, within their own type."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from modelcc.frontends.stablehlo.call import HloCall, table
from modelcc.ir.types import BF16, DTYPES, F16, F32, F64, DType
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of

_MANTISSAS: Mapping[DType, int] = MappingProxyType({F16: 10, BF16: 7, F32: 23, F64: 52})


def reduce_precision(call: HloCall) -> str:
    """The nearest float of ``exponent_bits`` and ``mantissa_bits``, ties to even.

    As in XLA, subnormal results become 0, overflows infinite; NaN is kept, and becomes infinite if
    there are no mantissa bits to represent it.
    """
    x, exponent = call.value(0), call.integer("exponent_bits")
    mantissa, own = call.integer("mantissa_bits"), call.dtype()
    if own not in _MANTISSAS:
        call.fail(f"the precision of {own} is not reduced")
    if mantissa >= _MANTISSAS[own] and exponent >= own.bits - 1 - _MANTISSAS[own]:
        return x.name
    bits = of(ew.BitCast(DTYPES[f"u{own.bits}"]), x)
    sign = 1 << (own.bits - 1)
    size = _within(_rounded(_and(bits, sign - 1), own, mantissa), own, exponent)
    found = of(ew.BitCast(own), of(ew.BitwiseOr(), size, _and(bits, sign)))
    return of(ew.Where(), of(ew.IsNaN(), x), x, found).name if mantissa else found.name


def _rounded(size: Value, own: DType, mantissa: int) -> Value:
    """Bits without a sign, rounded to fewer mantissa bits; NaN becomes infinite."""
    cut = _MANTISSAS[own] - mantissa
    if cut <= 0:
        return size
    size = of(ew.Min(), size, size.lift(_infinity(own)))
    last = _and(of(ew.BitShift(left=False), size, size.lift(cut)), 1)
    return _and(size + last + ((1 << (cut - 1)) - 1), (1 << (own.bits - 1)) - (1 << cut))


def _within(size: Value, own: DType, exponent: int) -> Value:
    """Infinite or 0 where the exponent is out of range."""
    shift = _MANTISSAS[own]
    bias, narrow = (1 << (own.bits - 2 - shift)) - 1, (1 << (exponent - 1)) - 1
    if narrow >= bias:
        return size
    above = of(ew.Greater(), size, size.lift(((bias + narrow + 1) << shift) - 1))
    below = of(ew.Less(), size, size.lift((bias - narrow + 1) << shift))
    rest = of(ew.Where(), below, size.lift(0), size)
    return of(ew.Where(), above, size.lift(_infinity(own)), rest)


def _infinity(own: DType) -> int:
    return (1 << (own.bits - 1)) - (1 << _MANTISSAS[own])


def _and(x: Value, mask: int) -> Value:
    return of(ew.BitwiseAnd(), x, x.lift(mask))


PRECISION = table(reduce_precision=reduce_precision)
