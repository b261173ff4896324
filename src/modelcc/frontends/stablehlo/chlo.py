"""Elementwise CHLO operations that correspond to ops."""

from __future__ import annotations

from modelcc.frontends.stablehlo.call import Handler, HloCall, plain, table
from modelcc.frontends.stablehlo.elementwise import as_type, function
from modelcc.ir.types import F32
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import of
from modelcc.ops.comparison import above


def infinite(negative: bool, positive: bool) -> Handler:
    return plain(ew.IsInf(negative, positive))


def erfc(call: HloCall) -> str:
    """From erf near zero; elsewhere by an approximation of Numerical Recipes (6.2).

    Its relative error is 1.2e-7 everywhere.
    """
    x = call.value(0)
    if call.dtype() != F32:
        x = of(ew.Cast(F32), x)
    z = of(ew.Abs(), x)
    t = z.lift(1.0) / (z * 0.5 + 1.0)
    total = t.lift(_ERFC[0])
    for factor in _ERFC[1:]:
        total = total * t + factor
    tail = t * of(ew.Exp(), total - z * z)
    tail = of(ew.Where(), of(ew.Less(), x, x.lift(0.0)), -tail + 2.0, tail)
    near = -of(ew.Erf(), x) + 1.0
    return as_type(call, of(ew.Where(), above(z, 0.5), tail, near).name, call.dtype())


_ERFC = (
    *(0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807),
    *(-0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223),
)
"""Coefficients of the approximation, highest power first."""


def square(call: HloCall) -> str:
    return (call.value(0) * call.value(0)).name


ABOVE = table(
    "chlo",
    acos=function(ew.Acos()),
    acosh=function(ew.Acosh()),
    asin=function(ew.Asin()),
    asinh=function(ew.Asinh()),
    atan=function(ew.Atan()),
    atanh=function(ew.Atanh()),
    cosh=function(ew.Cosh()),
    sinh=function(ew.Sinh()),
    tan=function(ew.Tan()),
    erf=function(ew.Erf()),
    erfc=erfc,
    square=square,
    is_inf=infinite(True, True),
    is_neg_inf=infinite(True, False),
    is_pos_inf=infinite(False, True),
)
