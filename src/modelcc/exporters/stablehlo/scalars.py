"""Scalar functions in StableHLO; elementary ones that it lacks in CHLO."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from modelcc.exporters.stablehlo.domain import Along, Domain
from modelcc.frontends.kit.errors import unsupported
from modelcc.ir.types import BOOL, DType

Meaning = Callable[..., Along]
"""Emits a function, given a domain and operands."""

_SAME: Mapping[str, str] = MappingProxyType(
    {
        "add": "add",
        "sub": "subtract",
        "mul": "multiply",
        "min": "minimum",
        "max": "maximum",
        "minimum": "minimum",
        "maximum": "maximum",
        "neg": "negate",
        "fmod": "remainder",
        "sqrt": "sqrt",
        "rsqrt": "rsqrt",
        "exp": "exponential",
        "expm1": "exponential_minus_one",
        "log": "log",
        "log1p": "log_plus_one",
        "sin": "sine",
        "cos": "cosine",
        "tan": "tan",
        "tanh": "tanh",
        "sigmoid": "logistic",
        "floor": "floor",
        "ceil": "ceil",
        "round": "round_nearest_even",
        "and": "and",
        "or": "or",
        "xor": "xor",
        "not": "not",
        "shl": "shift_left",
        **{n: f"chlo.{n}" for n in ("asin", "acos", "atan", "sinh", "cosh", "erf")},
        **{n: f"chlo.{n}" for n in ("asinh", "acosh", "atanh")},
    }
)
_COMPARISONS: Mapping[str, str] = MappingProxyType(
    {name: name.upper() for name in ("eq", "ne", "lt", "le", "gt", "ge")}
)


def apply_function(domain: Domain, function: str, args: tuple[Along, ...]) -> Along:
    """A scalar function of values along axes."""
    if function in _SAME:
        return domain.apply(_SAME[function], *args)
    if function in _COMPARISONS:
        return domain.compare(_COMPARISONS[function], *args)
    meaning = _OTHERS.get(function)
    if meaning is None:
        unsupported(f"StableHLO has no {function}")
    return meaning(domain, *args)


def number(domain: Domain, value: float, dtype: DType) -> Along:
    """A scalar constant."""
    return Along(domain.hlo.scalar(value, dtype), ())


def cast(domain: Domain, x: Along, dtype: DType) -> Along:
    """Value conversion."""
    if dtype == BOOL and x.hlo.dtype != BOOL:
        return domain.compare("NE", x, number(domain, 0, x.hlo.dtype))
    return Along(domain.hlo.convert(x.hlo, dtype), x.axes)


def bitcast(domain: Domain, x: Along, dtype: DType) -> Along:
    """The same bits as another dtype of the same width."""
    type = domain.type(x.axes, x.hlo)
    result = type.__class__(type.shape, dtype)
    return Along(domain.hlo.convert_by(f"bitcast_convert {x.hlo.name}", result, x.hlo), x.axes)


def _divided(domain: Domain, x: Along, y: Along) -> Along:
    """An integer divided by 0 is itself."""
    if not x.hlo.dtype.is_integer:
        return domain.apply("divide", x, y)
    zero, one = (number(domain, n, y.hlo.dtype) for n in (0, 1))
    safe = domain.select(domain.compare("EQ", y, zero), one, y)
    return domain.apply("divide", x, safe)


def _remainder(domain: Domain, x: Along, y: Along) -> Along:
    """With the sign of the divisor."""
    rest = domain.apply("remainder", x, y)
    if x.hlo.dtype.kind == "uint":
        return rest
    zero = number(domain, 0, x.hlo.dtype)
    signs = (domain.compare("LT", v, zero) for v in (rest, y))
    other = domain.apply("xor", *signs)
    wrong = domain.apply("and", other, domain.compare("NE", rest, zero))
    return domain.select(wrong, domain.apply("add", rest, y), rest)


def _floor_divided(domain: Domain, x: Along, y: Along) -> Along:
    """Rounded down."""
    whole = domain.apply("subtract", x, _remainder(domain, x, y))
    return _divided(domain, whole, y)


def _truncated(domain: Domain, x: Along) -> Along:
    below = domain.compare("LT", x, number(domain, 0.0, x.hlo.dtype))
    return domain.select(below, domain.apply("ceil", x), domain.apply("floor", x))


def _magnitude(domain: Domain, x: Along) -> Along:
    return x if x.hlo.dtype.kind in ("uint", "bool") else domain.apply("abs", x)


def _sign(domain: Domain, x: Along) -> Along:
    if x.hlo.dtype.kind != "uint":
        return domain.apply("sign", x)
    return domain.apply("minimum", x, number(domain, 1, x.hlo.dtype))


def _power_of_two(domain: Domain, x: Along) -> Along:
    return domain.apply("power", number(domain, 2.0, x.hlo.dtype), x)


def _power(domain: Domain, x: Along, y: Along) -> Along:
    """A negative power of an integer is 0, except for 1 and -1, where only the parity of the
    exponent matters."""
    if x.hlo.dtype.kind != "int":
        return domain.apply("power", x, y)
    zero, one = (number(domain, n, y.hlo.dtype) for n in (0, 1))
    negative = domain.compare("LT", y, zero)
    parity = domain.apply("and", y, one)
    found = domain.apply("power", x, domain.select(negative, parity, y))
    unit = domain.compare("EQ", domain.apply("abs", x), one)
    vanishes = domain.apply("and", negative, domain.apply("not", unit))
    return domain.select(vanishes, zero, found)


def _reciprocal(domain: Domain, x: Along) -> Along:
    return domain.apply("divide", number(domain, 1.0, x.hlo.dtype), x)


def _is_nan(domain: Domain, x: Along) -> Along:
    return domain.compare("NE", x, x)


def _is_infinite(domain: Domain, x: Along) -> Along:
    return domain.compare("EQ", domain.apply("abs", x), number(domain, math.inf, x.hlo.dtype))


def _shifted_right(domain: Domain, x: Along, y: Along) -> Along:
    kind = "logical" if x.hlo.dtype.kind == "uint" else "arithmetic"
    return domain.apply(f"shift_right_{kind}", x, y)


_OTHERS: Mapping[str, Meaning] = MappingProxyType(
    {
        "div": _divided,
        "mod": _remainder,
        "floordiv": _floor_divided,
        "trunc": _truncated,
        "abs": _magnitude,
        "sign": _sign,
        "pow": _power,
        "exp2": _power_of_two,
        "reciprocal": _reciprocal,
        "isnan": _is_nan,
        "isinf": _is_infinite,
        "shr": _shifted_right,
    }
)
