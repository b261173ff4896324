"""The forms of loop statements and expressions, as :mod:`modelcc.ir.loop_text` shows them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from modelcc.ir.argument import Argument
from modelcc.ir.copies import CommitCopies, CopyAsync, Exchange, Prefetch, WaitCopies
from modelcc.ir.forms import NO_TYPES, Spelling, Syntax, TextForms, block, listed, syntax
from modelcc.ir.index import Index
from modelcc.ir.loop import (
    Alloc,
    Arrive,
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
    Instruction,
    Intrinsic,
    Let,
    Load,
    LoopKind,
    MulAdd,
    ParallelCall,
    Parameter,
    Predicate,
    Reduce,
    Register,
    RoutineCall,
    ScalarCall,
    Select,
    Shuffle,
    Space,
    Splat,
    Stmt,
    Store,
    TakeTurns,
    Var,
    VectorGather,
    VectorScatter,
    While,
)
from modelcc.ir.mlir_syntax import value_text
from modelcc.ir.scalar import FUNCTIONS
from modelcc.ir.spellings import FUNCTION, SPELLINGS, STRINGS, SYMBOLS
from modelcc.ir.text_reader import TextReader
from modelcc.ir.tiles import CopyTile, ExpectBytes, WaitArrival, WaitRoutines
from modelcc.ir.types import DTYPES, DType

_LOOP_WORDS: Final[Mapping[LoopKind, str]] = {
    "serial": "for",
    "parallel": "parallel",
    "unrolled": "unrolled",
    "grid": "grid",
    "thread": "thread",
}
_KINDS: Final[Mapping[str, LoopKind]] = {word: kind for kind, word in _LOOP_WORDS.items()}
_DTYPE: Final = re.compile("|".join(sorted(DTYPES, key=len, reverse=True)))
_LITERAL: Final = re.compile(r"true|false|-?(?:inf|nan|[\d.]+(?:e[-+]?\d+)?)")


# --- buffers, types, numbers -----------------------------------------------------------------


def _read_dtype(at: TextReader) -> DType:
    if _DTYPE.match(at.text, at.end) is None:
        raise at.error(f"unknown element type {at.next_word()!r}")
    return DTYPES[at.bare("element type", _DTYPE)]


def _buffer_text(buffer: Buffer) -> str:
    align = f" align {buffer.align}" if buffer.align != 64 else ""
    return f"{buffer.dtype}[{buffer.size}]{align}{' over' if buffer.over else ''}"


def _read_buffer(at: TextReader, name: str, space: Space) -> Buffer:
    dtype = _read_dtype(at)
    at.expect("[")
    size = at.index_before("]")
    at.expect("]")
    align = at.number() if at.accept("align ") else 64
    at.buffers[name] = Buffer(name, dtype, size, space, align, at.accept("over"))
    return at.buffers[name]


_SPACES: Final[Mapping[str, Space]] = {
    "local": "local",
    "shared": "shared",
    "warp": "warp",
    "tile": "tile",
    "arrivals": "arrivals",
}


def _local_text(buffer: Buffer) -> str:
    return f"{buffer.space} {value_text(buffer.name)}: {_buffer_text(buffer)}"


def _read_local(at: TextReader) -> Buffer:
    space = _SPACES[at.word("space")]
    name = at.value()
    at.expect(":")
    return _read_buffer(at, name, space)


def _read_buffer_name(at: TextReader) -> str:
    name = at.value()
    if name not in at.buffers:
        raise at.error(f"there is no buffer %{name}")
    return name


def _instruction_name(instruction: Instruction) -> str:
    return instruction.name


def _read_instruction(at: TextReader) -> Instruction:
    return at.instructions[at.word("instruction")]


def _read_routine(at: TextReader) -> Function:
    name = at.function_name()
    if name not in at.routines:
        raise at.error(f"there is no routine @{name}")
    return at.routines[name]


def _argument_text(argument: Argument) -> str:
    return f"{value_text(argument.buffer)}[{argument.offset}]"


def _read_argument(at: TextReader) -> Argument:
    buffer = _read_buffer_name(at)
    at.expect("[")
    offset = at.index_before("]")
    at.expect("]")
    return Argument(buffer, offset)


def _number_text(value: float | int | bool) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else repr(value)


def _read_number(at: TextReader) -> float | int | bool:
    text = at.bare("number", _LITERAL)
    if text in ("true", "false"):
        return text == "true"
    if text == "nan":
        return math.nan  # the singleton, which compares equal by identity
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


def _read_part(at: TextReader, stops: tuple[str, ...]) -> tuple[Index, Index]:
    first = at.index_before("..")
    at.expect("..")
    return first, at.index_before(*stops)


def _read_kind(at: TextReader) -> LoopKind:
    return _KINDS[at.word("loop")]


# --- nodes that know more than their text ----------------------------------------------------


def _let(at: TextReader, name: str, value: Expr) -> Let:
    at.values[name] = value.dtype, value.lanes
    return Let(name, value)


def _register(at: TextReader, name: str, value: Expr) -> Register:
    at.values[name] = value.dtype, value.lanes
    return Register(name, value)


def _var(at: TextReader, name: str) -> Var:
    if name not in at.values:
        raise at.error(f"there is no value %{name}")
    return Var(name, *at.values[name])


def _load(
    at: TextReader, buffer: str, offset: Index, lanes: int, stride: Index, active: Index | None
) -> Load:
    return Load(buffer, offset, at.buffers[buffer].dtype, lanes, stride, active)


def _gather(
    at: TextReader, buffer: str, offset: Index, offsets: Expr, active: Index | None
) -> VectorGather:
    return VectorGather(buffer, offset, offsets, at.buffers[buffer].dtype, active)


def _call(at: TextReader, function: str, args: tuple[Expr, ...]) -> ScalarCall:
    known = FUNCTIONS.get(function)
    if known is None:
        raise at.error(f"unknown function {function!r}")
    dtype = known.result_of(args[0].dtype)
    return ScalarCall(function, args, dtype, args[0].lanes)


# --- forms -----------------------------------------------------------------------------------


def _kind_without_word(at: TextReader) -> type[Expr]:
    word = at.next_word()
    if _DTYPE.match(word) and at.sees(f"{word}("):
        return Const
    return Intrinsic if word in at.instructions else ScalarCall


_STATEMENT = Syntax[Stmt](lambda s, _: STATEMENTS.text(s), lambda at, _: STATEMENTS.read(at))
_EXPR = Syntax[Expr](
    lambda e, _: EXPRESSIONS.text(e), lambda at, stops: EXPRESSIONS.read(at, stops)
)
_BLOCK = block(_STATEMENT)

_SPELLINGS: Mapping[str, Spelling] = {
    **SPELLINGS,
    "LoopKind": syntax(_LOOP_WORDS.__getitem__, _read_kind, (*_KINDS,)),
    "buffer": syntax(value_text, _read_buffer_name),
    "Buffer": syntax(_local_text, _read_local, (*_SPACES,)),
    "DType": syntax(str, _read_dtype),
    "number": syntax(_number_text, _read_number),
    "Routine": syntax(lambda r: FUNCTION.text(r.name, NO_TYPES), _read_routine, ("@",)),
    "tuple[Argument, ...]": listed(syntax(_argument_text, _read_argument)),
    "Instruction": syntax(_instruction_name, _read_instruction),
    "Expr": _EXPR,
    "tuple[Expr, ...]": listed(_EXPR),
    "tuple[Stmt, ...]": _BLOCK,
    "tuple[Index, Index]": Syntax(lambda part, _: f"{part[0]} .. {part[1]}", _read_part),
    "tuple[int, ...]": listed(syntax(str, TextReader.number)),
    "places": listed(syntax(str, TextReader.number), " "),
    "Function": syntax(lambda f: definition_text(f), lambda at: read_definition(at)),
}

STATEMENTS = TextForms[Stmt](
    "statement",
    _SPELLINGS,
    {
        For: "{kind} {variable:symbol} in {start} .. {stop}(? step {step}?)(? when {when}?)"
        "(? part {part}?) {body}",
        If: "if (?rare {rare}?){condition} {then}(? else {other}?)",
        While: "while {condition} {body}",
        RoutineCall: "run (?beside {beside}?){routine}({arguments}(?; {sizes}?))",
        ParallelCall: "call parallel 0 .. {count}(? when {when}?) func {outlined}",
        Let: "let {name:value} = {value}",
        Register: "register {name:value} = {value}",
        Assign: "{name:value} = {value}",
        BindIndex: "index {symbol:symbol} = {value}",
        Check: "check (?noting {noting}?){value} below [{extent}](? number {number}?)"
        "(? mask({active})?)",
        Store: "store {buffer:buffer}[{offset}](? stride({stride})?)(? mask({active})?) = {value}",
        VectorScatter: "scatter {buffer:buffer}[{offset}; {offsets}](? mask({active})?) = {value}",
        Alloc: "{buffer}",
        Barrier: "barrier",
        Arrive: "arrive {counters:buffer}[{slot}] of {count} {body}",
        TakeTurns: "turns {first} copies {copies} rest {rest}",
        Exchange: "exchange {name:value} across {across}",
        CopyAsync: "copy {to:buffer}[{to_offset}] = {source:buffer}[{source_offset}](? x{lanes}?)"
        "(? mask({active})?)",
        CommitCopies: "commit",
        WaitCopies: "wait {pending}",
        CopyTile: "box {to:buffer}[{to_offset}] = {source:buffer}[{at}] from {offset} of ({sizes})"
        " stride ({strides}) box ({box}) to {arrivals:buffer}[{slot}]",
        ExpectBytes: "expect {arrivals:buffer}[{slot}] bytes {size}",
        WaitArrival: "await {arrivals:buffer}[{slot}] phase {phase}",
        WaitRoutines: "finish {pending}",
        Prefetch: "prefetch {buffer:buffer}[{offset}] level {level}",
        Comment: "comment {text:string}",
    },
    {Let: _let, Register: _register},
)

EXPRESSIONS = TextForms[Expr](
    "expression",
    _SPELLINGS,
    {
        Const: "{dtype}(?x{lanes}?)({value:number})",
        Var: "{name:value}",
        IndexOf: "index[{dtype}(?x{lanes}?)]({index}(? step {step}?))",
        Load: "load {buffer:buffer}[{offset}](? x{lanes}?)(? stride({stride})?)(? mask({active})?)",
        VectorGather: "gather {buffer:buffer}[{offset}; {offsets}](? mask({active})?)",
        Predicate: "predicate({conditions})",
        MulAdd: "muladd({a}, {b}, {c})",
        Select: "select({condition}, {then}, {other})",
        Convert: "convert[{dtype}]({value})",
        Bitcast: "bitcast[{dtype}]({value})",
        Splat: "splat[{lanes}]({value})",
        Shuffle: "shuffle[{places:places}]({a}, {b})",
        Reduce: "reduce[{function:word}]({value})",
        ScalarCall: "{function:word}({args})",
        Intrinsic: "{instruction}({args})",
    },
    {Var: _var, Load: _load, VectorGather: _gather, ScalarCall: _call},
    _kind_without_word,
)


# --- functions -------------------------------------------------------------------------------


def _shape_text(value: Var) -> str:
    lanes = f"x{value.lanes}" if value.lanes != 1 else ""
    return f"{value.dtype}{lanes}"


def _parameter_text(parameter: Parameter | Var) -> str:
    if isinstance(parameter, Var):
        return f"value {value_text(parameter.name)}: {_shape_text(parameter)}"
    buffer = parameter.buffer
    words = ("shared " if parameter.shared else "") + ("mut " if parameter.mutable else "")
    words += "constant " if parameter.constant else ""
    words += f"prefetched {parameter.prefetched} " if parameter.prefetched else ""
    return f"{value_text(buffer.name)}: {words}{_buffer_text(buffer)}"


def _read_parameter(at: TextReader) -> Parameter | Var:
    is_value = at.accept("value ")
    name = at.value()
    at.expect(":")
    if is_value:
        dtype = _read_dtype(at)
        at.values[name] = dtype, at.number() if at.accept("x") else 1
        return Var(name, *at.values[name])
    shared, mutable = at.accept("shared "), at.accept("mut ")
    constant = at.accept("constant ")
    prefetched = at.number() if at.accept("prefetched ") else 0
    return Parameter(_read_buffer(at, name, "global"), mutable, shared, constant, prefetched)


_PARAMETERS = listed(syntax(_parameter_text, _read_parameter))


def definition_text(function: Function) -> str:
    """A function after its first keyword."""
    taken = _PARAMETERS.text((*function.parameters, *function.values), NO_TYPES)
    sizes = f"; {SYMBOLS.text(function.sizes, NO_TYPES)}" if function.sizes else ""
    source = f" from {STRINGS.text(function.source, NO_TYPES)}" if function.source else ""
    resident = f" resident {function.resident}" if function.resident else ""
    resident += " early" if function.early else ""
    name = FUNCTION.text(function.name, NO_TYPES)
    return f"{name}({taken}{sizes}){resident}{source} {_BLOCK.text(function.body, NO_TYPES)}"


def read_definition(at: TextReader) -> Function:
    """The inverse of :func:`definition_text`; names from the outside are not visible inside."""
    outside, at.buffers, at.values = (at.buffers, at.values), {}, {}
    name = at.function_name()
    at.expect("(")
    taken = _PARAMETERS.read(at, (";", ")"))
    sizes = SYMBOLS.read(at, (")",)) if at.accept(";") else ()
    at.expect(")")
    resident = at.number() if at.accept("resident ") else 0
    early = at.accept("early ")
    source = STRINGS.read(at, ()) if at.accept("from ") else ()
    body = _BLOCK.read(at, ())
    at.buffers, at.values = outside
    parameters = tuple(p for p in taken if isinstance(p, Parameter))
    values = tuple(p for p in taken if isinstance(p, Var))
    return Function(name, parameters, sizes, body, source, values, resident, early)
