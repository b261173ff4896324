"""Text form of loop functions, read back by :mod:`modelcc.ir.loop_parser`.

::

    func @relu(%x: f32[n], %y: mut f32[n] align 4; n) from "relu_1" {
      local %t: f32[16]
      parallel i in 0 .. n step 16 {
        comment "16 elements"
        let %v = load %x[i] x16 mask(n - i)
        store %y[i] mask(n - i) = max(%v, f32x16(0.0))
      }
      if predicate(n < 4, n != 2) {
        index g = load %rows[0]
        register %s = splat[8](index[f32](2*g))
        %s = muladd(%s, convert[f32](gather %q[4; index[i32x8](g step 1)]), %s)
        %t = dot4(load %u[0] x4, load %w[0] x64, %t)
        scatter %y[0; %to] = select(gt(%s, %s), %s, %s)
        store %y[0] stride(2) = reduce[add](%s)
        prefetch %x[64] level 2
      } else {
      }
      while lt(%s, f32(9.0)) {
        %s = add(%s, load %x[0])
      }
    }

Instructions that a function uses are told before it, as :mod:`modelcc.ir.instructions` shows.
Types of values follow from those of buffers and constants, so only conversions spell theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from modelcc.ir.index import Index, quote_name
from modelcc.ir.instructions import instruction_function, instructions_in
from modelcc.ir.loop import (
    Alloc,
    Assign,
    Barrier,
    BindIndex,
    Bitcast,
    Buffer,
    Check,
    Comment,
    Const,
    Convert,
    Expr,
    For,
    Function,
    If,
    IndexOf,
    Intrinsic,
    Let,
    Load,
    MulAdd,
    ParallelCall,
    Parameter,
    Predicate,
    Prefetch,
    Reduce,
    Register,
    ScalarCall,
    Select,
    Shuffle,
    Splat,
    Stmt,
    Store,
    Var,
    VectorGather,
    VectorScatter,
    While,
)
from modelcc.ir.mlir_syntax import string_text, value_text
from modelcc.ir.types import DType

LOOP_WORDS = {
    "serial": "for",
    "parallel": "parallel",
    "unrolled": "unrolled",
    "grid": "grid",
    "thread": "thread",
}


def print_functions(functions: Sequence[Function]) -> str:
    """The text of several functions."""
    return "\n".join(print_function(f) for f in functions)


def print_function(function: Function) -> str:
    """The text of ``function``."""
    return "\n".join(function_lines(function)) + "\n"


def function_lines(function: Function) -> Iterator[str]:
    """The lines of :func:`print_function`."""
    for instruction in instructions_in(function.body):
        yield from _definition_lines("instruction", instruction_function(instruction))
    yield from _definition_lines("func", function)


def _definition_lines(word: str, function: Function) -> Iterator[str]:
    yield f"{_head(word, function)} {{"
    yield from _block_lines(function.body, "  ")
    yield "}"


def _head(word: str, function: Function) -> str:
    values = (f"value {value_text(v.name)}: {_type(v.dtype, v.lanes)}" for v in function.values)
    parameters = ", ".join((*map(_parameter_text, function.parameters), *values))
    sizes = "; " + ", ".join(map(quote_name, function.sizes)) if function.sizes else ""
    name = value_text(function.name)[1:]
    return f"{word} @{name}({parameters}{sizes}){source_text(function.source)}"


def source_text(source: Sequence[str]) -> str:
    """The clause that names the user's nodes."""
    return f" from {', '.join(map(string_text, source))}" if source else ""


def statement_text(s: Stmt) -> str:
    """The first line of a statement, for messages."""
    return next(_statement_lines(s, ""))


def _parameter_text(parameter: Parameter) -> str:
    mutable = ("shared " if parameter.shared else "") + ("mut " if parameter.mutable else "")
    return f"{value_text(parameter.buffer.name)}: {mutable}{_buffer_type(parameter.buffer)}"


def _buffer_type(buffer: Buffer) -> str:
    align = f" align {buffer.align}" if buffer.align != 64 else ""
    return f"{buffer.dtype}[{buffer.size}]{align}"


def _block_lines(body: Sequence[Stmt], indent: str) -> Iterator[str]:
    for s in body:
        yield from _statement_lines(s, indent)


