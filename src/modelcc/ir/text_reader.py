"""A position in the text of a level, and the names declared before it."""

from __future__ import annotations

import re
from typing import Final

from modelcc.ir.condition import COMPARISONS, Condition
from modelcc.ir.index import Index, parse_index, symbols
from modelcc.ir.loop import Buffer, Function, Instruction
from modelcc.ir.mlir_syntax import Scanner, value_name
from modelcc.ir.types import DType, TensorType

_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_NAME: Final = re.compile(r'[A-Za-z_][\w.]*|"(?:[^"\\]|\\.)*"')
_FUNCTION_NAME: Final = re.compile(r"[\w.$-]+")
_INDEX_PIECE: Final = re.compile(r'"(?:[^"\\]|\\.)*"|.', re.DOTALL)
_COMPARISON: Final = re.compile(r"<=|>=|==|!=|<|>")


class TextReader(Scanner):
    """Types of tensors, and for the current function its buffers, the dtypes and lanes of its
    values, instructions and routines.  Index expressions are not quoted here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.types: dict[str, TensorType] = {}
        self.buffers: dict[str, Buffer] = {}
        self.values: dict[str, tuple[DType, int]] = {}
        self.instructions: dict[str, Instruction] = {}
        self.routines: dict[str, Function] = {}

    def sees(self, *literals: str) -> bool:
        """Whether one of ``literals`` is next."""
        return self.text.startswith(literals, self.end)

    def next_word(self) -> str:
        """The plain word that is next; the next character if there is none."""
        match = _WORD.match(self.text, self.end)
        return match[0] if match else self.text[self.end : self.end + 1]

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

    def value(self) -> str:
        """The name of a value."""
        return value_name(self.take("value"))

    def number(self) -> int:
        """An integer."""
        return int(self.take("number"))

    def function_name(self) -> str:
        """A function's name, with its ``@``."""
        self.expect("@")
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
        """The rest of the line before the position, which skips line ends; consumed."""
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
        comparison = COMPARISONS[self.bare("comparison", _COMPARISON)]
        return Condition(left, comparison, self.index_before(*stops))

    def parsed_index(self, text: str, step: bool = False) -> Index:
        """The index expression ``text``; with ``step`` it is consumed."""
        try:
            index = parse_index(text.strip())
        except SyntaxError as error:
            message = f"{text.strip()!r} is no index expression: {error.msg}"
            raise self.error(message) from error
        if step:
            self.expect(text.strip())
        return index
