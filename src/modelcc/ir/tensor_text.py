"""Text form of tensor programs, read back to an equal program by ``parse_tensor_program``.

    program @main(%x: f32[batch, 64]) -> (%y) dims(batch in 1:) {
      constant %w: f32[64, 32] = "9f2c…"
      kernel @fc(%x: f32[batch, 64], %w: f32[64, 32]) -> (%h: f32[batch, 32]) source("fc1") {
        %t: f32[batch, 32] = [i < batch, j < 32] sum[k < 64] %x[i, k] * %w[k, j]
        %h: f32[batch, 32] = [i < batch, j < 32] max(%t[i, j], 0.0)
      }
      view %y: f32[32*batch] = %h source("flatten")
      scatter %h (%h: f32[batch, 32], %i: i64[5], %u: f32[5, 32]) {
        %s[g, j]: f32[batch, 32] = [i < 5, j < 32] sum[] (let g = %i[i] below [batch] in %u[i, j])
      }                                         a copy of %h, with rows of %u added to it
      algorithm (%h: f32[batch, 32]) -> (%p: i64[2, 32*batch], %n: i64[1]) sizes(batch) {
        func @NonZero(…) { … }                    as the loop level has it
      }
      read k = %n source("nz") require [k <= 9]   k is a number from here on
      read %none require [k + n <= 9]             constraints alone
      if %c -> (%z: f32[batch]) source("If_0") {
        …
      } else {
        …
      }
      repeat [t < 8] while %go carry(%go: bool[] = %yes then %more last %end) fill(%s: f32[8]) {
        …
      }
    }

A stage that does not write at its axes says where: ``%y[i, j + 32]: f32[n, 64] = [i < n, j < 32]
…``.  Scalar expressions have Python's precedence.  A literal with a point is f32 and one without
i64, unless a suffix says otherwise (``0.5:f16``); ``f32(x)`` is a cast, ``index(i + 1):i64`` an
index as a number, ``select(c, x, y)`` a choice by value, ``(x if [i >= 1] else 0.0)`` a guard and
``(let g = %rows[i] below [n] in %table[g, j])`` a gather whose index is checked;
``linear[[[1.0, 1.0], [1.0, -1.0]]][i](x, y)`` is row ``i`` of a matrix, or of several one after
the other, times a column of operands.
What follows from the rules of the level (the dtype of a sum, of a read) is not printed, so only
verified programs are sure to read back equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from modelcc.ir.index import Bounds, Index, Sym, quote_name
from modelcc.ir.index_bound_text import bound_text
from modelcc.ir.loop_text import function_lines
from modelcc.ir.mlir_syntax import float_text, key_text, string_text, value_text
from modelcc.ir.region import Branch, Carry, Repeat
from modelcc.ir.rounding_text import rounding_text
from modelcc.ir.scalar import FUNCTIONS
from modelcc.ir.tensor import (
    Algorithm,
    Apply,
    Axis,
    Bind,
    Bitcast,
    Cast,
    Condition,
    Guard,
    IndexValue,
    Item,
    Kernel,
    Linear,
    Number,
    Read,
    ReadSize,
    Scalar,
    Scatter,
    Select,
    Stage,
    TensorProgram,
    View,
)
from modelcc.ir.types import BOOL, F32, I64, TensorType

COMPARED, ADDED, MULTIPLIED, NEGATED, WHOLE = 1, 2, 3, 4, 5
"""How tightly an expression binds, loosest first."""

INFIX: Mapping[str, int] = {
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), COMPARED),
    **dict.fromkeys(("add", "sub"), ADDED),
    **dict.fromkeys(("mul", "div"), MULTIPLIED),
}
"""Functions that are written between their operands."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$.]*")


def print_tensor_program(program: TensorProgram) -> str:
    """The text of ``program``; constants are named by the digest of their content."""
    return "\n".join(_program_lines(program)) + "\n"


def print_kernel(kernel: Kernel, types: Mapping[str, TensorType]) -> str:
    """The text of one kernel; ``types`` are those of every tensor in it."""
    return "\n".join(_kernel_lines(kernel, types, "")) + "\n"


def print_stage(stage: Stage, types: Mapping[str, TensorType]) -> str:
    """The text of one stage, a single line."""
    head = value_text(stage.output)
    if stage.write != tuple(Sym(axis.name) for axis in stage.axes):
        head += f"[{_join(stage.write)}]"
    combine = f"{stage.combine}[{_axes(stage.reduce)}] " if stage.reduce or stage.combine else ""
    where = f"[{_axes(stage.axes)}]"
    return f"{head}: {types[stage.output]} = {where} {combine}{print_scalar(stage.body)}"


def _program_lines(program: TensorProgram) -> Iterator[str]:
    inputs = _typed(program.inputs, program.types)
    outputs = ", ".join(map(value_text, program.outputs))
    head = f"program {_symbol(program.name)}({inputs}) -> ({outputs})"
    yield head + (f" dims({_dims(program.dims)}) {{" if program.dims else " {")
    for name, constant in program.constants.items():
        yield f"  constant {_typed([name], program.types)} = {string_text(constant.digest)}"
    for item in program.items:
        yield from _item_lines(item, program.types, "  ")
    yield "}"


