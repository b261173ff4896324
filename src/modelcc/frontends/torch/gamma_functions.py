"""Handlers of functions related to gamma: polygamma, Hurwitz's zeta, the incomplete gamma
functions.

Sources: Moshier, Cephes (zeta.c, igam.c), which PyTorch follows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from modelcc.frontends.kit import special
from modelcc.frontends.torch.aten import Aten, Operand, table
from modelcc.frontends.torch.comparison import signbit
from modelcc.frontends.torch.iteration import repeated
from modelcc.ir.types import F32, F64
from modelcc.ops import elementwise as ew
from modelcc.ops import logic
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Expand
from modelcc.ops.comparison import above, where
from modelcc.ops.views import cast

EPSILON = 2.0**-53
BERNOULLI = (
    *(12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9),
    *(7.47242496e10, -2.950130727918164224e12, 1.1646782814350067249e14),
    *(-4.5979787224074726105e15, 1.8152105401943546773e17, -7.1661652561756670113e18),
)
"""``(2 k)! / B_2k``."""

TERMS = 9
"""Terms summed before the remainder is approximated by derivatives (Euler-Maclaurin)."""
STEPS, LARGE = 2000, 50_000.0
"""Maximum iterations of a series or a continued fraction; ``a`` from which these would not
suffice."""
UNIFORM = (
    *(-1 / 3, 1 / 12, -2 / 135, 1 / 864, 1 / 2835, -139 / 777600, 1 / 25515),
    *(-571 / 261273600,),
)
"""Coefficients of powers of eta: the first term of Temme's expansion, SIAM J. Math. Anal. 10
(1979), 757."""

_both = partial(of, logic.And())


def digamma(call: Aten, x: Value) -> Value:
    """At zero an infinity of the opposite sign, at negative integers NaN."""
    a = cast(x, F64)
    pole = _both(special.below(a, 0.0), of(ew.Equal(), a, of(ew.Floor(), a)))
    found = where(pole, math.nan, special.polygamma(0, a))
    zero = where(signbit(call, a), math.inf, a.lift(-math.inf))
    return cast(where(of(ew.Equal(), a, a.lift(0.0)), zero, found), call.result.dtype)


def polygamma(call: Aten, n: int, x: Value) -> Value:
    if n < 2:
        return trigamma(call, x) if n else digamma(call, x)
    factor = math.factorial(n) * (1.0 if n % 2 else -1.0)
    order = call.literal(n + 1.0, F64)
    return cast(_zeta(call, order, cast(x, F64)) * factor, call.result.dtype)


def trigamma(call: Aten, x: Value) -> Value:
    """With PyTorch's precision: near its poles other rounding gives other results."""
    a = cast(x, F64 if x.type.dtype == F64 else F32)
    mirrored = special.below(a, 0.5)
    sine = of(ew.Sin(), a * math.pi)
    b = where(mirrored, 1.0 - a, a)
    total = where(mirrored, -(math.pi * math.pi) / (sine * sine), a.lift(0.0))
    for _ in range(6):
        total = total + 1.0 / (b * b)
        b = b + 1.0
    c = 1.0 / (b * b)
    tail = special.polynomial((1 / 6, -1 / 30, 1 / 42), c) * c
    total = total + (1.0 + 1.0 / (b * 2.0) + tail) / b
    return cast(where(mirrored, -total, total), call.result.dtype)


def zeta(call: Aten, x: Operand, q: Operand) -> Value:
    """The sum of ``(q + k)^-x``."""
    order, start = call.as_value(x, F64), call.as_value(q, F64)
    return cast(_zeta(call, order, start), call.result.dtype)


def _zeta(call: Aten, x: Value, q: Value) -> Value:
    """For negative q and integer x, terms with negative bases are those of a sum of positive ones,
    reflected: ``zeta(x, f) + (-1)^x (zeta(x, 1 - f) - zeta(x, 1 - q))``, f the fraction of q."""
    x, q = (of(Expand(call.extents()), v) for v in (x, q))
    fraction = q - of(ew.Floor(), q)
    negative = special.below(q, 0.0)
    sign = where(of(ew.Equal(), of(ew.Mod(), x, x.lift(2.0)), x.lift(0.0)), x.lift(1.0), -1.0)
    found = _sum_of_powers(x, where(negative, fraction, q))
    mirrored = _sum_of_powers(x, 1.0 - fraction) - _sum_of_powers(x, 1.0 - q)
    return _zeta_edges(x, q, where(negative, found + sign * mirrored, found))


def _sum_of_powers(x: Value, q: Value) -> Value:
    """The sum of ``(q + k)^-x`` over all k, for positive q: nine terms, the remainder by Euler and
    Maclaurin."""

    def power(a: Value) -> Value:
        return of(ew.Pow(), a, -x)

    total = power(q)
    for k in range(1, TERMS):
        total = total + power(q + float(k))
    w = q + float(TERMS)
    first = power(w)
    b, product = first, x.lift(1.0)
    tail = first * w / (x - 1.0) + first * 0.5
    for k, divisor in enumerate(BERNOULLI):
        product = product * (x + 2.0 * k)
        b = b / w
        tail = tail + product * b / divisor
        product, b = product * (x + (2.0 * k + 1.0)), b / w
    return total + where(of(ew.Equal(), first, first.lift(0.0)), 0.0, tail)


def _zeta_edges(x: Value, q: Value, inside: Value) -> Value:
    left = of(ew.Not(), above(q, 0.0))
    odd = _both(left, of(ew.NotEqual(), x, of(ew.Floor(), x)))
    pole = _both(left, of(ew.Equal(), q, of(ew.Floor(), q)))
    found = where(pole, math.inf, where(odd, math.nan, inside))
    found = where(special.below(x, 1.0), math.nan, found)
    return where(of(ew.Equal(), x, x.lift(1.0)), math.inf, found)


