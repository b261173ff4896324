"""Scalar functions and conversions as WGSL expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from modelcc.ir.types import BF16, BOOL, F16, F32, I32, DType
from modelcc.targets.c.code import CExpression
from modelcc.targets.webgpu.values import HALVES, PAIR, constant, value_type

COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

_FLOAT: Mapping[str, str] = MappingProxyType(
    {
        "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}", "neg": "-{}",
        "min": "f32_min({},{})", "max": "f32_max({},{})", "sign": "f32_sign({})",
        "sqrt": "sqrt({})", "floor": "floor({})", "ceil": "ceil({})", "trunc": "trunc({})",
        "round": "round({})", "abs": "abs({})", "reciprocal": "1.0f / {}",
        "rsqrt": "1.0f / sqrt({})", "isnan": "f32_isnan({})", "isinf": "f32_isinf({})",
    }
)  # fmt: skip
_LOGIC: Mapping[str, str] = MappingProxyType(
    {
        "and": "{} & {}", "min": "{} & {}", "or": "{} | {}", "max": "{} | {}", "xor": "{} != {}",
        "ne": "{} != {}", "eq": "{} == {}", "not": "!{}", "lt": "!{} & {}", "ge": "{} | !{}",
        "gt": "{} & !{}", "le": "!{} | {}",
    }
)  # fmt: skip
_WORD: Mapping[str, str] = MappingProxyType(
    {
        "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "and": "{} & {}", "or": "{} | {}",
        "xor": "{} ^ {}", "not": "~{}", "min": "min({},{})", "max": "max({},{})",
        "shl": "T_shl({},u32({}),BITS)", "shr": "T_shr({},u32({}),BITS)", "div": "T_div({},{})",
        "floordiv": "T_floordiv({},{})", "mod": "T_mod({},{})",
    }
)  # fmt: skip
_SIGNED: Mapping[str, str] = MappingProxyType(
    {
        **_WORD, "neg": "-{}", "abs": "abs({})", "sign": "sign({})", "fmod": "i32_fmod({},{})",
        **{
            name: f"i32_{name}({{}},{{}})"
            for name in (
                "rounding_high_mul", "rounding_high_word", "high_word", "rounding_shr",
            )
        },
    }
)  # fmt: skip
_UNSIGNED: Mapping[str, str] = MappingProxyType(
    {
        **_WORD, "neg": "0u - {}", "abs": "{}", "sign": "min({},1u)", "fmod": "u32_mod({},{})",
    }
)  # fmt: skip
_BOTH_LONG: Mapping[str, str] = MappingProxyType(
    {
        "add": "i64_add({},{})", "sub": "i64_sub({},{})", "mul": "i64_mul({},{})",
        "and": "{} & {}", "or": "{} | {}", "xor": "{} ^ {}", "not": "~{}", "neg": "i64_neg({})",
        "shl": "i64_shl({},{})", "eq": "all({} == {})", "ne": "any({} != {})",
    }
)  # fmt: skip
_LONG = {
    True: MappingProxyType(
        _BOTH_LONG
        | {name: f"i64_{name}({{}},{{}})" for name in ("min", "max", "shr", "div", "floordiv")}
        | {name: f"i64_{name}({{}},{{}})" for name in ("mod", "fmod", "lt")}
        | {"abs": "i64_abs({})", "sign": "i64_sign({})"}
    ),
    False: MappingProxyType(
        _BOTH_LONG
        | {name: f"u64_{name}({{}},{{}})" for name in ("min", "max", "shr", "div", "floordiv")}
        | {name: f"u64_{name}({{}},{{}})" for name in ("mod", "lt")}
        | {"abs": "{}", "sign": "u64_sign({})", "fmod": "u64_mod({},{})"}
    ),
}


def call(function: str, args: Sequence[CExpression], dtype: DType) -> CExpression:
    """``function`` of :mod:`modelcc.ir.scalar` on operands of ``dtype``.

    Raises ``NotImplementedError`` for elementary functions, which
    :mod:`modelcc.passes.loop.expand_math` turns into arithmetic.
    """
    type_ = value_type(dtype)
    if type_ == "bool":
        return _filled(_LOGIC, function, args, dtype)
    if type_ == PAIR:
        return _long(function, args, dtype)
    if function == "ne" and type_ == "f32":  # NaN is unequal, whatever '!=' is made of
        return CExpression(f"!({args[0].inner} == {args[1].inner})", False)
    if function in COMPARE:
        return CExpression(f"{args[0].inner} {COMPARE[function]} {args[1].inner}", False)
    if type_ == "f32":
        result = _filled(_FLOAT, function, args, dtype)
        predicate = function in ("isnan", "isinf")
        return result if predicate or dtype == F32 else _rounded(result, dtype)
    table = _SIGNED if dtype.kind == "int" else _UNSIGNED
    return _wrapped(_filled(table, function, args, dtype), dtype)


def muladd(a: CExpression, b: CExpression, c: CExpression, dtype: DType) -> CExpression:
    """``a*b + c``, rounded once where there is the instruction."""
    if dtype == F32:
        return CExpression(f"fma({a.text}, {b.text}, {c.text})")
    return call("add", (call("mul", (a, b), dtype), c), dtype)


def select(condition: CExpression, then: CExpression, other: CExpression) -> CExpression:
    """``then`` where ``condition`` else ``other``."""
    return CExpression(f"select({other.text}, {then.text}, {condition.text})")


def convert(value: CExpression, source: DType, target: DType) -> CExpression:
    """The value as another dtype; float to integer truncates, to bool compares with 0."""
    if source == target:
        return value
    if target in HALVES:
        return _rounded(convert(value, source, F32), target)
    if source in HALVES:
        return convert(value, F32, target)
    if target == BOOL:
        return call("ne", (value, CExpression(constant(0, source))), source)
    if source == BOOL:
        ends = constant(0, target), constant(1, target)
        return CExpression(f"select({ends[0]}, {ends[1]}, {value.text})")
    if value_type(source) == PAIR:
        return _from_long(value, source, target)
    if value_type(target) == PAIR:
        return _to_long(value, source, target)
    if source.is_float and target.bits < 32:
        return convert(convert(value, source, I32), I32, target)
    return _wrapped(_as(value_type(target), value, value_type(source)), target)


def bitcast(value: CExpression, source: DType, target: DType) -> CExpression:
    """The same bits as another dtype of the same width."""
    if source == target or value_type(source) == value_type(target) == PAIR:
        return value
    if source.bits == 32:
        return CExpression(f"bitcast<{value_type(target)}>({value.text})")
    return from_bits(to_bits(value, source), target)


def to_bits(value: CExpression, dtype: DType) -> CExpression:
    """A value of up to 32 bits as a u32, without a sign beyond its width."""
    if dtype in HALVES:
        return CExpression(f"{dtype}_bits({value.text})")
    if dtype == BOOL:
        return CExpression(f"select(0u, 1u, {value.text})")
    if dtype == F32:
        return CExpression(f"bitcast<u32>({value.text})")
    word = _as("u32", value, value_type(dtype))
    if dtype.kind == "uint" or dtype.bits == 32:
        return word
    return CExpression(f"{word.inner} & {(1 << dtype.bits) - 1:#x}u", False)


def from_bits(bits: CExpression, dtype: DType) -> CExpression:
    """The inverse of :func:`to_bits`."""
    if dtype in HALVES:
        return CExpression(f"{dtype}_of_bits({bits.text})")
    if dtype == BOOL:
        return CExpression(f"{bits.inner} != 0u", False)
    if dtype == F32:
        return CExpression(f"bitcast<f32>({bits.text})")
    word = _as(value_type(dtype), bits, "u32")
    return _wrapped(word, dtype) if dtype.kind == "int" else word


def _filled(
    table: Mapping[str, str], function: str, args: Sequence[CExpression], dtype: DType
) -> CExpression:
    if function not in table:
        raise NotImplementedError(f"WGSL has no operator for '{function}' on {dtype}")
    form = table[function]
    if form == "{}":
        return args[0]
    if not form.endswith(")"):
        return CExpression(form.format(*(a.inner for a in args)), False)
    form = form.replace("T_", f"{value_type(dtype)}_").replace("BITS", f"{dtype.bits}u")
    return CExpression(form.replace(",", ", ").format(*(a.inner for a in args)))


def _long(function: str, args: Sequence[CExpression], dtype: DType) -> CExpression:
    match function:
        case "gt":
            return _long("lt", args[::-1], dtype)
        case "le" | "ge":
            less = _long("lt", args[::-1] if function == "le" else args, dtype)
            return CExpression(f"!{less.inner}", False)
        case _:
            return _filled(_LONG[dtype.kind == "int"], function, args, dtype)


def _wrapped(value: CExpression, dtype: DType) -> CExpression:
    """A number truncated to its width."""
    if dtype.bits >= 32:
        return value
    if dtype.kind == "int":
        return CExpression(f"extractBits({value.text}, 0u, {dtype.bits}u)")
    return CExpression(f"{value.inner} & {(1 << dtype.bits) - 1:#x}u", False)


def _rounded(value: CExpression, dtype: DType) -> CExpression:
    assert dtype in (F16, BF16)
    return CExpression(f"{dtype}_rounded({value.text})")


def _as(type_: str, value: CExpression, known: str) -> CExpression:
    return value if type_ == known else CExpression(f"{type_}({value.text})")


def _from_long(value: CExpression, source: DType, target: DType) -> CExpression:
    if value_type(target) == PAIR:
        return value
    if target == F32:
        return CExpression(f"f32_of_{source}({value.text})")
    return _wrapped(_as(value_type(target), CExpression(f"{value.inner}.x"), "u32"), target)


def _to_long(value: CExpression, source: DType, target: DType) -> CExpression:
    match value_type(source):
        case "f32":
            return CExpression(f"{target}_of_f32({value.text})")
        case "i32":
            return CExpression(f"i64_of_i32({value.text})")
        case _:
            return CExpression(f"{PAIR}({value.text}, 0u)")
