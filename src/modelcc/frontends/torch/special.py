"""Handlers of special functions, computed in f64."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from modelcc.frontends.kit import special, special_airy
from modelcc.frontends.kit.angles import arctangent
from modelcc.frontends.torch.aten import Aten, Handler, Operand, table
from modelcc.frontends.torch.comparison import INTEGERS, copysign
from modelcc.ir.types import F64, I64
from modelcc.ops import elementwise as ew
from modelcc.ops import logic
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import where
from modelcc.ops.views import cast


def widely(function: Callable[[Value], Value]) -> Handler:
    """``function`` on operands converted to f64."""

    def handler(call: Aten, x: Operand) -> Value:
        return cast(function(call.as_value(x, F64)), call.result.dtype)

    return handler


def atan2(call: Aten, y: Operand, x: Operand) -> Value:
    return arctangent(call.as_value(y), call.as_value(x))


def airy(call: Aten, x: Operand) -> Value:
    """NaN at infinity, as in PyTorch."""
    a = call.as_value(x, F64)
    return cast(where(of(ew.IsInf(), a), math.nan, special_airy.airy(a)), call.result.dtype)


def angle(call: Aten, x: Value) -> Value:
    """The argument as a complex number: pi for negative ones."""
    a = call.as_value(x)
    turned = where(special.below(a, 0.0), math.pi, a.lift(0.0))
    return where(of(ew.IsNaN(), a), a, turned)


def nextafter(call: Aten, x: Operand, y: Operand) -> Value:
    """The neighbour of ``x`` towards ``y``: the bits of its magnitude plus or minus one."""
    a, b = call.as_value(x), call.as_value(y)
    dtype = INTEGERS[a.type.dtype.bits]
    bits = of(ew.BitCast(dtype), a)
    outwards = of(ew.Equal(), of(ew.Less(), a, b), of(ew.Greater(), a, a.lift(0.0)))
    moved = of(ew.BitCast(a.type.dtype), where(outwards, bits + 1, bits - 1))
    least = of(ew.BitCast(a.type.dtype), bits.lift(1))
    moved = where(of(ew.Equal(), a, a.lift(0.0)), copysign(call, least, b), moved)
    unordered = of(logic.Or(), of(ew.IsNaN(), a), of(ew.IsNaN(), b))
    return where(unordered, math.nan, where(of(ew.Equal(), a, b), b, moved))


def frexp(call: Aten, x: Value) -> tuple[Value, Value]:
    """The fraction in [1/2, 1) and the exponent of 2."""
    wide = cast(x, F64)
    tiny = special.below(of(ew.Abs(), wide), 2.0**-1022)
    bits = of(ew.BitCast(I64), where(tiny, wide * 2.0**54, wide))
    raw = of(logic.BitwiseAnd(), of(logic.BitShift(False), bits, bits.lift(52)), bits.lift(2047))
    exponent = where(tiny, raw - 1076, raw - 1022)
    kept = of(logic.BitwiseAnd(), bits, bits.lift(~(2047 << 52)))
    fraction = of(ew.BitCast(F64), of(logic.BitwiseOr(), kept, bits.lift(1022 << 52)))
    whole = of(
        logic.Or(), of(ew.Equal(), wide, wide.lift(0.0)), of(ew.Equal(), raw, raw.lift(2047))
    )
    second = call.results[1]
    assert second is not None
    parts = where(whole, wide, fraction), where(whole, 0, exponent)
    return cast(parts[0], call.result.dtype), cast(parts[1], second.dtype)


SPECIAL = table(
    angle=angle,
    nextafter=nextafter,
    frexp=frexp,
    atan2=atan2,
    erfc=widely(special.erfc),
    erfinv=widely(special.erfinv),
    special_erfcx=widely(special.erfcx),
    special_ndtri=widely(special.ndtri),
    lgamma=widely(special.lgamma),
    special_airy_ai=airy,
    i0=widely(special.i0),
    special_i0e=widely(special.i0e),
    special_i1=widely(special.i1),
    special_i1e=widely(special.i1e),
    special_modified_bessel_i0=widely(special.i0),
    special_modified_bessel_i1=widely(special.i1),
    special_modified_bessel_k0=widely(special.k0),
    special_modified_bessel_k1=widely(special.k1),
    special_scaled_modified_bessel_k0=widely(partial(special.k0, scaled=True)),
    special_scaled_modified_bessel_k1=widely(partial(special.k1, scaled=True)),
    special_spherical_bessel_j0=widely(special.spherical_j0),
    special_bessel_j0=widely(special.j0),
    special_bessel_j1=widely(special.j1),
    special_bessel_y0=widely(special.y0),
    special_bessel_y1=widely(special.y1),
)
