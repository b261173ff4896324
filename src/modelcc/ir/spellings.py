"""Text forms of fields that occur at every level."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from modelcc.ir.condition import Condition
from modelcc.ir.forms import Spelling, Syntax, TextForm, listed, syntax
from modelcc.ir.index import Index, quote_name
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.mlir_syntax import string_text, value_text
from modelcc.ir.text_reader import TextReader

_DECIMAL = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?")


def _function_text(name: str) -> str:
    return "@" + value_text(name)[1:]


def _decimal(at: TextReader) -> float:
    return float(at.bare("number", _DECIMAL))


def _over_text(pair: tuple[str, str], types: object) -> str:
    output, taken = map(value_text, pair)
    return f"{output} over {taken}"


def _over(at: TextReader, stops: tuple[str, ...]) -> tuple[str, str]:
    output = at.value()
    at.expect("over ")
    return output, at.value()


VALUE = syntax(value_text, TextReader.value, ("%",))
VALUES = listed(VALUE)
SYMBOL = syntax(quote_name, TextReader.symbol)
STRING = syntax(string_text, TextReader.string)
SYMBOLS = listed(SYMBOL)
STRINGS = listed(STRING)
FUNCTION = syntax(_function_text, TextReader.function_name, ("@",))
INDEX = Syntax[Index](lambda index, _: str(index), lambda at, stops: at.index_before(*stops))
INDICES = listed(INDEX)
CONDITION = Syntax[Condition](lambda c, _: str(c), lambda at, stops: at.condition(*stops))
CONDITIONS = listed(CONDITION)
OVER = Syntax(_over_text, _over)
"""A tensor and the one whose memory it takes."""

SPELLINGS: Mapping[str, Spelling] = MappingProxyType(
    {
        "value": VALUE,
        "values": VALUES,
        "symbol": SYMBOL,
        "symbols": SYMBOLS,
        "string": STRING,
        "strings": STRINGS,
        "word": syntax(str, lambda at: at.word("word")),
        "function": FUNCTION,
        "Index": INDEX,
        "tuple[Index, ...]": INDICES,
        "Condition": CONDITION,
        "tuple[Condition, ...]": CONDITIONS,
        "int": syntax(str, TextReader.number),
        "float": syntax(repr, _decimal),
        "bool": syntax(lambda _: "", lambda _: True),
    }
)
"""Spellings by annotations of fields, and by words of templates."""

BOUND = TextForm(
    IndexBound,
    "below [{extent}](? wrapped{wrapped}?)(? number {number}?)(? noun {noun:string}?)"
    "(? of {what:string}?)(? from {source:strings}?)",
    SPELLINGS,
)
"""``below [n] wrapped noun "length" of "axis 0 of 'x'" from "Gather_3"``."""
