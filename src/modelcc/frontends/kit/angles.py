"""Angles of points of a plane."""

from __future__ import annotations

import numpy as np

from modelcc.ir.types import BF16, F16, F32
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.views import cast


def arctangent(y: Value, x: Value) -> Value:
    """The angle of the point (x, y) in [-pi, pi], with the signs of zeros.

    By the arctangent of the smaller over the larger one, moved to the right octant.
    """
    dtype = y.type.dtype
    if dtype in (F16, BF16):
        y, x = cast(y, F32), cast(x, F32)
    ay, ax = of(ew.Abs(), y), of(ew.Abs(), x)
    great, less = ordered(ax, ay)
    none = of(ew.Equal(), great, great.lift(0.0))
    both = of(ew.IsInf(), less)
    ratio = of(ew.Where(), both, x.lift(1.0), less / of(ew.Where(), none, x.lift(1.0), great))
    angle = of(ew.Atan(), ratio)
    angle = of(ew.Where(), of(ew.Greater(), ay, ax), -angle + np.pi / 2, angle)
    angle = of(ew.Where(), is_negative(x), -angle + np.pi, angle)
    angle = of(ew.Where(), is_negative(y), -angle, angle)
    odd = of(ew.Or(), of(ew.IsNaN(), x), of(ew.IsNaN(), y))
    return cast(of(ew.Where(), odd, x + y, angle), dtype)


def ordered(a: Value, b: Value) -> tuple[Value, Value]:
    """The greater of both, and the other one; ``a`` first where they are equal.

    The gradients of Max and Min would both go to ``a`` there.
    """
    rising = of(ew.Greater(), b, a)
    return of(ew.Where(), rising, b, a), of(ew.Where(), rising, a, b)


def is_negative(x: Value) -> Value:
    """Whether the sign bit is set, also of zeros."""
    zero = of(ew.Equal(), x, x.lift(0.0))
    safe = of(ew.Where(), zero, x, x.lift(1.0))
    inverse = of(ew.Less(), safe.lift(1.0) / safe, x.lift(0.0))
    return of(ew.Where(), zero, inverse, of(ew.Less(), x, x.lift(0.0)))
