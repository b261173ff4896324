"""Scalar functions and types in Triton's spelling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from modelcc.ir.types import BF16, BOOL, F16, F32, F64, DType

HALVES = (F16, BF16)
_NAMES: Mapping[DType, str] = {F64: "float64", F32: "float32", F16: "float16", BF16: "bfloat16"}

_OPERATORS: Mapping[str, str] = MappingProxyType(
    {
        "add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^",
        "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
        "shl": "<<", "shr": ">>",
    }
)  # fmt: skip
_HALF = ("min", "max", "minimum", "maximum", "isnan")
"""Functions that take 16-bit floats without conversion."""
_ANY: Mapping[str, str] = MappingProxyType(
    {
        "neg": "(-{0})",
        "not": "(~{0})",
        "abs": "tl.abs({0})",
        "min": "tl.minimum({0}, {1})",
        "max": "tl.maximum({0}, {1})",
        "sign": "(({0} > 0).to({t}) - ({0} < 0).to({t}))",
    }
)
_FLOAT: Mapping[str, str] = MappingProxyType(
    {
        "min": "tl.minimum({0}, {1}, tl.PropagateNan.ALL)",
        "max": "tl.maximum({0}, {1}, tl.PropagateNan.ALL)",
        "minimum": "tl.minimum({0}, {1}, tl.PropagateNan.ALL)",
        "maximum": "tl.maximum({0}, {1}, tl.PropagateNan.ALL)",
        "sqrt": "tl.sqrt({0})",
        "rsqrt": "tl.rsqrt({0})",
        "reciprocal": "(1.0 / {0})",
        "exp": "tl.exp({0})",
        "exp2": "tl.exp2({0})",
        "log": "tl.log({0})",
        "sin": "tl.sin({0})",
        "cos": "tl.cos({0})",
        "erf": "tl.erf({0})",
        "sigmoid": "tl.sigmoid({0})",
        "floor": "tl.floor({0})",
        "ceil": "tl.ceil({0})",
        "isnan": "({0} != {0})",
        "isinf": '(tl.abs({0}) == float("inf"))',
        "tanh": "_tanh({0})",
        "trunc": "_trunc({0})",
        "round": "_round({0})",
        "pow": "_pow({0}, {1})",
        "expm1": "_expm1({0})",
        "log1p": "_log1p({0})",
        "sinh": "_sinh({0})",
        "cosh": "(0.5 * (tl.exp({0}) + tl.exp(-{0})))",
        "tan": "(tl.sin({0}) / tl.cos({0}))",
    }
)
_INTEGER: Mapping[str, str] = MappingProxyType(
    {"div": "_div({0}, {1})", "floordiv": "_floordiv({0}, {1})", "mod": "_mod({0}, {1})"}
)

_NONE: Mapping[str, str] = MappingProxyType({})

HELPERS: Mapping[str, str] = MappingProxyType(
    {
        "_tanh": """\
@triton.jit
def _tanh(x):
    t = tl.exp(-2.0 * tl.abs(x))
    far = (1.0 - t) / (1.0 + t)
    s = x * x
    tail = 2.0 / 15.0 - s * (17.0 / 315.0 - s * (62.0 / 2835.0))
    near = x * (1.0 + s * (-1.0 / 3.0 + s * tail))
    return tl.where(tl.abs(x) < 0.2, near, tl.where(x < 0, -far, far))""",
        "_sinh": """\
@triton.jit
def _sinh(x):
    e = _expm1(tl.abs(x))
    half = tl.where(e > 1e30, 0.5 * e, 0.5 * (e + e / (e + 1.0)))
    return tl.where(x < 0, -half, half)""",
        "_expm1": """\
@triton.jit
def _expm1(x):  # Kahan: what rounding did to exp(x), log takes back
    u = tl.exp(x)
    near = tl.where(u == 1.0, x, (u - 1.0) * x / tl.log(tl.where(u == 1.0, 2.0, u)))
    return tl.where(tl.abs(x) > 1.0, u - 1.0, near)""",
        "_log1p": """\
@triton.jit
def _log1p(x):  # Kahan
    u = 1.0 + x
    near = tl.where(u == 1.0, x, tl.log(u) * x / tl.where(u == 1.0, 1.0, u - 1.0))
    return tl.where(x > 1.0, tl.log(u), near)""",
        "_trunc": """\
@triton.jit
def _trunc(x):
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))""",
        "_round": """\
