"""Gauss error function, for f32 and f64."""

from __future__ import annotations

from modelcc.ir.types import F32
from modelcc.passes.loop.elementary.builder import CodeBuilder, Term, polynomial, with_sign_of
from modelcc.passes.loop.elementary.coefficients import ERF, ERFC
from modelcc.passes.loop.elementary.exponential import exp

# Rational minimax approximation of erf(x) / x in x^2 for |x| <= 4; the coefficients are those
# of Eigen's and XLA's implementations.
_NUMERATOR = (
    -1.60960333262415e-02, -2.95459980854025e-03, -7.34990630326855e-04, -5.69250639462346e-05,
    -2.10102402082508e-06, 2.77068142495902e-08, -2.72614225801306e-10,
)  # fmt: skip
_DENOMINATOR = (
    -1.42647390514189e-02, -7.37332916720468e-03, -1.68282697438203e-03, -2.13374055278905e-04,
    -1.45660718464996e-05,
)  # fmt: skip


def erf(b: CodeBuilder, x: Term) -> Term:
    """``2/sqrt(pi) * integral of exp(-t^2) from 0 to x``."""
    return _erf_single(b, x) if x.dtype == F32 else _erf_double(b, x)


def _erf_single(b: CodeBuilder, x: Term) -> Term:
    x = b.let(x.at_least(-4.0).at_most(4.0))
    z = b.let(x * x)
    return x * (polynomial(z, _NUMERATOR) / polynomial(z, _DENOMINATOR))


def _erf_double(b: CodeBuilder, x: Term) -> Term:
    """A polynomial for ``|x| < 1``, else ``1 - exp(-x^2) P(2/(1 + |x|))``."""
    x = b.let(x)
    z = b.let(x * x)
    inner = x.times(polynomial(z, ERF[64]), x)
    a = b.let(x.call("abs").at_most(6.0))
    t = b.let(2.0 / (1.0 + a) - 9 / 14)
    tail = exp(b, b.let(-(a * a))) * polynomial(t, ERFC[64])
    return inner.where(x.call("abs") < 1.0, with_sign_of(1.0 - tail, x))
