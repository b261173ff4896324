"""log and functions based on it, for f32 and f64.

``log(x) = k ln 2 + log(1 + f)`` with ``x = 2^k (1 + f)`` and ``1 + f`` between sqrt(1/2) and
sqrt(2); the exponent and ``f`` come from the bits of ``x``.
"""

from __future__ import annotations

import math
import struct

from modelcc.ir.types import F32, DType
from modelcc.passes.loop.elementary.builder import CodeBuilder, Term, polynomial, with_sign_of
from modelcc.passes.loop.elementary.coefficients import LOG

_LN2 = {
    32: (0.693359375, -2.12194440e-4),
    64: (6.93147180369123816490e-01, 1.90821492927058770002e-10),
}
_HUGE = {32: 1e15, 64: 1e150}
"""From here on the square may overflow, and ``log1p(x)`` equals ``log(x)``."""


def _root_half_bits(dtype: DType) -> int:
    kind = ("<f", "<i") if dtype == F32 else ("<d", "<q")
    return struct.unpack(kind[1], struct.pack(kind[0], math.sqrt(0.5)))[0]


def _split(b: CodeBuilder, x: Term) -> tuple[Term, Term]:
    """``k`` (an integer) and ``1 + f`` of a positive normal ``x``."""
    mantissa = 23 if x.dtype == F32 else 52
    base = _root_half_bits(x.dtype)
    shifted = b.let(x.bits - base)
    one_plus_f = ((shifted & ((1 << mantissa) - 1)) + base).as_float
    return b.let(shifted >> mantissa), one_plus_f


def _combined(b: CodeBuilder, k: Term, f: Term, correction: Term | None) -> Term:
    """``k ln 2 + log(1 + f) + correction``, small terms first."""
    high, low = _LN2[f.dtype.bits]
    z = b.let(f * f)
    y = (f * z) * polynomial(f, LOG[f.dtype.bits])
    if correction is not None:
        y = y + correction
    y = z.times(-0.5, k.times(low, y))
    return k.times(high, f + y)


def _with_limits(x: Term, result: Term) -> Term:
    """Infinity for infinity, -infinity for 0 and NaN for negative numbers and NaN."""
    inner = result.where(x < math.inf, x)
    outer = x.number(-math.inf).where(x.equal(0.0), math.nan)
    return inner.where(x > 0.0, outer)


def log(b: CodeBuilder, x: Term) -> Term:
    """Natural logarithm."""
    x = b.let(x)
    smallest, up = (2.0**-126, 24) if x.dtype == F32 else (2.0**-1022, 53)
    tiny = b.let(x < smallest)
    k, one_plus_f = _split(b, b.let((x * 2.0**up).where(tiny, x)))
    exponent = b.let(k.to(x.dtype) + x.number(-up).where(tiny, 0.0))
    return _with_limits(x, _combined(b, exponent, b.let(one_plus_f - 1.0), None))


def log1p(b: CodeBuilder, x: Term) -> Term:
    """log(1 + x): the rounding error of ``1 + x`` is added back to first order."""
    x = b.let(x)
    u = b.let(1.0 + x)
    k, one_plus_f = _split(b, u)
    lost = (1.0 - (u - x)).where(x > 1.0, x - (u - 1.0))
    direct = b.let(k.equal(0))
    f = b.let(x.where(direct, one_plus_f - 1.0))
    correction = x.number(0.0).where(direct, lost / u)
    return _with_limits(u, _combined(b, b.let(k.to(x.dtype)), f, correction))


def asinh(b: CodeBuilder, x: Term) -> Term:
    """Inverse hyperbolic sine: ``log1p(a + a^2 / (1 + sqrt(1 + a^2)))`` with ``a = |x|``."""
    a = b.let(x.call("abs"))
    z = b.let(a * a)
    huge = b.let(a > _HUGE[x.dtype.bits])
    argument = a.where(huge, a + z / (1.0 + (1.0 + z).call("sqrt")))
    extra = x.number(math.log(2)).where(huge, 0.0)
    return with_sign_of(log1p(b, argument) + extra, x)


def acosh(b: CodeBuilder, x: Term) -> Term:
    """Inverse hyperbolic cosine: ``log1p(t + sqrt(2t + t^2))`` with ``t = x - 1``."""
    x = b.let(x)
    t = b.let(x - 1.0)
    huge = b.let(x > _HUGE[x.dtype.bits])
    argument = x.where(huge, t + (t * (t + 2.0)).call("sqrt"))
    result = log1p(b, argument) + x.number(math.log(2)).where(huge, 0.0)
    return x.number(math.nan).where(x < 1.0, result)


def atanh(b: CodeBuilder, x: Term) -> Term:
    """Inverse hyperbolic tangent: ``log1p(2a / (1 - a)) / 2`` with ``a = |x|``."""
    a = b.let(x.call("abs"))
    return with_sign_of(0.5 * log1p(b, (a + a) / (1.0 - a)), x)