# --- the incomplete gamma functions ------------------------------------------------------------


def lower_gamma(call: Aten, a: Operand, x: Operand) -> Value:
    """The regularised lower incomplete gamma function."""
    return _gamma(call, a, x, lower=True)


def upper_gamma(call: Aten, a: Operand, x: Operand) -> Value:
    """``1 -`` the lower one, accurate where that is small."""
    return _gamma(call, a, x, lower=False)


def _gamma(call: Aten, a: Operand, x: Operand, lower: bool) -> Value:
    """A series below ``a + 1`` and a continued fraction above, until convergence; for large ``a``
    an expansion that is uniform in ``x``."""
    shape, dtype = call.extents(), call.result.dtype
    a, x = (of(Expand(shape), call.as_value(v, F64)) for v in (a, x))
    regular = _both(_both(above(a, 0.0), above(x, 0.0)), _both(_finite(a), _finite(x)))
    usual = _both(regular, special.below(a, LARGE))
    small = _both(usual, of(ew.Less(), x, a + 1.0))
    large = _both(usual, of(ew.Not(), small))
    series = _lower_series(call, where(small, a, 1.0), where(small, x, 1.0))
    fraction = _upper_fraction(call, where(large, a, 1.0), where(large, x, 9.0))
    found = where(small, series if lower else 1.0 - series, 1.0 - fraction if lower else fraction)
    found = where(usual, found, _uniform(where(regular, a, LARGE), where(regular, x, LARGE), lower))
    return cast(where(regular, found, _gamma_edges(a, x, lower)), dtype)


def _uniform(a: Value, x: Value, lower: bool) -> Value:
    """``erfc(+-eta sqrt(a / 2)) / 2`` plus a small correction, for ``a`` of at least ``LARGE``.

    ``eta^2 / 2 = m - log(1 + m)`` with ``m = x / a - 1``, eta having the sign of m.
    """
    m = (x - a) / a
    near = special.polynomial((1 / 2, -1 / 3, 1 / 4, -1 / 5, 1 / 6, -1 / 7, 1 / 8), m)
    small = special.below(of(ew.Abs(), m), 0.01)
    half = where(small, near * special.square(m), m - of(ew.Log1p(), m))
    eta = of(ew.Sqrt(), half * 2.0) * of(ew.Sign(), m)
    upper = special.erfc(eta * of(ew.Sqrt(), a * 0.5) * (-1.0 if lower else 1.0)) * 0.5
    # Farther out the exponential vanishes.
    close = where(special.below(of(ew.Abs(), eta), 0.5), eta, 0.0)
    rest = of(ew.Exp(), -(a * half)) * special.polynomial(UNIFORM, close)
    rest = rest / of(ew.Sqrt(), a * (2.0 * math.pi))
    return upper - rest if lower else upper + rest


def _finite(x: Value) -> Value:
    return special.below(of(ew.Abs(), x), math.inf)


def _factor(a: Value, x: Value, rising: Value) -> Value:
    """``x^a exp(-x) / gamma(rising)``."""
    return of(ew.Exp(), a * of(ew.Log(), x) - x - special.lgamma(rising))


def _lower_series(call: Aten, a: Value, x: Value) -> Value:
    def going(states: Sequence[Value]) -> Value:
        return of(ew.Greater(), states[1], states[0] * EPSILON)

    def step(states: Sequence[Value]) -> Sequence[Value]:
        total, term, n, x = states
        term = where(going(states), term * x / n, 0.0)
        return total + term, term, n + 1.0, x

    one = a * 0.0 + 1.0
    return repeated(call, (one, one, a + 1.0, x), going, step, STEPS)[0] * _factor(a, x, a + 1.0)


def _upper_fraction(call: Aten, a: Value, x: Value) -> Value:
    """By Lentz's method as modified by Thompson and Barnett, J. Comput. Phys. 64 (1986)."""

    def going(states: Sequence[Value]) -> Value:
        change = of(ew.Abs(), states[4] - 1.0)
        return of(ew.Greater(), change, change.lift(4 * EPSILON))

    def step(states: Sequence[Value]) -> Sequence[Value]:
        whole, b, c, d, _, k, a = states
        factor = k * (a - k)
        b = b + 2.0
        d = 1.0 / (factor * d + b)
        c = b + factor / c
        change = where(going(states), c * d, 1.0)
        return whole * change, b, c, d, change, k + 1.0, a

    b = x + 1.0 - a
    first = 1.0 / b
    start = (first, b, b.lift(1e300) + b * 0.0, first, b * 0.0 + 2.0, b * 0.0 + 1.0, a)
    return repeated(call, start, going, step, STEPS)[0] * _factor(a, x, a)


def _gamma_edges(a: Value, x: Value, lower: bool) -> Value:
    """Zeros, infinities, NaN for negative numbers; limits hold even if the other operand is NaN, as
    in PyTorch."""
    none, all_ = (0.0, 1.0) if lower else (1.0, 0.0)
    far = of(ew.IsInf(), x)
    found = where(far, all_, a.lift(math.nan))
    found = where(of(ew.IsInf(), a), where(far, math.nan, a.lift(none)), found)
    found = where(of(ew.Equal(), x, x.lift(0.0)), none, found)
    zero = where(above(x, 0.0), all_, a.lift(math.nan))
    found = where(of(ew.Equal(), a, a.lift(0.0)), zero, found)
    negative = of(logic.Or(), special.below(a, 0.0), special.below(x, 0.0))
    return where(negative, math.nan, found)


GAMMA_FUNCTIONS = table(
    digamma=digamma,
    polygamma=polygamma,
    special_zeta=zeta,
    igamma=lower_gamma,
    igammac=upper_gamma,
)