@triton.jit
def _round(x):  # halves to even
    low = tl.floor(x)
    up = (x - low > 0.5) | ((x - low == 0.5) & (low - 2.0 * tl.floor(low * 0.5) == 1.0))
    return tl.where(up, low + 1.0, low)""",
        "_pow": """\
@triton.jit
def _pow(x, y):
    whole = tl.floor(y) == y
    odd = whole & (y - 2.0 * tl.floor(y * 0.5) == 1.0)
    size = tl.where(tl.abs(x) == 1.0, 1.0, tl.exp2(y * tl.log2(tl.abs(x))))
    signed = tl.where(odd & (x < 0), -size, size)
    return tl.where(y == 0, 1.0, tl.where((x < 0) & ~whole, float("nan"), signed))""",
        "_div": """\
@triton.jit
def _div(a, b):  # towards zero; by zero: the dividend
    return tl.where(b == 0, a, a // tl.where(b == 0, 1, b))""",
        "_floordiv": """\
@triton.jit
def _floordiv(a, b):
    return a // b - ((a % b != 0) & ((a < 0) != (b < 0))).to(tl.int32)""",
        "_mod": """\
@triton.jit
def _mod(a, b):
    return a % b + tl.where((a % b != 0) & ((a < 0) != (b < 0)), b, 0)""",
    }
)
"""Functions of the file, by the names that texts call them."""

COMBINE: Mapping[str, str] = MappingProxyType(
    {"sum": "({0} + {1})", "prod": "({0} * {1})", "and": "({0} & {1})", "or": "({0} | {1})"}
)
REDUCE: Mapping[str, str] = MappingProxyType(
    {"sum": "tl.sum({0}, {1})", "max": "tl.max({0}, {1})", "min": "tl.min({0}, {1})"}
)
"""Reductions along a dimension of a block."""


def element(dtype: DType) -> str:
    """``tl.float32``; ``TypeError`` for types that Triton does not compute with."""
    if dtype == BOOL:
        return "tl.int1"
    return f"tl.{_name(dtype)}"


def torch_type(dtype: DType) -> str:
    """``torch.float32``."""
    return "torch.bool" if dtype == BOOL else f"torch.{_name(dtype)}"


def pointer(dtype: DType) -> str:
    """How a signature names a pointer to elements, ``*fp32``."""
    if dtype == BOOL:
        return "*i1"
    if dtype in _NAMES:
        return "*" + {F64: "fp64", F32: "fp32", F16: "fp16", BF16: "bf16"}[dtype]
    return f"*{'i' if dtype.kind == 'int' else 'u'}{dtype.bits}"


def _name(dtype: DType) -> str:
    if dtype in _NAMES:
        return _NAMES[dtype]
    if dtype.is_integer and dtype.bits in (8, 16, 32, 64):
        return f"{dtype.kind}{dtype.bits}"
    raise TypeError(f"Triton's kernels do not compute with {dtype}")


def number(value: float | int | bool, dtype: DType) -> str:
    """A constant."""
    if not dtype.is_float:
        return repr(bool(value) if dtype == BOOL else int(value))
    value = float(np.asarray(value).astype(dtype.numpy))
    if not math.isfinite(value):
        text = f'float("{abs(value)}")'
        return f"(-{text})" if value < 0 else text
    text = repr(value) if dtype == F64 else str(np.float32(value))
    return f"({text})" if value < 0 else text


def call(function: str, args: tuple[str, ...], dtype: DType) -> str:
    """``function`` of operands of ``dtype``; ``NotImplementedError`` if Triton has none."""
    kind = _FLOAT if dtype.is_float else _INTEGER
    kind = _NONE if dtype == BOOL else kind
    if function in kind and not (dtype in HALVES and function in _HALF):
        if dtype in HALVES:
            wide = tuple(f"{a}.to(tl.float32)" for a in args)
            result = kind[function].format(*wide)
            return result if function == "isinf" else f"{result}.to({element(dtype)})"
        return kind[function].format(*args)
    if function in _OPERATORS and not (dtype == BOOL and function == "div"):
        return f"({args[0]} {_OPERATORS[function]} {args[1]})"
    template = kind.get(function) or _ANY.get(function)
    if template is None:
        raise NotImplementedError(f"Triton has no {function!r} of {dtype}")
    return template.format(*args, t=element(dtype))


def combined(combine: str, a: str, b: str, dtype: DType) -> str:
    """Combines two partial results."""
    return COMBINE[combine].format(a, b) if combine in COMBINE else call(combine, (a, b), dtype)
