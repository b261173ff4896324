"""Reads the text form of loop functions; see :mod:`modelcc.ir.loop_text`."""

from __future__ import annotations

import math
import re
from typing import Final, cast

from modelcc.ir.condition import Comparison, Condition
from modelcc.ir.index import Index, parse_index, symbols
from modelcc.ir.instructions import instruction_of
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
    Instruction,
    Intrinsic,
    Let,
    Load,
    LoopKind,
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
    Space,
    Splat,
    Stmt,
    Store,
    Var,
    VectorGather,
    VectorScatter,
    While,
)
from modelcc.ir.loop_text import LOOP_WORDS
from modelcc.ir.mlir_syntax import Scanner, string_value, value_name
from modelcc.ir.scalar import FUNCTIONS
from modelcc.ir.types import BOOL, DTYPES, DType

_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_NAME: Final = re.compile(r'[A-Za-z_][\w.]*|"(?:[^"\\]|\\.)*"')
_TYPE: Final = re.compile(r"([a-z][a-z0-9]*?)(?:x(\d+))?(?=[\[\]( ,;)])")
_FUNCTION_NAME: Final = re.compile(r"[\w.$-]+")
_INDEX_PIECE: Final = re.compile(r'"(?:[^"\\]|\\.)*"|.', re.DOTALL)
_COMPARISON: Final = re.compile(r"<=|>=|==|!=|<|>")
_KINDS: Final = {word: kind for kind, word in LOOP_WORDS.items()}


def parse_functions(text: str) -> tuple[Function, ...]:
    """The functions that ``text`` spells: the inverse of ``print_functions``.

    :class:`ModelError` with line and column if the text is malformed or names an unknown buffer,
    value, type or function.  Does not verify: see ``verify_function``.
    """
    scanner = LoopScanner(text)
    found: list[Function] = []
    while scanner.end < len(scanner.text):
        found.append(FunctionParser(scanner).function())
    return tuple(found)


def parse_function(text: str) -> Function:
    """The one function that ``text`` spells: the inverse of ``print_function``."""
    scanner = LoopScanner(text)
    function = FunctionParser(scanner).function()
    if scanner.end < len(scanner.text):
        raise scanner.error("expected the end of the text")
    return function


class LoopScanner(Scanner):
    """A position in loop or program text; index expressions are not quoted here."""

    def bare(self, what: str, pattern: re.Pattern[str]) -> str:
        """The text that ``pattern`` matches here."""
        match = pattern.match(self.text, self.end)
        if match is None:
            raise self.error(f"expected a {what}")
        self.expect(match[0])
        return match[0]

    def word(self, what: str) -> str:
        """A plain word."""
        return self.bare(what, _WORD)

    def function_name(self) -> str:
        """A function's name, after its ``@``."""
        return value_name(self.bare("function name", _FUNCTION_NAME))

    def symbol(self) -> str:
        """The name of an index symbol."""
        (name,) = symbols(self.parsed_index(self.bare("symbol", _NAME), step=False))
        return name

    def index_before(self, *stops: str) -> Index:
        """An index expression up to one of ``stops`` outside of brackets, which is left."""
        depth = 0
        for match in _INDEX_PIECE.finditer(self.text, self.end):
            if depth == 0 and self.text.startswith(stops, match.start()):
                return self.parsed_index(self.text[self.end : match.start()], step=True)
            depth += (match[0] == "(") - (match[0] == ")")
        raise self.error(f"expected an index expression before {' or '.join(stops)}")

    def rest_of_line(self) -> str:
        """What is left of the line before the position, which skips line ends; stepped over."""
        line = self.text.rfind("\n", 0, self.end) + 1
        before = self.text[line : self.end]
        if not before.strip():
            return ""
        end = self.text.find("\n", self.end)
        text = self.text[self.end : end if end >= 0 else len(self.text)].strip()
        self.expect(text)
        return text

    def condition(self, *stops: str) -> Condition:
        """A comparison of index expressions, up to one of ``stops``."""
        left = self.index_before("<", ">", "=", "!")
        comparison = cast(Comparison, self.bare("comparison", _COMPARISON))
        return Condition(left, comparison, self.index_before(*stops))

    def parsed_index(self, text: str, step: bool = False) -> Index:
        """The index expression ``text``; with ``step`` the position moves behind it."""
        try:
            index = parse_index(text.strip())
        except SyntaxError as error:
            message = f"{text.strip()!r} is no index expression: {error.msg}"
            raise self.error(message) from error
        if step:
            self.expect(text.strip())
        return index


