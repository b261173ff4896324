"""The forms of a host program's steps, as :mod:`modelcc.ir.program_text` shows them."""

from __future__ import annotations

from collections.abc import Mapping

from modelcc.ir.forms import Spelling, Syntax, TextForm, TextForms, block, listed, repeated
from modelcc.ir.library import Address, Argument, ExternalCall
from modelcc.ir.loop import Const, IndexOf
from modelcc.ir.loop_forms import EXPRESSIONS
from modelcc.ir.program import Allocate, CopyTensor, Definition, Launch, Step, Transfer
from modelcc.ir.region import Branch, Carry, Repeat
from modelcc.ir.spellings import BOUND, CONDITION, OVER, SPELLINGS
from modelcc.ir.tensor import ReadSize, View
from modelcc.ir.text_reader import TextReader


def _argument_text(argument: Argument, types: object) -> str:
    if isinstance(argument, Address):
        return _ADDRESS.text(argument)
    return EXPRESSIONS.text(argument)


def _argument(at: TextReader, stops: tuple[str, ...]) -> Argument:
    if at.sees("%"):
        return _ADDRESS.read(at, stops)
    number = EXPRESSIONS.read(at, stops)
    if not isinstance(number, Const | IndexOf):
        raise at.error("expected an address, a constant or an index")
    return number


_STEP = Syntax[Step](lambda s, _: STEPS.text(s), lambda at, stops: STEPS.read(at, stops))

_CARRY = TextForm(
    Carry, "{state:value} = {initial:value} then {next:value} last {last:value}", SPELLINGS
)

_ADDRESS = TextForm(Address, "{buffer:value}[{offset}]", SPELLINGS)

_SPELLINGS: Mapping[str, Spelling] = {
    **SPELLINGS,
    "tuple[I, ...]": block(_STEP),
    "tuple[Carry, ...]": listed(_CARRY.syntax),
    "tuple[tuple[str, str], ...]": listed(OVER),
    "tuple[IndexBound, ...]": repeated(BOUND.syntax, "check"),
    "constraints": repeated(CONDITION, "require"),
    "tuple[Argument, ...]": listed(Syntax(_argument_text, _argument)),
}

DEFINITION = TextForm(Definition, "{symbol:symbol} = {value}", SPELLINGS)

_FROM = "(? from {source:strings}?)"

EXTERNAL_CALL = TextForm(
    ExternalCall,
    "library {library:symbol} calls {symbol:word}({arguments})(? for {counter:symbol} < {count}?)",
    _SPELLINGS,
)

STEPS = TextForms[Step](
    "item",
    _SPELLINGS,
    {
        Launch: "launch {callee:function}({arguments:values}(?; {sizes}?))(? in_place({in_place})?)"
        "(? partial({partial:values})?)" + _FROM + "(? rounding {rounding}?){bounds}",
        View: "view {output:value} = {input:value}" + _FROM,
        CopyTensor: "copy {target:value} = {source_tensor:value}" + _FROM,
        ReadSize: "read (?{symbols:symbols} = ?){tensor:value}" + _FROM + "{requires:constraints}",
        Allocate: "allocate {name:value}" + _FROM + " size {size}",
        Transfer: "transfer {tensor:value} to {to:word}" + _FROM,
        Branch: "if {condition:value}(? -> ({outputs:values})?)"
        + _FROM
        + " {then}(? else {other}?)",
        Repeat: "repeat {counter:symbol}(? < {trips}?)(? while {condition:value}?)"
        "(? carry({carries})?)(? fill({filled:values})?)" + _FROM + " {body}",
    },
)
