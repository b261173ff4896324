"""Binary elementwise functions under NumPy's names: arithmetic, comparison, logic, selection."""

from __future__ import annotations

import math
from typing import Any

from modelcc.ir.types import BOOL, F32
from modelcc.numpy.arrays import asarray
from modelcc.ops.comparison import Where
from modelcc.ops.elementwise import Mod
from modelcc.tensor.operators import is_number
from modelcc.tensor.promotion import is_complex
from modelcc.tensor.tensor import Tensor


def both(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Two operands as tensors of one dtype; Python numbers take that of the other."""
    if isinstance(x, Tensor) or not is_number(x):
        a = asarray(x)
        return a.alike(y if is_number(y) else asarray(y))
    if is_number(y):
        kind = F32 if isinstance(x, float) or isinstance(y, float) else None
        return asarray(x, kind).alike(asarray(y, kind))
    b, a = asarray(y).alike(x)
    return a, b


def floats(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Two operands as floats of the dtype in which NumPy computes."""
    if is_number(x) or is_number(y):
        a, b = both(x, y)
        return a.floats(), b.floats()
    return asarray(x).floats().alike(asarray(y).floats())


def where(condition: Any, x: Any, y: Any) -> Tensor:
    """``x`` where ``condition`` holds, else ``y``."""
    yes = asarray(condition).cast(BOOL)
    return chosen(yes, *both(x, y))


def chosen(yes: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """As :func:`where`, of operands of one type."""
    if is_complex(a):
        whole: Any = a
        return whole.paired(chosen(yes, a.real, b.real), chosen(yes, a.imag, b.imag))
    return yes.result(Where(), yes, a, b)


def add(x1: Any, x2: Any) -> Tensor:
    """``x1 + x2``."""
    a, b = both(x1, x2)
    return a + b


def subtract(x1: Any, x2: Any) -> Tensor:
    """``x1 - x2``."""
    a, b = both(x1, x2)
    return a - b


def multiply(x1: Any, x2: Any) -> Tensor:
    """``x1 * x2``."""
    a, b = both(x1, x2)
    return a * b


def divide(x1: Any, x2: Any) -> Tensor:
    """``x1 / x2``; integers are divided as f64."""
    a, b = both(x1, x2)
    return a / b


true_divide = divide


def floor_divide(x1: Any, x2: Any) -> Tensor:
    """``x1 / x2`` rounded down."""
    a, b = both(x1, x2)
    return a // b


def remainder(x1: Any, x2: Any) -> Tensor:
    """The remainder of ``x1 // x2``, with the sign of ``x2``."""
    a, b = both(x1, x2)
    return a % b


mod = remainder


def fmod(x1: Any, x2: Any) -> Tensor:
    """The remainder of ``x1 / x2`` rounded towards 0, with the sign of ``x1``."""
    a, b = (x.counted() for x in both(x1, x2))
    return a.result(Mod(fmod=True), a, b)


def divmod(x1: Any, x2: Any) -> tuple[Tensor, Tensor]:
    """``x1 // x2`` and ``x1 % x2``."""
    a, b = both(x1, x2)
    return a // b, a % b


def power(x1: Any, x2: Any) -> Tensor:
    """``x1`` to the power ``x2``."""
    if is_number(x2):
        return asarray(x1) ** x2
    a, b = both(x1, x2)
    return a**b


def maximum(x1: Any, x2: Any) -> Tensor:
    """The maximum, NaN if either is."""
    a, b = both(x1, x2)
    return a.maximum(b)


def minimum(x1: Any, x2: Any) -> Tensor:
    """The minimum, NaN if either is."""
    a, b = both(x1, x2)
    return a.minimum(b)


def fmax(x1: Any, x2: Any) -> Tensor:
    """The maximum, ignoring NaN."""
    a, b = both(x1, x2)
    return where(a.isnan(), b, where(b.isnan(), a, a.maximum(b)))


def fmin(x1: Any, x2: Any) -> Tensor:
    """The minimum, ignoring NaN."""
    a, b = both(x1, x2)
    return where(a.isnan(), b, where(b.isnan(), a, a.minimum(b)))


def hypot(x1: Any, x2: Any) -> Tensor:
    """``sqrt(x1 * x1 + x2 * x2)`` without overflow."""
    a, b = (x.abs() for x in floats(x1, x2))
    most = a.maximum(b)
    safe = where(most == 0, 1, most)
    length = most * ((a / safe).square() + (b / safe).square()).sqrt()
    return where(a.isinf() | b.isinf(), math.inf, length)


def arctan2(x1: Any, x2: Any) -> Tensor:
    """The angle of the point ``(x2, x1)``, in [-pi, pi]."""
    y, x = floats(x1, x2)
    still = (x == 0) & (y == 0)
    straight = where(still, y, (y / where(still, 1, x)).arctan())
    both_infinite = x.isinf() & y.isinf()
    slanted = y.sign() * where(x < 0, y.of_number(-math.pi / 4, y.dtype), math.pi / 4)
    straight = where(both_infinite, slanted, straight)
    upright = where(y == 0, y, y.sign() * (math.pi / 2))
    turned = where(_is_negative(y), y.of_number(-math.pi, y.dtype), math.pi)
    found = where(x == 0, upright, straight)
    found = where(_is_negative(x) & ((x != 0) | (y == 0)), found + turned, found)
    return where(x.isnan() | y.isnan(), math.nan, found)


def _is_negative(x: Tensor) -> Tensor:
    """Where the sign bit is set, also of -0.0."""
    return (x < 0) | ((x == 0) & ((1 / x) < 0))


def signbit(x: Any) -> Tensor:
    """Where the sign bit is set, also of -0.0."""
    value = asarray(x)
    return _is_negative(value) if value.dtype.is_float else value < 0


def copysign(x1: Any, x2: Any) -> Tensor:
    """The magnitude of ``x1`` with the sign of ``x2``."""
    a, b = floats(x1, x2)
    return where(_is_negative(b), -a.abs(), a.abs())


def logaddexp(x1: Any, x2: Any) -> Tensor:
    """``log(exp(x1) + exp(x2))`` without overflow."""
    a, b = floats(x1, x2)
    most, least = a.maximum(b), a.minimum(b)
    same = a == b
    return where(same, a + math.log(2), most + where(same, 0, least - most).exp().log1p())


def heaviside(x1: Any, x2: Any) -> Tensor:
    """0 below 0, 1 above, ``x2`` at 0."""
    a, b = floats(x1, x2)
    step = where(a == 0, b, where(a < 0, 0.0, 1.0).cast(a.dtype))
    return where(a.isnan(), a, step)


def equal(x1: Any, x2: Any) -> Tensor:
    """``x1 == x2``."""
    a, b = both(x1, x2)
    return a == b


def not_equal(x1: Any, x2: Any) -> Tensor:
    """``x1 != x2``."""
    a, b = both(x1, x2)
    return a != b


def less(x1: Any, x2: Any) -> Tensor:
    """``x1 < x2``."""
    a, b = both(x1, x2)
    return a < b


def less_equal(x1: Any, x2: Any) -> Tensor:
    """``x1 <= x2``."""
    a, b = both(x1, x2)
    return a <= b


def greater(x1: Any, x2: Any) -> Tensor:
    """``x1 > x2``."""
    a, b = both(x1, x2)
    return a > b


def greater_equal(x1: Any, x2: Any) -> Tensor:
    """``x1 >= x2``."""
    a, b = both(x1, x2)
    return a >= b


def logical_and(x1: Any, x2: Any) -> Tensor:
    """Where both are nonzero."""
    return asarray(x1).cast(BOOL) & asarray(x2).cast(BOOL)


def logical_or(x1: Any, x2: Any) -> Tensor:
    """Where either is nonzero."""
    return asarray(x1).cast(BOOL) | asarray(x2).cast(BOOL)


def logical_xor(x1: Any, x2: Any) -> Tensor:
    """Where exactly one is nonzero."""
    return asarray(x1).cast(BOOL) ^ asarray(x2).cast(BOOL)


def bitwise_and(x1: Any, x2: Any) -> Tensor:
    """``x1 & x2``."""
    a, b = both(x1, x2)
    return a & b


def bitwise_or(x1: Any, x2: Any) -> Tensor:
    """``x1 | x2``."""
    a, b = both(x1, x2)
    return a | b


def bitwise_xor(x1: Any, x2: Any) -> Tensor:
    """``x1 ^ x2``."""
    a, b = both(x1, x2)
    return a ^ b


def left_shift(x1: Any, x2: Any) -> Tensor:
    """``x1 << x2``."""
    a, b = both(x1, x2)
    return a << b


def right_shift(x1: Any, x2: Any) -> Tensor:
    """``x1 >> x2``."""
    a, b = both(x1, x2)
    return a >> b


def isclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Where they differ by at most ``atol + rtol * abs(b)``."""
    x, y = both(a, b) if is_complex(a) or is_complex(b) else floats(a, b)
    near = ((x - y).abs() <= atol + rtol * y.abs()) & y.isfinite()
    near = near | (x == y)
    return near | (x.isnan() & y.isnan()) if equal_nan else near


def allclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Whether :func:`isclose` holds everywhere."""
    return isclose(a, b, rtol, atol, equal_nan).all()


def array_equal(a1: Any, a2: Any) -> Tensor:
    """Whether shapes and elements are the same."""
    x, y = asarray(a1), asarray(a2)
    return (x == y).all() if x.shape == y.shape else asarray(False)