class FunctionParser:
    """Reads one function at the scanner's position."""

    def __init__(self, scanner: LoopScanner) -> None:
        self._at = scanner
        self._buffers: dict[str, Buffer] = {}
        self._values: dict[str, tuple[DType, int]] = {}
        self._instructions: dict[str, Instruction] = {}

    def function(self) -> Function:
        """``func @name(buffers; sizes) from "…" { … }``, after the instructions that it uses."""
        while self._at.accept("instruction "):
            instruction = instruction_of(FunctionParser(self._at).definition())
            self._instructions[instruction.name] = instruction
        self._at.expect("func")
        return self.definition()

    def definition(self) -> Function:
        """What follows on the first word."""
        self._at.expect("@")
        name = self._at.function_name()
        self._at.expect("(")
        parameters: list[Parameter] = []
        values: list[Var] = []
        while self._at.text.startswith(("%", "value "), self._at.end):
            if self._at.accept("value "):
                values.append(self._value_parameter())
            else:
                parameters.append(self._parameter())
            self._at.accept(",")
        sizes: list[str] = []
        if self._at.accept(";"):
            sizes.append(self._at.symbol())
            while self._at.accept(","):
                sizes.append(self._at.symbol())
        self._at.expect(")")
        source = parse_source(self._at)
        body = self._block()
        return Function(name, tuple(parameters), tuple(sizes), body, source, tuple(values))

    def scalar(self) -> Const | IndexOf:
        """A constant, or an index expression as a number."""
        is_index = self._at.text.startswith("index[", self._at.end)
        return self._index_of() if is_index else self._const()

    # --- types and buffers

    def _type(self) -> tuple[DType, int]:
        match = _TYPE.match(self._at.text, self._at.end)
        dtype = DTYPES.get(match[1]) if match else None
        if match is None or dtype is None:
            raise self._at.error("expected an element type")
        self._at.expect(match[0])
        return dtype, int(match[2] or 1)

    def _value(self) -> str:
        return value_name(self._at.take("value"))

    def _number(self) -> int:
        return int(self._at.take("number"))

    def _optional_index(self, word: str) -> Index | None:
        if not self._at.accept(f"{word}("):
            return None
        index = self._at.index_before(")")
        self._at.expect(")")
        return index

    def _parameter(self) -> Parameter:
        name = self._value()
        self._at.expect(":")
        shared = self._at.accept("shared ")
        mutable = self._at.accept("mut ")
        return Parameter(self._buffer(name, "global"), mutable, shared)

    def _value_parameter(self) -> Var:
        name = self._value()
        self._at.expect(":")
        self._values[name] = self._type()
        return Var(name, *self._values[name])

    def _buffer(self, name: str, space: Space) -> Buffer:
        dtype, _ = self._type()
        self._at.expect("[")
        size = self._at.index_before("]")
        self._at.expect("]")
        align = self._number() if self._at.accept("align ") else 64
        self._buffers[name] = Buffer(name, dtype, size, space, align)
        return self._buffers[name]

    def _known_buffer(self) -> Buffer:
        name = self._value()
        if name not in self._buffers:
            raise self._at.error(f"there is no buffer %{name}")
        return self._buffers[name]

    # --- statements

    def _block(self) -> tuple[Stmt, ...]:
        self._at.expect("{")
        found: list[Stmt] = []
        while not self._at.accept("}"):
            found.append(self._statement())
        return tuple(found)

    def _statement(self) -> Stmt:
        if self._at.text.startswith("%", self._at.end):
            return Assign(self._value(), self._assigned())
        word = self._at.word("statement")
        match word:
            case "for" | "parallel" | "unrolled" | "grid" | "thread":
                return self._for(_KINDS[word])
            case "if":
                rare = bool(self._at.accept("rare"))
                condition = self._expression()
                then = self._block()
                return If(condition, then, self._block() if self._at.accept("else") else (), rare)
            case "while":
                return While(self._expression(), self._block())
            case "let" | "register":
                name = self._value()
                value = self._assigned()
                self._values[name] = (value.dtype, value.lanes)
                return Let(name, value) if word == "let" else Register(name, value)
            case "index":
                return BindIndex(self._at.symbol(), self._assigned())
            case "check":
                return self._check()
            case "call":
                return self._call()
            case "comment":
                return Comment(self._at.string())
            case "local" | "shared":
                name = self._value()
                self._at.expect(":")
                return Alloc(self._buffer(name, word))
            case "barrier":
                return Barrier()
            case "store" | "scatter" | "prefetch":
                return self._memory_statement(word)
            case _:
                raise self._at.error(f"unknown statement {word!r}")

    def _assigned(self) -> Expr:
        self._at.expect("=")
        return self._expression()

    def _check(self) -> Check:
        value = self._expression()
        self._at.expect("below ")
        self._at.expect("[")
        extent = self._at.index_before("]")
        self._at.expect("]")
        number = self._number() if self._at.accept("number ") else 0
        return Check(value, extent, number, self._optional_index("mask"))

    def _for(self, kind: str) -> For:
        variable = self._at.symbol()
        self._at.expect("in ")
        start = self._at.index_before("..")
        self._at.expect("..")
        stop = self._at.index_before(" step ", " when ", " part ", "{")
        step = self._number() if self._at.accept("step ") else 1
        when = self._at.condition("{") if self._at.accept("when ") else None
        part = self._part() if self._at.accept("part ") else None
        return For(variable, start, stop, self._block(), step, cast(LoopKind, kind), when, part)

    def _part(self) -> tuple[Index, Index]:
        first = self._at.index_before("..")
        self._at.expect("..")
        return first, self._at.index_before("{")

    def _call(self) -> ParallelCall:
        self._at.expect("parallel ")
        self._at.expect("0 ..")
        count = self._at.index_before(" when ", " func ")
        when = self._at.condition(" func ") if self._at.accept("when ") else None
        return ParallelCall(FunctionParser(self._at).function(), count, when)

    def _memory_statement(self, word: str) -> Stmt:
        buffer = self._known_buffer()
        self._at.expect("[")
        offset = self._at.index_before(";", "]")
        offsets = self._expression() if self._at.accept(";") else None
        self._at.expect("]")
        if word == "prefetch":
            self._at.expect("level ")
            return Prefetch(buffer.name, offset, self._number())
        stride = self._optional_index("stride")
        active = self._optional_index("mask")
        value = self._assigned()
        if offsets is not None:
            return VectorScatter(buffer.name, offset, offsets, value, active)
        return Store(buffer.name, offset, value, 1 if stride is None else stride, active)

    # --- expressions

    def _expression(self) -> Expr:
        if self._at.text.startswith("%", self._at.end):
            name = self._value()
            if name not in self._values:
                raise self._at.error(f"there is no value %{name}")
            return Var(name, *self._values[name])
        match = _WORD.match(self._at.text, self._at.end)
        word = match[0] if match else ""
        if word in ("load", "gather"):
            self._at.expect(word)
            return self._read(word)
        if word == "index":
            return self._index_of()
        if word == "predicate":
            return self._predicate()
        if word.split("x")[0] in DTYPES and f"{word}(" in self._at.text:
            return self._const()
        return self._application(word)

    def _read(self, word: str) -> Expr:
        buffer = self._known_buffer()
        self._at.expect("[")
        offset = self._at.index_before(";", "]")
        offsets = self._expression() if self._at.accept(";") else None
        self._at.expect("]")
        if offsets is not None and word == "gather":
            active = self._optional_index("mask")
            return VectorGather(buffer.name, offset, offsets, buffer.dtype, active)
        lanes = int(self._at.bare("number of lanes", re.compile(r"x\d+"))[1:]) if (
            re.match(r"x\d", self._at.text[self._at.end : self._at.end + 2])
        ) else 1  # fmt: skip
        stride = self._optional_index("stride")
        active = self._optional_index("mask")
        return Load(
            buffer.name, offset, buffer.dtype, lanes, 1 if stride is None else stride, active
        )

    def _index_of(self) -> IndexOf:
        self._at.expect("index[")
        dtype, lanes = self._type()
        self._at.expect("](")
        index = self._at.index_before(" step ", ")")
        step = self._number() if self._at.accept("step ") else 0
        self._at.expect(")")
        return IndexOf(index, dtype, lanes, step)

    def _predicate(self) -> Predicate:
        self._at.expect("predicate(")
        conditions: list[Condition] = []
        while not self._at.accept(")"):
            conditions.append(self._at.condition(",", ")"))
            self._at.accept(",")
        return Predicate(tuple(conditions))

    def _const(self) -> Const:
        dtype, lanes = self._type()
        self._at.expect("(")
        text = self._at.bare("number", re.compile(r"true|false|-?(?:inf|nan|[\d.]+(?:e[-+]?\d+)?)"))
        self._at.expect(")")
        if text in ("true", "false"):
            return Const(text == "true", dtype, lanes)
        if text == "nan":
            return Const(math.nan, dtype, lanes)  # the one object that equals itself
        return Const(int(text) if re.fullmatch(r"-?\d+", text) else float(text), dtype, lanes)

    def _application(self, word: str) -> Expr:
        self._at.expect(word)
        detail = ""
        if self._at.accept("["):
            detail = self._at.bare("type, number or function", re.compile(r"\w+(?: \d+)*"))
            self._at.expect("]")
        self._at.expect("(")
        args = [self._expression()]
        while self._at.accept(","):
            args.append(self._expression())
        self._at.expect(")")
        return self._applied(word, detail, args)

    def _applied(self, word: str, detail: str, args: list[Expr]) -> Expr:
        match word:
            case "muladd":
                return MulAdd(*args)
            case "shuffle":
                return Shuffle(*args, places=tuple(map(int, detail.split())))
            case "select":
                return Select(*args)
            case "convert" | "bitcast":
                if detail not in DTYPES:
                    raise self._at.error(f"unknown element type {detail!r}")
                return (Convert if word == "convert" else Bitcast)(args[0], DTYPES[detail])
            case "splat":
                return Splat(args[0], int(detail))
            case "reduce":
                return Reduce(detail, args[0])
            case _ if word in self._instructions:
                return Intrinsic(self._instructions[word], tuple(args))
            case _:
                function = FUNCTIONS.get(word)
                if function is None:
                    raise self._at.error(f"unknown function {word!r}")
                dtype = BOOL if function.result == "bool" else args[0].dtype
                return ScalarCall(word, tuple(args), dtype, args[0].lanes)


def parse_source(scanner: Scanner) -> tuple[str, ...]:
    """The clause that names the user's nodes, if there is one."""
    if not scanner.accept("from "):
        return ()
    names = [string_value(scanner.take("string"))]
    while scanner.accept(","):
        names.append(string_value(scanner.take("string")))
    return tuple(names)
