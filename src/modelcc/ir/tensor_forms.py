"""The forms of a tensor program's items, as :mod:`modelcc.ir.tensor_text` shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from modelcc.ir.forms import (
    Spelling,
    Syntax,
    TextForm,
    TextForms,
    Types,
    block,
    enclosed,
    listed,
    syntax,
)
from modelcc.ir.index import Range
from modelcc.ir.library_forms import callee_text, read_callee
from modelcc.ir.mlir_syntax import key_text, value_text
from modelcc.ir.region import Branch, Carry, Repeat
from modelcc.ir.scalar_text import declare, print_stage, read_stage
from modelcc.ir.spellings import OVER, SPELLINGS
from modelcc.ir.tensor import Algorithm, Item, Kernel, ReadSize, Scatter, Stage, View
from modelcc.ir.text_reader import TextReader

T = TypeVar("T")


def _typed_text(name: str, types: Types) -> str:
    return f"{value_text(name)}: {types[name]}"


def _read_typed(at: TextReader, stops: tuple[str, ...]) -> str:
    name = at.value()
    at.expect(":")
    declare(at, name)
    return name


def _read_symbol(at: TextReader) -> str:
    at.expect("@")
    return at.key()


def _alone(one: Syntax[T]) -> Syntax[T]:
    """Exactly one item in braces."""
    several = block(one)

    def read(at: TextReader, stops: tuple[str, ...]) -> T:
        found = several.read(at, stops)
        if len(found) != 1:
            raise at.error("expected one before this")
        return found[0]

    return Syntax(lambda value, types: several.text((value,), types), read, several.starts)


def _carry(at: TextReader, **names: str) -> Carry:
    carry = Carry(**names)
    for name in (carry.next, carry.last):
        at.types.setdefault(name, at.types[carry.state])
    return carry


def _read_dim(at: TextReader, stops: tuple[str, ...]) -> tuple[str, Range]:
    name = at.key()
    at.expect("in")
    low = None if at.accept(":") else at.index_before(":")
    if low is not None:
        at.expect(":")
    return name, Range(low, None if at.sees(*stops) else at.index_before(*stops))


def _dim_text(dim: tuple[str, Range], types: object) -> str:
    name, range = dim
    low, high = ("" if end is None else str(end) for end in (range.lo, range.hi))
    return f"{key_text(name)} in {low}:{high}"


DIMS = enclosed(listed(Syntax(_dim_text, _read_dim)), "(", ")")
STATES = enclosed(listed(OVER), "(", ")")
SYMBOL_NAME = syntax(lambda name: "@" + key_text(name), _read_symbol)
TYPED = Syntax(_typed_text, _read_typed, ("%",))
TYPEDS = listed(TYPED)

_STAGE = Syntax[Stage](print_stage, lambda at, _: read_stage(at))
_CALLEE = syntax(lambda callee: callee_text(callee).rstrip(), read_callee)
_ITEM = Syntax[Item](lambda s, types: ITEMS.text(s, types), lambda at, stops: ITEMS.read(at, stops))

_CARRY = TextForm(
    Carry,
    "{state:typed} = {initial:value} then {next:value} last {last:value}",
    {**SPELLINGS, "typed": TYPED},
    _carry,
)

_SPELLINGS: Mapping[str, Spelling] = {
    **SPELLINGS,
    "name": SYMBOL_NAME,
    "typed": TYPED,
    "typeds": TYPEDS,
    "Stage": _alone(_STAGE),
    "tuple[Stage, ...]": block(_STAGE),
    "Callee": _alone(_CALLEE),
    "tuple[I, ...]": block(_ITEM),
    "tuple[Carry, ...]": listed(_CARRY.syntax),
}

_SOURCE = "(? source({source:strings})?)"

ITEMS = TextForms[Item](
    "item",
    _SPELLINGS,
    {
        Kernel: "kernel {name:name}({inputs:typeds}) -> ({outputs:typeds})"
        + _SOURCE
        + "(? rounding {rounding}?) {stages}",
        View: "view {output:typed} = {input:value}" + _SOURCE,
        Scatter: "scatter {initial:value} ({inputs:typeds})" + _SOURCE + " {stage}",
        Algorithm: "algorithm ({inputs:typeds}) -> ({outputs:typeds})(? sizes({sizes})?)"
        + _SOURCE
        + " {function}",
        ReadSize: "read (?{symbols:symbols} = ?){tensor:value}"
        + _SOURCE
        + "(? require [{requires}]?)",
        Branch: "if {condition:value} -> ({outputs:typeds})" + _SOURCE + " {then} else {other}",
        Repeat: "repeat [{counter:symbol}(? < {trips}?)](? while {condition:value}?)"
        "(? carry({carries})?)(? fill({filled:typeds})?)" + _SOURCE + " {body}",
    },
)