def _statement_lines(s: Stmt, indent: str) -> Iterator[str]:
    match s:
        case For():
            step = f" step {s.step}" if s.step != 1 else ""
            word = LOOP_WORDS[s.kind]
            when = f" when {s.when}" if s.when else ""
            part = f" part {s.part[0]} .. {s.part[1]}" if s.part else ""
            bounds = f"{s.start} .. {s.stop}{step}{when}{part}"
            yield f"{indent}{word} {quote_name(s.variable)} in {bounds} {{"
            yield from _block_lines(s.body, indent + "  ")
            yield f"{indent}}}"
        case If():
            rare = "rare " if s.rare else ""
            yield f"{indent}if {rare}{expression_text(s.condition)} {{"
            yield from _block_lines(s.then, indent + "  ")
            if s.other:
                yield f"{indent}}} else {{"
                yield from _block_lines(s.other, indent + "  ")
            yield f"{indent}}}"
        case While():
            yield f"{indent}while {expression_text(s.condition)} {{"
            yield from _block_lines(s.body, indent + "  ")
            yield f"{indent}}}"
        case ParallelCall():
            when = f" when {s.when}" if s.when else ""
            yield f"{indent}call parallel 0 .. {s.count}{when} {_head('func', s.outlined)} {{"
            yield from _block_lines(s.outlined.body, indent + "  ")
            yield f"{indent}}}"
        case _:
            yield indent + _simple_text(s)


def _simple_text(s: Stmt) -> str:
    match s:
        case Let():
            return f"let {value_text(s.name)} = {expression_text(s.value)}"
        case BindIndex():
            return f"index {quote_name(s.symbol)} = {expression_text(s.value)}"
        case Check():
            number = f" number {s.number}" if s.number else ""
            value = expression_text(s.value)
            return f"check {value} below [{s.extent}]{number}{_mask(s.active)}"
        case Register():
            return f"register {value_text(s.name)} = {expression_text(s.value)}"
        case Assign():
            return f"{value_text(s.name)} = {expression_text(s.value)}"
        case Store():
            place = f"{value_text(s.buffer)}[{s.offset}]{_stride(s.stride)}{_mask(s.active)}"
            return f"store {place} = {expression_text(s.value)}"
        case VectorScatter():
            place = f"{value_text(s.buffer)}[{s.offset}; {expression_text(s.offsets)}]"
            return f"scatter {place}{_mask(s.active)} = {expression_text(s.value)}"
        case Alloc():
            return f"{s.buffer.space} {value_text(s.buffer.name)}: {_buffer_type(s.buffer)}"
        case Barrier():
            return "barrier"
        case Prefetch():
            return f"prefetch {value_text(s.buffer)}[{s.offset}] level {s.level}"
        case Comment():
            return f"comment {string_text(s.text)}"
        case For() | If() | While() | ParallelCall():
            raise AssertionError("printed as a block")


def expression_text(e: Expr) -> str:
    """The text of an expression."""
    match e:
        case Const():
            return f"{_type(e.dtype, e.lanes)}({_number(e.value)})"
        case Var():
            return value_text(e.name)
        case IndexOf():
            step = f" step {e.step}" if e.step else ""
            return f"index[{_type(e.dtype, e.lanes)}]({e.index}{step})"
        case Load():
            lanes = f" x{e.lanes}" if e.lanes != 1 else ""
            place = f"{value_text(e.buffer)}[{e.offset}]{lanes}{_stride(e.stride)}"
            return f"load {place}{_mask(e.active)}"
        case VectorGather():
            place = f"{value_text(e.buffer)}[{e.offset}; {expression_text(e.offsets)}]"
            return f"gather {place}{_mask(e.active)}"
        case Predicate():
            conditions = (f"{c.left} {c.comparison} {c.right}" for c in e.conditions)
            return f"predicate({', '.join(conditions)})"
        case _:
            return _applied(*_application(e))


def _application(e: Expr) -> tuple[str, tuple[Expr, ...]]:
    match e:
        case ScalarCall():
            return e.function, e.args
        case MulAdd():
            return "muladd", (e.a, e.b, e.c)
        case Intrinsic():
            return e.instruction.name, e.args
        case Shuffle():
            return f"shuffle[{' '.join(map(str, e.places))}]", (e.a, e.b)
        case Select():
            return "select", (e.condition, e.then, e.other)
        case Convert():
            return f"convert[{e.dtype}]", (e.value,)
        case Bitcast():
            return f"bitcast[{e.dtype}]", (e.value,)
        case Splat():
            return f"splat[{e.lanes}]", (e.value,)
        case Reduce():
            return f"reduce[{e.function}]", (e.value,)
        case _:
            raise AssertionError("printed by expression_text")


def _applied(name: str, args: tuple[Expr, ...]) -> str:
    return f"{name}({', '.join(map(expression_text, args))})"


def _type(dtype: DType, lanes: int) -> str:
    return str(dtype) if lanes == 1 else f"{dtype}x{lanes}"


def _number(value: float | int | bool) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else repr(value)


def _stride(stride: Index) -> str:
    return "" if stride == 1 else f" stride({stride})"


def _mask(active: Index | None) -> str:
    return "" if active is None else f" mask({active})"
