"""Reads the text form of host programs; see :mod:`modelcc.ir.program_text`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from modelcc.ir.condition import Condition
from modelcc.ir.constant import Constant
from modelcc.ir.index import Index, Range
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.index_bound_text import parse_bound
from modelcc.ir.library import Address, Argument, Callee, ExternalCall, LibraryFunction
from modelcc.ir.loop_parser import FunctionParser, LoopScanner, parse_source
from modelcc.ir.mlir_syntax import value_name
from modelcc.ir.program import (
    Allocate,
    Binding,
    CopyTensor,
    Definition,
    Launch,
    Place,
    Placement,
    Program,
    Step,
)
from modelcc.ir.region import Branch, Carry, Repeat
from modelcc.ir.rounding_text import parse_rounding
from modelcc.ir.tensor import ReadSize, View
from modelcc.ir.types import TensorType

I = TypeVar("I")  # noqa: E741


def constants_by_digest(program: Program) -> dict[str, Constant]:
    """The constants of a program as :func:`parse_program` wants them."""
    return {c.digest: c for c in program.constants.values()}


def parse_program(text: str, constants: Mapping[str, Constant]) -> Program:
    """The program that ``text`` spells: the inverse of ``print_program``.

    ``constants`` are looked up by digest.  :class:`ModelError` with line and column if the text is
    malformed or names an unknown constant.  Does not verify: see ``verify_program``.
    """
    parser = _ProgramParser(LoopScanner(text), constants)
    return parser.program()


class _ProgramParser:
    def __init__(self, scanner: LoopScanner, constants: Mapping[str, Constant]) -> None:
        self._at = scanner
        self._digests = constants
        self._names: dict[Place, list[str]] = {"input": [], "output": []}
        self._bindings: dict[str, Binding] = {}
        self._types: dict[str, TensorType] = {}
        self._constants: dict[str, Constant] = {}
        self._dims: dict[str, Range] = {}
        self._definitions: list[Definition] = []
        self._steps: list[Step] = []
        self._notes: list[str] = []
        self._arena: Index | None = None

    def program(self) -> Program:
        """The whole text."""
        self._at.expect("program")
        self._at.expect("@")
        name = self._at.function_name()
        self._at.expect("{")
        while not self._at.accept("}"):
            self._item()
        callees: list[Callee] = []
        while self._at.end < len(self._at.text):
            callees.append(self._callee())
        return Program(
            name, tuple(self._names["input"]), tuple(self._names["output"]), tuple(self._steps),
            self._types, tuple(callees), self._constants, self._dims, tuple(self._notes),
            self._placement(),
        )  # fmt: skip

    def _callee(self) -> Callee:
        """A loop function, maybe after the call of a library that it is the meaning of."""
        if not self._at.accept("library "):
            return FunctionParser(self._at).function()
        library = self._at.symbol()
        self._at.expect("calls ")
        symbol = self._at.word("symbol")
        arguments = self._list(self._argument)
        counter = self._at.symbol() if self._at.accept("for ") else ""
        if counter:
            self._at.expect("<")
        count = self._line_index() if counter else 1
        call = ExternalCall(library, symbol, arguments, counter, count)
        return LibraryFunction(call, FunctionParser(self._at).function())

    def _argument(self) -> Argument:
        if not self._at.text.startswith("%", self._at.end):
            return FunctionParser(self._at).scalar()
        name = self._value()
        self._at.expect("[")
        offset = self._at.index_before("]")
        self._at.expect("]")
        return Address(name, offset)

    def _placement(self) -> Placement | None:
        """Where memory is, if there is an arena."""
        if self._arena is None:
            return None
        return Placement(self._bindings, self._arena, tuple(self._definitions))

    def _item(self) -> None:
        word = self._at.word("item of a program")
        match word:
            case "dim":
                symbol = self._at.symbol()
                self._at.expect("in")
                low = None if self._at.accept("..") else self._at.index_before("..")
                if low is not None:
                    self._at.expect("..")
                rest = self._at.rest_of_line()
                self._dims[symbol] = Range(low, self._at.parsed_index(rest) if rest else None)
            case "define":
                symbol = self._at.symbol()
                self._at.expect("=")
                self._definitions.append(Definition(symbol, self._line_index()))
            case "arena":
                self._arena = self._line_index()
            case "note":
                self._notes.append(self._at.string())
            case "input" | "output":
                self._names[word].append(self._bound(word))
            case "constant":
                self._constant()
            case "place":
                self._place()
            case "tensor":
                self._typed()
            case _:
                self._steps.append(self._step(word, "program"))

    def _step(self, word: str, of: str) -> Step:
        match word:
            case "launch":
                return self._launch()
            case "view":
                return View(*self._pair())
            case "copy":
                return CopyTensor(*self._pair())
            case "read":
                return self._read_size()
            case "allocate":
                name = self._value()
                source = parse_source(self._at)
                self._at.expect("size ")
                return Allocate(name, self._line_index(), source)
            case "if":
                return self._branch()
            case "repeat":
                return self._repeat()
            case _:
                raise self._at.error(f"unknown item {word!r} of a {of}")

    def _steps_within(self) -> tuple[Step, ...]:
        """Steps up to a closing brace; the opening one comes first."""
        self._at.expect("{")
        steps: list[Step] = []
        while not self._at.accept("}"):
            steps.append(self._step(self._at.word("step"), "branch or loop"))
        return tuple(steps)

    def _line_index(self) -> Index:
        return self._at.parsed_index(self._at.rest_of_line())

    def _value(self) -> str:
        return value_name(self._at.take("value"))

    def _typed(self) -> str:
        """A tensor, whose type is noted."""
        name = self._value()
        self._at.expect(":")
        self._types[name] = self._at.type()
        return name

    def _bound(self, place: Place) -> str:
        name = self._typed()
        self._bindings[name] = Binding(place)
        return name

    def _place(self) -> None:
        segment = self._value() if self._at.accept("in ") else ""
        name = self._typed()
        self._at.expect("at")
        self._bindings[name] = Binding("arena", self._line_index(), segment)

    def _list(self, item: Callable[[], I]) -> tuple[I, ...]:
        """Items in parentheses, between commas."""
        self._at.expect("(")
        found: list[I] = []
        while not self._at.accept(")"):
            found.append(item())
            self._at.accept(",")
        return tuple(found)

    def _constant(self) -> None:
        name = self._bound("constant")
        self._at.expect("digest")
        digest, type = self._at.string(), self._types[name]
        found = self._digests.get(digest)
        if found is None and 0 in type.shape and type.is_static:
            found = Constant(np.zeros(type.static_shape(), type.dtype.numpy))
        if found is None:
            raise self._at.error(f"constant '{name}' ({digest[:8]}…) is not at hand")
        self._constants[name] = found

    def _launch(self) -> Launch:
        self._at.expect("@")
        name = self._at.function_name()
        self._at.expect("(")
        tensors: list[str] = []
        while self._at.text.startswith("%", self._at.end):
            tensors.append(self._value())
            self._at.accept(",")
        sizes: list[Index] = []
        while self._at.accept(";") or self._at.accept(","):
            sizes.append(self._at.index_before(",", ")"))
        self._at.expect(")")
        in_place = self._list(self._shared) if self._at.accept("in_place") else ()
        partial = self._list(self._value) if self._at.accept("partial") else ()
        source, rounding = parse_source(self._at), parse_rounding(self._at)
        bounds: list[IndexBound] = []
        while self._at.accept("check "):
            bound = parse_bound(self._at)
            if bound is None:
                raise self._at.error("expected the bound of an index")
            bounds.append(bound)
        return Launch(
            name, tuple(tensors), tuple(sizes), source, tuple(bounds), rounding, in_place, partial
        )  # fmt: skip

    def _shared(self) -> tuple[str, str]:
        output = self._value()
        self._at.expect("over ")
        return output, self._value()

    def _pair(self) -> tuple[str, str, tuple[str, ...]]:
        """What is made, of what, and where it stems from."""
        target = self._value()
        self._at.expect("=")
        return target, self._value(), parse_source(self._at)

    def _read_size(self) -> ReadSize:
        symbols: list[str] = []
        if not self._at.text.startswith("%", self._at.end):
            symbols.append(self._at.symbol())
            while self._at.accept(","):
                symbols.append(self._at.symbol())
            self._at.expect("=")
        tensor = self._value()
        source = parse_source(self._at)
        requires: list[Condition] = []
        while self._at.accept("require "):
            requires.append(self._at.condition(" require ", "\n"))
        return ReadSize(tuple(symbols), tensor, tuple(requires), source)

    def _branch(self) -> Branch[Step]:
        condition = self._value()
        outputs = self._list(self._value) if self._at.accept("->") else ()
        source = parse_source(self._at)
        then = self._steps_within()
        other = self._steps_within() if self._at.accept("else") else ()
        return Branch(condition, outputs, then, other, source)

    def _repeat(self) -> Repeat[Step]:
        at, ends = self._at, (" while ", " carry(", " fill(", " from ", " {")
        counter = at.symbol()
        trips = at.index_before(*ends) if at.accept("<") else None
        condition = self._value() if at.accept("while") else None
        carries = self._list(self._carry) if at.accept("carry") else ()
        filled = self._list(self._value) if at.accept("fill") else ()
        source = parse_source(at)
        return Repeat(counter, trips, carries, filled, self._steps_within(), condition, source)

    def _carry(self) -> Carry:
        state = self._value()
        self._at.expect("=")
        initial = self._value()
        self._at.expect("then ")
        following = self._value()
        self._at.expect("last ")
        return Carry(state, initial, following, self._value())
