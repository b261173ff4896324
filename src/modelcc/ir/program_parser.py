"""Reads the text form of host programs; see :mod:`modelcc.ir.program_text`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from modelcc.ir.constant import Constant
from modelcc.ir.index import Index, Range
from modelcc.ir.library import Callee
from modelcc.ir.library_forms import read_callee
from modelcc.ir.memory_rules import ALIGNMENT
from modelcc.ir.program import Binding, Definition, Place, Placement, Program, Step
from modelcc.ir.program_forms import DEFINITION, STEPS
from modelcc.ir.spellings import OVER
from modelcc.ir.text_reader import TextReader
from modelcc.ir.types import TensorType

_WORDS = (
    "dim define arena aligned note input output state room overlap constant arrivals place tensor"
)
_HEAD = frozenset(_WORDS.split())
"""Keywords of a program's declarations."""


def constants_by_digest(program: Program) -> dict[str, Constant]:
    """The constants of a program in the form that :func:`parse_program` takes."""
    return {c.digest: c for c in program.constants.values()}


def parse_program(text: str, constants: Mapping[str, Constant]) -> Program:
    """The program that ``text`` spells: the inverse of ``print_program``.

    ``constants`` are looked up by digest.  :class:`ModelError` with line and column if the text is
    malformed or names an unknown constant.  Does not verify: see ``verify_program``.
    """
    parser = _ProgramParser(TextReader(text), constants)
    return parser.program()


class _ProgramParser:
    def __init__(self, scanner: TextReader, constants: Mapping[str, Constant]) -> None:
        self._at = scanner
        self._digests = constants
        self._names: dict[Place, list[str]] = {"input": [], "output": [], "arrivals": []}
        self._bindings: dict[str, Binding] = {}
        self._types: dict[str, TensorType] = {}
        self._constants: dict[str, Constant] = {}
        self._dims: dict[str, Range] = {}
        self._definitions: list[Definition] = []
        self._steps: list[Step] = []
        self._notes: list[str] = []
        self._arena: Index | None = None
        self._alignment = ALIGNMENT
        self._room: dict[str, int] = {}
        self._overlaps: list[tuple[str, str]] = []
        self._states: dict[str, str] = {}

    def program(self) -> Program:
        """The whole text."""
        self._at.expect("program")
        name = self._at.function_name()
        self._at.expect("{")
        while not self._at.accept("}"):
            self._item()
        callees: list[Callee] = []
        while self._at.end < len(self._at.text):
            callees.append(read_callee(self._at))
        return Program(
            name, tuple(self._names["input"]), tuple(self._names["output"]), tuple(self._steps),
            self._types, tuple(callees), self._constants, self._dims, tuple(self._notes),
            self._placement(), self._states, tuple(self._names["arrivals"]),
        )  # fmt: skip

    def _placement(self) -> Placement | None:
        """The placement, if there is an arena."""
        if self._arena is None:
            return None
        over = dict.fromkeys(self._states, Binding("input"))
        bindings, definitions = {**self._bindings, **over}, tuple(self._definitions)
        return Placement(
            bindings, self._arena, definitions, self._alignment, self._room, tuple(self._overlaps)
        )

    def _item(self) -> None:
        word = self._at.next_word()
        if word not in _HEAD:
            self._steps.append(STEPS.read(self._at))
            return
        self._at.expect(word)
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
                self._definitions.append(DEFINITION.read(self._at, ("\n",)))
            case "arena":
                self._arena = self._line_index()
            case "aligned":
                self._alignment = self._line_number()
            case "room":
                name = self._at.value()
                self._at.expect("at")
                self._room[name] = self._line_number()
            case "note":
                self._notes.append(self._at.string())
            case "input" | "output" | "arrivals":
                self._names[word].append(self._bound(word))
            case "state":
                output, taken = OVER.read(self._at, ("\n",))
                self._states[output] = taken
            case "overlap":
                self._overlaps.append(OVER.read(self._at, ("\n",)))
            case "constant":
                self._constant()
            case "place":
                self._place()
            case _:
                self._typed()

    def _line_index(self) -> Index:
        return self._at.parsed_index(self._at.rest_of_line())

    def _line_number(self) -> int:
        found = self._line_index()
        if not isinstance(found, int):
            raise self._at.error(f"expected a number, not {found}")
        return found

    def _typed(self) -> str:
        """A tensor, whose type is recorded."""
        name = self._at.value()
        self._at.expect(":")
        self._types[name] = self._at.type()
        return name

    def _bound(self, place: Place) -> str:
        name = self._typed()
        self._bindings[name] = Binding(place)
        return name

    def _place(self) -> None:
        segment = self._at.value() if self._at.accept("in ") else ""
        name = self._typed()
        self._at.expect("at")
        self._bindings[name] = Binding("arena", self._line_index(), segment)

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
