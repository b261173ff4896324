"""Sums of Chebyshev polynomials, by which functions without a closed form are approximated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev

from modelcc.ir.compute import Element, number
from modelcc.ir.op import Op
from modelcc.ir.types import Array
from modelcc.ops.arithmetic import Differentiable, Value, of, unary_samples


@dataclass(frozen=True)
class ChebyshevSeries(Differentiable):
    """``sum(c[k] * T_k(x))`` with the Chebyshev polynomials T of the first kind.

    Two coefficients or more; by Clenshaw, "A note on the summation of Chebyshev series", 1955.
    """

    domain = "float"
    coefficients: tuple[float, ...]
    samples = (
        *unary_samples(-1.0, 1.0, coefficients=(0.5, -1.25, 0.25, 0.125)),
        *unary_samples(-1.0, 1.0, coefficients=(1.0, 2.0)),
    )

    def element(self, x: Element) -> Element:
        first, *rest, last = self.coefficients
        this, before = number(last, x.dtype), number(0.0, x.dtype)
        for coefficient in reversed(rest):
            this, before = x * this * 2.0 - before + coefficient, this
        return x * this - before + first

    def evaluate(self, x: Array) -> Array:
        wide = np.asarray(chebyshev.chebval(x.astype(np.float64), self.coefficients))
        return wide.astype(x.dtype)

    def adjoint(self, dy: Value, x: Value) -> tuple[Value]:
        slopes = chebyshev.chebder(self.coefficients).tolist()
        return (dy * of(ChebyshevSeries((*slopes, 0.0)), x),)


OPS: tuple[type[Op], ...] = (ChebyshevSeries,)
