"""The forms of callees, as :mod:`modelcc.ir.library` shows them."""

from __future__ import annotations

from collections.abc import Mapping

from modelcc.ir.forms import Spelling, Syntax, TextForm, enclosed, listed
from modelcc.ir.library import (
    Address,
    Argument,
    Callee,
    ExternalCall,
    LibraryFunction,
    Null,
    Struct,
    call_of,
    meaning_of,
)
from modelcc.ir.loop import Const, IndexOf
from modelcc.ir.loop_forms import EXPRESSIONS
from modelcc.ir.loop_parser import read_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.spellings import SPELLINGS
from modelcc.ir.text_reader import TextReader

_ADDRESS = TextForm(Address, "{buffer:value}[{offset}]", SPELLINGS)
_NULL = "null"


def _argument_text(argument: Argument, types: object) -> str:
    match argument:
        case Address():
            return _ADDRESS.text(argument)
        case Null():
            return _NULL
        case Struct(name, fields):
            return name + _FIELDS.text(fields, {})
        case _:
            return EXPRESSIONS.text(argument)


def _argument(at: TextReader, stops: tuple[str, ...]) -> Argument:
    if at.sees("%"):
        return _ADDRESS.read(at, stops)
    word = at.next_word()
    if word == _NULL:
        at.expect(word)
        return Null()
    if at.sees(word + "{"):
        at.expect(word)
        return Struct(word, _FIELDS.read(at, ()))
    number = EXPRESSIONS.read(at, stops)
    if not isinstance(number, Const | IndexOf):
        raise at.error("expected an address, a constant or an index")
    return number


_ARGUMENTS = listed(Syntax(_argument_text, _argument))
_FIELDS = enclosed(_ARGUMENTS, "{", "}")
_SPELLINGS: Mapping[str, Spelling] = {**SPELLINGS, "tuple[Argument, ...]": _ARGUMENTS}

_CALL = TextForm(
    ExternalCall,
    "library {library:symbol}(? of {header:string}?) calls {symbol:word}({arguments})"
    "(? for {counter:symbol} < {count}?)",
    _SPELLINGS,
)


def callee_text(callee: Callee) -> str:
    """A loop function, after the library call that it defines if there is one."""
    call = call_of(callee)
    own = "" if call is None else f"{_CALL.text(call)}\n"
    return own + print_function(meaning_of(callee))


def read_callee(at: TextReader) -> Callee:
    """The inverse of :func:`callee_text`."""
    if at.next_word() not in _CALL.words:
        return read_function(at)
    call = _CALL.read(at, ("\n",))
    return LibraryFunction(call, read_function(at))