def _item_lines(item: Item, types: Mapping[str, TensorType], indent: str) -> Iterator[str]:
    match item:
        case View():
            result = _typed([item.output], types)
            yield f"{indent}view {result} = {value_text(item.input)}{_source(item.source)}"
        case Kernel():
            yield from _kernel_lines(item, types, indent)
        case Scatter():
            head = f"{value_text(item.initial)} ({_typed(item.inputs, types)})"
            yield f"{indent}scatter {head}{_source(item.source)} {{"
            yield f"{indent}  {print_stage(item.stage, types)}"
            yield f"{indent}}}"
        case Algorithm():
            yield from _algorithm_lines(item, types, indent)
        case ReadSize():
            yield f"{indent}{_read_size(item)}"
        case Branch():
            results = f"{value_text(item.condition)} -> ({_typed(item.outputs, types)})"
            yield f"{indent}if {results}{_source(item.source)} {{"
            for inner in item.then:
                yield from _item_lines(inner, types, indent + "  ")
            yield indent + "} else {"
            for inner in item.other:
                yield from _item_lines(inner, types, indent + "  ")
            yield indent + "}"
        case Repeat():
            yield f"{indent}repeat {_loop_head(item, types)}{_source(item.source)} {{"
            for inner in item.body:
                yield from _item_lines(inner, types, indent + "  ")
            yield indent + "}"


def _loop_head(loop: Repeat[Item], types: Mapping[str, TensorType]) -> str:
    bound = "" if loop.trips is None else f" < {loop.trips}"
    head = f"[{quote_name(loop.counter)}{bound}]"
    head += "" if loop.condition is None else f" while {value_text(loop.condition)}"
    if loop.carries:
        carries = ", ".join(_carry(carry, types) for carry in loop.carries)
        head += f" carry({carries})"
    return head + (f" fill({_typed(loop.filled, types)})" if loop.filled else "")


def _carry(carry: Carry, types: Mapping[str, TensorType]) -> str:
    initial, after, last = map(value_text, (carry.initial, carry.next, carry.last))
    return f"{_typed([carry.state], types)} = {initial} then {after} last {last}"


def _algorithm_lines(
    item: Algorithm, types: Mapping[str, TensorType], indent: str
) -> Iterator[str]:
    signature = f"({_typed(item.inputs, types)}) -> ({_typed(item.outputs, types)})"
    sizes = f" sizes({_join(item.sizes)})" if item.sizes else ""
    yield f"{indent}algorithm {signature}{sizes}{_source(item.source)} {{"
    for line in function_lines(item.function):
        yield f"{indent}  {line}"
    yield f"{indent}}}"


def _read_size(item: ReadSize) -> str:
    names = f"{', '.join(map(quote_name, item.symbols))} = " if item.symbols else ""
    constraints = f" require [{_join(map(condition_text, item.requires))}]" if item.requires else ""
    return f"read {names}{value_text(item.tensor)}{_source(item.source)}{constraints}"


def _kernel_lines(kernel: Kernel, types: Mapping[str, TensorType], indent: str) -> Iterator[str]:
    signature = f"({_typed(kernel.inputs, types)}) -> ({_typed(kernel.outputs, types)})"
    clauses = _source(kernel.source) + rounding_text(kernel.rounding)
    yield f"{indent}kernel {_symbol(kernel.name)}{signature}{clauses} {{"
    for stage in kernel.stages:
        yield f"{indent}  {print_stage(stage, types)}"
    yield f"{indent}}}"


def _symbol(name: str) -> str:
    return "@" + (name if _PLAIN.fullmatch(name) else string_text(name))


def _typed(names: Iterable[str], types: Mapping[str, TensorType]) -> str:
    return ", ".join(f"{value_text(name)}: {types[name]}" for name in names)


def _source(source: tuple[str, ...]) -> str:
    return f" source({', '.join(map(string_text, source))})" if source else ""


def _dims(dims: Bounds) -> str:
    def end(value: Index | None) -> str:
        return "" if value is None else str(value)

    return ", ".join(f"{key_text(n)} in {end(r.lo)}:{end(r.hi)}" for n, r in dims.items())


def _axes(axes: tuple[Axis, ...]) -> str:
    return ", ".join(f"{quote_name(axis.name)} < {axis.extent}" for axis in axes)


def _join(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))


# --- scalar expressions ----------------------------------------------------------------------


def print_scalar(scalar: Scalar) -> str:
    """The text of a scalar expression."""
    return _text(scalar)[0]


def _text(scalar: Scalar) -> tuple[str, int]:
    """The text and how tightly it binds."""
    match scalar:
        case Number():
            return _number(scalar), WHOLE
        case IndexValue(index, dtype):
            return f"index({index}):{dtype}", WHOLE
        case Read(tensor, indices):
            return f"{value_text(tensor)}[{_join(indices)}]", WHOLE
        case Apply():
            return _apply(scalar)
        case Linear(factors, row, args):
            operands = ", ".join(map(print_scalar, args))
            return f"linear[{_join(map(_matrix, factors))}][{row}]({operands})", WHOLE
        case Select(condition, then, other):
            parts = ", ".join(map(print_scalar, (condition, then, other)))
            return f"select({parts})", WHOLE
        case Cast(value, dtype):
            return f"{dtype}({print_scalar(value)})", WHOLE
        case Bitcast(value, dtype):
            return f"bits_{dtype}({print_scalar(value)})", WHOLE
        case Guard(conditions, inside, outside):
            test = ", ".join(map(condition_text, conditions))
            return f"({print_scalar(inside)} if [{test}] else {print_scalar(outside)})", WHOLE
        case Bind(symbol, value, body, _, bound):
            name = f"let {quote_name(symbol)} = {print_scalar(value)}"
            clause = "" if bound is None else f" {bound_text(bound)}"
            return f"({name}{clause} in {print_scalar(body)})", WHOLE


def condition_text(condition: Condition) -> str:
    """A comparison between indices."""
    return f"{condition.left} {condition.comparison} {condition.right}"


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


def _matrix(matrix: tuple[tuple[float, ...], ...]) -> str:
    rows = (f"[{_join(map(float_text, row))}]" for row in matrix)
    return f"[{_join(rows)}]"


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
