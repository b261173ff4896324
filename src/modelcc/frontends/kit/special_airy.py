"""The Airy function composed of simpler ops, for f64 operands.

Source: Moshier, Cephes (airy.c), with PyTorch's copy of the coefficients.
"""

from __future__ import annotations

import math

from modelcc.frontends.kit.special import below, polynomial, square
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import above, where

DECAY_TOP = (
    *(1.0, 14.026469116338967, 70.53609068404442, 159.75639135016442),
    *(168.08922493463058, 76.27960536152345, 12.007595273964581, 0.346538101525629),
)
DECAY_BOTTOM = (
    *(1.0, 14.095913560783403, 71.47784008255756, 164.2346928715297),
    *(177.31808814540045, 84.51389701414746, 14.75625625848472, 0.5675945326387702),
)
SINE_TOP = (
    *(
        -1.6778769848911465e-08,
        -2.776491081552329e-06,
        -0.0001592764962392621,
        -0.004062659235948854,
    ),
    *(-0.04919001326095003, -0.2797799815451191, -0.6931580360369335, -0.6264565444319123),
    *(-0.1316963234183318,),
)
SINE_BOTTOM = (
    *(4.5185009297058035e-07, 7.547203482874142e-05, 0.004402916416152112, 0.11568717379518804),
    *(1.4752914677166642, 9.187074029072596, 26.736704094149957, 32.682503279522464),
    *(13.356042070655324,),
)
COSINE_TOP = (
    *(3.415517847659236e-10, 8.117892395543892e-08, 6.98793669997261e-06, 0.000282851600836737),
    *(0.005858041130483885, 0.06338889196289255, 0.35146565610554764, 0.9391692298166502),
    *(1.0657989759959559, 0.39110302961568827, 0.01973399320916857),
)
COSINE_BOTTOM = (
    *(4.9183457006293e-09, 1.1716673321441352e-06, 0.00010125908511650914, 0.004126565238242226),
    *(0.08645808263523921, 0.9542936116189619, 5.476860694229755, 15.564662893286462),
    *(19.835292871831214, 9.30892908077442),
)
"""Ratios of polynomials, constant term first."""
VALUE, SLOPE = 0.355028053887817239260, -0.258819403792806798405
"""At zero."""
TERMS = 14
"""Terms of the series, which is used up to 2.09."""


def airy(x: Value) -> Value:
    """Ai: a series around zero, beyond it asymptotic forms that oscillate or decay."""
    a = of(ew.Abs(), x)
    root = of(ew.Sqrt(), a)
    phase = a * root * (2 / 3)
    scale = (1 / math.sqrt(math.pi)) / of(ew.Sqrt(), root)
    inverse = 1.0 / phase
    decay = polynomial(DECAY_TOP, inverse) / polynomial(DECAY_BOTTOM, inverse)
    right = scale * decay * 0.5 * of(ew.Exp(), -phase)
    left = scale * _wave(phase + math.pi / 4, inverse)
    found = where(above(x, 2.09), right, where(below(x, -2.09), left, _series(x)))
    return where(above(x, 103.892), 0.0, found)


def _wave(turned: Value, z: Value) -> Value:
    s = square(z)
    sine = s * polynomial(SINE_TOP, s) / polynomial(SINE_BOTTOM, s) + 1.0
    cosine = z * polynomial(COSINE_TOP, s) / polynomial(COSINE_BOTTOM, s)
    return of(ew.Sin(), turned) * sine - of(ew.Cos(), turned) * cosine


def _series(x: Value) -> Value:
    even, odd = [VALUE], [SLOPE]
    for k in range(1, TERMS):
        even.append(even[-1] / ((3 * k - 1) * (3 * k)))
        odd.append(odd[-1] / ((3 * k) * (3 * k + 1)))
    cube = square(x) * x
    return polynomial(tuple(even), cube) + polynomial(tuple(odd), cube) * x
