"""Reads the text form of host programs; see :mod:`modelcc.ir.program_text`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from modelcc.ir.condition import Condition
from modelcc.ir.constant import Constant
from modelcc.ir.index import Index, Range
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.index_bound_text import parse_bound
from modelcc.ir.loop import Function
from modelcc.ir.loop_parser import FunctionParser, LoopScanner, parse_source
from modelcc.ir.mlir_syntax import value_name
from modelcc.ir.program import (
    Allocate,
    Binding,
    CopyTensor,
    Definition,
    Launch,
    Place,
    Program,
    Step,
)
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.rounding_text import parse_rounding
from modelcc.ir.tensor import ReadSize


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
        self._constants: dict[str, Constant] = {}
        self._dims: dict[str, Range] = {}
        self._definitions: list[Definition] = []
        self._steps: list[Step] = []
        self._arena: Index = 0

    def program(self) -> Program:
        """The whole text."""
        self._at.expect("program")
        self._at.expect("@")
        name = self._at.function_name()
        self._at.expect("{")
        while not self._at.accept("}"):
            self._item()
        functions: list[Function] = []
        while self._at.end < len(self._at.text):
            functions.append(FunctionParser(self._at).function())
        return Program(
            name, tuple(self._names["input"]), tuple(self._names["output"]), self._bindings,
            tuple(functions), tuple(self._steps), self._arena, tuple(self._definitions),
            self._constants, self._dims,
        )  # fmt: skip

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
            case "input" | "output":
                binding = self._binding(word)
                self._names[word].append(binding.name)
            case "constant":
                self._constant()
            case "place":
                self._binding("arena")
            case _:
                self._steps.append(self._step(word, "program"))

    def _step(self, word: str, of: str) -> Step:
        match word:
            case "launch":
                return self._launch()
            case "copy":
                return self._copy()
            case "read":
                return self._read_size()
            case "allocate":
                name = value_name(self._at.take("value"))
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

    def _binding(self, place: Place) -> Binding:
        placed = place == "arena" and self._at.accept("in ")
        segment = value_name(self._at.take("value")) if placed else ""
        name = value_name(self._at.take("value"))
        self._at.expect(":")
        type = self._at.type()
        offset: Index = 0
        if place == "arena":
            self._at.expect("at")
            offset = self._line_index()
        self._bindings[name] = Binding(name, type, place, offset, segment)
        return self._bindings[name]

    def _constant(self) -> None:
        unused = self._at.accept("unused ")
        binding = self._binding("constant")
        if unused:
            del self._bindings[binding.name]
        self._at.expect("digest")
        digest = self._at.string()
        found = self._digests.get(digest)
        if found is None and 0 in binding.type.shape and binding.type.is_static:
            found = Constant(np.zeros(binding.type.static_shape(), binding.type.dtype.numpy))
        if found is None:
            raise self._at.error(f"constant '{binding.name}' ({digest[:8]}…) is not at hand")
        self._constants[binding.name] = found

    def _launch(self) -> Launch:
        self._at.expect("@")
        name = self._at.function_name()
        self._at.expect("(")
        tensors: list[str] = []
        while self._at.text.startswith("%", self._at.end):
            tensors.append(value_name(self._at.take("value")))
            self._at.accept(",")
        sizes: list[Index] = []
        while self._at.accept(";") or self._at.accept(","):
            sizes.append(self._at.index_before(",", ")"))
        self._at.expect(")")
        source, rounding = parse_source(self._at), parse_rounding(self._at)
        bounds: list[IndexBound] = []
        while self._at.accept("check "):
            bound = parse_bound(self._at)
            if bound is None:
                raise self._at.error("expected the bound of an index")
            bounds.append(bound)
        return Launch(name, tuple(tensors), tuple(sizes), source, tuple(bounds), rounding)

    def _copy(self) -> CopyTensor:
        target = value_name(self._at.take("value"))
        self._at.expect("=")
        source = value_name(self._at.take("value"))
        return CopyTensor(target, source, parse_source(self._at))

    def _read_size(self) -> ReadSize:
        symbols: list[str] = []
        if not self._at.text.startswith("%", self._at.end):
            symbols.append(self._at.symbol())
            while self._at.accept(","):
                symbols.append(self._at.symbol())
            self._at.expect("=")
        tensor = value_name(self._at.take("value"))
        source = parse_source(self._at)
        requires: list[Condition] = []
        while self._at.accept("require "):
            requires.append(self._at.condition(" require ", "\n"))
        return ReadSize(tuple(symbols), tensor, tuple(requires), source)

    def _branch(self) -> Branch[Step]:
        condition = value_name(self._at.take("value"))
        source = parse_source(self._at)
        then = self._steps_within()
        other = self._steps_within() if self._at.accept("else") else ()
        return Branch(condition, (), then, other, source)

    def _repeat(self) -> Repeat[Step]:
        counter = self._at.symbol()
        trips = self._at.index_before(" while ", " from ", " {") if self._at.accept("<") else None
        condition = value_name(self._at.take("value")) if self._at.accept("while") else None
        source = parse_source(self._at)
        return Repeat(counter, trips, (), (), self._steps_within(), condition, source)
