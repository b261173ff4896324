"""Text of stages and their scalar expressions, and its parsers; :mod:`modelcc.ir.tensor_text`
shows the form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from modelcc.ir.forms import (
    NO_TYPES,
    Spelling,
    Syntax,
    TextForm,
    TextForms,
    enclosed,
    listed,
    syntax,
)
from modelcc.ir.index import Index, Sym, quote_name
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.mlir_syntax import float_text, value_text
from modelcc.ir.scalar import COMBINE_FUNCTION, FUNCTIONS, Combine
from modelcc.ir.spellings import BOUND, CONDITIONS, INDICES, SPELLINGS
from modelcc.ir.tensor import (
    Apply,
    Axis,
    Bind,
    Bitcast,
    Cast,
    Guard,
    IndexValue,
    Linear,
    Number,
    Read,
    Scalar,
    Select,
    Stage,
)
from modelcc.ir.text_reader import TextReader
from modelcc.ir.types import BOOL, DTYPES, F32, I64, DType, TensorType

COMPARED, ADDED, MULTIPLIED, NEGATED, WHOLE = 1, 2, 3, 4, 5
"""Binding strengths of expressions, loosest first."""

INFIX: Mapping[str, int] = {
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), COMPARED),
    **dict.fromkeys(("add", "sub"), ADDED),
    **dict.fromkeys(("mul", "div"), MULTIPLIED),
}
"""Functions that are infix operators."""


Factors: TypeAlias = tuple[tuple[tuple[float, ...], ...], ...]

_LEVELS: Final = (
    {"<=": "le", ">=": "ge", "==": "eq", "!=": "ne", "<": "lt", ">": "gt"},
    {"+": "add", "-": "sub"},
    {"*": "mul", "/": "div"},
)


_SIGNS: Final = MappingProxyType({"inf": math.inf, "-inf": -math.inf, "nan": math.nan})


# --- types and stages ------------------------------------------------------------------------


def _read_dtype(at: TextReader) -> DType:
    name = at.take("element")
    if name not in DTYPES:
        raise at.error(f"unknown element type {name!r}")
    return DTYPES[name]


def _read_name(at: TextReader) -> str:
    index = at.bare_index()
    if not isinstance(index, Sym):
        raise at.error(f"expected a name before this, not {index}")
    return index.name


_SHAPE = enclosed(INDICES)
_NAME = syntax(quote_name, _read_name)
_AXES = enclosed(
    listed(TextForm(Axis, "{name:name} < {extent}", {**SPELLINGS, "name": _NAME}).syntax)
)


def declare(at: TextReader, name: str) -> None:
    """Records the type that is next, which must be that of the tensor if it has one already."""
    dtype, shape = _read_dtype(at), _SHAPE.read(at, ())
    layout = at.try_take("layout")
    type = TensorType(shape, dtype, None if layout is None else at.layout(layout))
    known = at.types.setdefault(name, type)
    if known != type:
        raise at.error(f"{name!r} has two types, {known} and {type}")


def print_stage(stage: Stage, types: Mapping[str, TensorType]) -> str:
    """The text of one stage, a single line."""
    head = value_text(stage.output)
    if stage.write != tuple(Sym(axis.name) for axis in stage.axes):
        head += _SHAPE.text(stage.write, types)
    reduces = stage.reduce or stage.combine
    combine = f"{stage.combine}{_AXES.text(stage.reduce, types)} " if reduces else ""
    axes = _AXES.text(stage.axes, types)
    return f"{head}: {types[stage.output]} = {axes} {combine}{print_scalar(stage.body)}"


def read_stage(at: TextReader) -> Stage:
    """The inverse of :func:`print_stage`; records the type of the output."""
    output = at.value()
    write = _SHAPE.read(at, ()) if at.sees("[") else None
    at.expect(":")
    declare(at, output)
    at.expect("=")
    axes = _AXES.read(at, ())
    if write is None:
        write = tuple(Sym(axis.name) for axis in axes)
    combine: Combine | None = next((w for w in COMBINE_FUNCTION if at.sees(f"{w}[")), None)
    if combine is None:
        return Stage(output, axes, write, read_scalar(at))
    at.expect(combine)
    reduce = _AXES.read(at, ())
    return Stage(output, axes, write, read_scalar(at), reduce, combine)


# --- scalar expressions ----------------------------------------------------------------------


def _linear(at: TextReader, factors: Factors, row: Index, args: tuple[Scalar, ...]) -> Linear:
    if not args:
        raise at.error("a linear combination has operands")
    return Linear(factors, row, args, args[0].dtype)


def _select(at: TextReader, condition: Scalar, then: Scalar, other: Scalar) -> Select:
    return Select(condition, then, other, then.dtype)


def _bind(
    at: TextReader, symbol: str, value: Scalar, bound: IndexBound | None, body: Scalar
) -> Bind:
    return Bind(symbol, value, body, body.dtype, bound)


_SCALAR = Syntax[Scalar](lambda s, _: print_scalar(s), lambda at, _: read_scalar(at))
_SCALARS = enclosed(listed(_SCALAR), "(", ")")
_ROW = enclosed(listed(syntax(float_text, lambda at: float(at.take("number")))))
_CONDITIONS = enclosed(CONDITIONS)

_SPELLINGS: Mapping[str, Spelling] = {
    **SPELLINGS,
    "name": _NAME,
    "DType": syntax(str, _read_dtype),
    "Scalar": _SCALAR,
    "scalars": _SCALARS,
    "tuple[tuple[tuple[float, ...], ...], ...]": enclosed(listed(enclosed(listed(_ROW)))),
    "IndexBound": Syntax(lambda bound, _: f" {BOUND.text(bound)}", BOUND.read),
}

_FORMS = TextForms[Scalar](
    "scalar function",
    _SPELLINGS,
    {
        IndexValue: "index({index}):{dtype}",
        Linear: "linear{factors}[{row}]{args:scalars}",
        Select: "select({condition}, {then}, {other})",
        Bind: "(let {symbol:name} = {value}(?{bound}?) in {body})",
    },
    {Linear: _linear, Select: _select, Bind: _bind},
)


def print_scalar(scalar: Scalar) -> str:
    """The text of a scalar expression."""
    return _text(scalar)[0]


def _text(scalar: Scalar) -> tuple[str, int]:
    """The text and its binding strength."""
    match scalar:
        case Number():
            return _number(scalar), WHOLE
        case Read(tensor, indices):
            return value_text(tensor) + _SHAPE.text(indices, NO_TYPES), WHOLE
        case Apply():
            return _apply(scalar)
        case Cast(value, dtype):
            return f"{dtype}({print_scalar(value)})", WHOLE
        case Bitcast(value, dtype):
            return f"bits_{dtype}({print_scalar(value)})", WHOLE
        case Guard(conditions, inside, outside):
            test = _CONDITIONS.text(conditions, NO_TYPES)
            return f"({print_scalar(inside)} if {test} else {print_scalar(outside)})", WHOLE
        case _:
            return _FORMS.text(scalar), WHOLE


def _apply(scalar: Apply) -> tuple[str, int]:
    level = INFIX.get(scalar.function)
    if level is not None and len(scalar.args) == 2:
        left, right = scalar.args
        first = level + 1 if level == COMPARED else level
        sign = FUNCTIONS[scalar.function].symbol
        return f"{_operand(left, first)} {sign} {_operand(right, level + 1)}", level
    if scalar.function == "neg" and len(scalar.args) == 1:
        operand = scalar.args[0]
        return f"-{_operand(operand, WHOLE + isinstance(operand, Number))}", NEGATED
    return f"{scalar.function}({', '.join(map(print_scalar, scalar.args))})", WHOLE


def _operand(scalar: Scalar, least: int) -> str:
    text, level = _text(scalar)
    return text if level >= least else f"({text})"


def _number(number: Number) -> str:
    dtype, value = number.dtype, number.value
    if dtype == BOOL:
        return "true" if value else "false"
    suffix = "" if dtype in (F32, I64) else f":{dtype}"
    if not dtype.is_float:
        return f"{int(value)}{suffix}"
    if value != value:
        return f"nan{suffix}"
    if value in (float("inf"), float("-inf")):
        return ("inf" if value > 0 else "-inf") + suffix
    return float_text(float(value)) + suffix


def read_scalar(at: TextReader, level: int = 0) -> Scalar:
    """Parses an expression whose operators bind at least as tightly as those of ``level``."""
    if level == len(_LEVELS):
        return _read_unary(at)
    value = read_scalar(at, level + 1)
    while (sign := next((sign for sign in _LEVELS[level] if at.accept(sign)), None)) is not None:
        value = _applied(at, _LEVELS[level][sign], (value, read_scalar(at, level + 1)))
    return value


def _read_unary(at: TextReader) -> Scalar:
    for word, value in _SIGNS.items():
        if at.accept(word):
            return _suffixed(at, value, F32)
    text = at.try_take("number")
    if text is not None:
        return _suffixed(at, float(text), F32) if "." in text else _suffixed(at, int(text), I64)
    if at.accept("-"):
        return _applied(at, "neg", (_read_unary(at),))
    if at.sees("(let ", "index(", "linear[", "select("):
        return _FORMS.read(at)
    if at.accept("("):
        return _read_group(at)
    if at.sees("%"):
        name = at.value()
        if name not in at.types:
            raise at.error(f"{name!r} is read, but has no type yet")
        return Read(name, _SHAPE.read(at, ()), at.types[name].dtype)
    return _read_call(at, at.take("element"))


def _suffixed(at: TextReader, value: float, dtype: DType) -> Number:
    chosen = _read_dtype(at) if at.accept(":") else dtype
    return Number(float(value) if chosen.is_float else value, chosen)


def _read_call(at: TextReader, word: str) -> Scalar:
    if word in ("true", "false"):
        return Number(word == "true", BOOL)
    args = _SCALARS.read(at, ())
    if word in DTYPES and len(args) == 1:
        return Cast(args[0], DTYPES[word])
    bits = DTYPES.get(word.removeprefix("bits_"))
    if bits is not None and len(args) == 1:
        return Bitcast(args[0], bits)
    return _applied(at, word, args)


def _applied(at: TextReader, function: str, args: tuple[Scalar, ...]) -> Apply:
    known = FUNCTIONS.get(function)
    if known is None:
        raise at.error(f"there is no scalar function {function!r}")
    if len(args) != known.arity:
        raise at.error(f"{function} has {known.arity} operands, not {len(args)}")
    return Apply(function, args, known.result_of(args[0].dtype))


def _read_group(at: TextReader) -> Scalar:
    """An expression in parentheses or a guard, whose ``(`` has been read."""
    result = read_scalar(at)
    if at.accept("if "):
        conditions = _CONDITIONS.read(at, ())
        at.expect("else ")
        result = Guard(conditions, result, read_scalar(at), result.dtype)
    at.expect(")")
    return result
