"""The forms of a host program's steps, as :mod:`modelcc.ir.program_text` shows them."""

from __future__ import annotations

from collections.abc import Mapping

from modelcc.ir.forms import Spelling, Syntax, TextForm, TextForms, block, listed, repeated
from modelcc.ir.program import Allocate, CopyTensor, Definition, Launch, Step, Transfer
from modelcc.ir.region import Branch, Carry, Repeat
from modelcc.ir.spellings import BOUND, CONDITION, OVER, SPELLINGS
from modelcc.ir.tensor import ReadSize, View

_STEP = Syntax[Step](lambda s, _: STEPS.text(s), lambda at, stops: STEPS.read(at, stops))

_CARRY = TextForm(
    Carry, "{state:value} = {initial:value} then {next:value} last {last:value}", SPELLINGS
)

_SPELLINGS: Mapping[str, Spelling] = {
    **SPELLINGS,
    "tuple[I, ...]": block(_STEP),
    "tuple[Carry, ...]": listed(_CARRY.syntax),
    "tuple[tuple[str, str], ...]": listed(OVER),
    "tuple[IndexBound, ...]": repeated(BOUND.syntax, "check"),
    "constraints": repeated(CONDITION, "require"),
}

DEFINITION = TextForm(Definition, "{symbol:symbol} = {value}", SPELLINGS)

_FROM = "(? from {source:strings}?)"

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
