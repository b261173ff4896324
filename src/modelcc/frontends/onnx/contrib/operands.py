"""Declarations of the operands of onnxruntime's operators, from which checks and lists are derived.

``"x[b,s,w] bias[w]? ids:int past! rest*"``: names, extents, and kinds of elements where relevant.
``?`` may be absent, ``!`` is not supported, ``*`` is variadic.  Extents of one name are equal in
all operands; ``...`` stands for any leading axes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call, Handler, Results
from modelcc.ir.index import Index
from modelcc.ops.arithmetic import Value

Made = Value | str | Sequence[Value | str | None]
"""Results; None where there is none."""

_OPERAND = re.compile(r"(\w+)(?:\[([^]]*)\])?(?::(\w+))?([?*!]?)")


@dataclass(frozen=True)
class DeclaredOperand:
    """One operand: its name, its extents and kind of elements if relevant, and its mark."""

    name: str
    extents: tuple[str, ...] | None
    kind: str
    mark: str

    def check(self, call: Call, i: int, seen: dict[str, Index]) -> None:
        """Checks operand ``i`` of ``call``, with the extents bound to names so far."""
        if not call.has(i):
            if not self.mark:
                call.fail(f"its operand {self.name} is left out")
        elif self.mark == "!":
            unsupported(f"its operand {self.name}")
        else:
            self._check_type(call, i, seen)

    def _check_type(self, call: Call, i: int, seen: dict[str, Index]) -> None:
        type, what = call.type(i), f"its operand {self.name} ({call.labels[i]!r})"
        if self.kind and type.dtype.kind.removeprefix("u") != self.kind:
            call.fail(f"{what} has elements of {type.dtype}, expected {self.kind}")
        if self.extents is None:
            return
        open, named = self.extents[:1] == ("...",), [e for e in self.extents if e != "..."]
        if type.rank < len(named) or (type.rank > len(named) and not open):
            call.fail(f"{what} is {type}, expected [{', '.join(self.extents)}]")
        for name, extent in zip(named, type.shape[type.rank - len(named) :], strict=True):
            first = int(name) if name.isdecimal() else seen.setdefault(name, extent)
            if isinstance(first, int) and isinstance(extent, int) and first != extent:
                call.fail(f"{what} is {type}, expected {first} for {name}")


@dataclass(frozen=True)
class DeclaredHandler:
    """A handler that receives the operands of a declaration, None for absent ones."""

    text: str
    handler: Callable[..., Made]

    @cached_property
    def operands(self) -> tuple[DeclaredOperand, ...]:
        found = [_OPERAND.fullmatch(word) for word in self.text.split()]
        assert None not in found, self.text
        groups = [match.groups() for match in found if match is not None]
        return tuple(
            DeclaredOperand(
                name, None if extents is None else tuple(extents.split(",")), kind or "", mark
            )
            for name, extents, kind, mark in groups
        )

    def __call__(self, call: Call) -> Results:
        rest = self.operands[-1].mark == "*"
        count = max((i + 1 for i in range(len(call.inputs)) if call.has(i)), default=0)
        if count > len(self.operands) and not rest:
            call.fail(f"it has {count} operands, expected {self.text}")
        seen: dict[str, Index] = {}
        for i, operand in enumerate(self.operands):
            operand.check(call, i, seen)
        places = count if rest else len(self.operands)
        made = self.handler(call, *map(call.given, range(places)))
        if isinstance(made, Value | str):
            return _name(made)
        return tuple(map(_name, made))


def _name(result: Value | str | None) -> str:
    return result.name if isinstance(result, Value) else result or ""


def positional(handler: Handler) -> Callable[..., Made]:
    """A handler that takes operands from the call, as those of the standard do."""

    def run(call: Call, *_: Value | None) -> Results:
        return handler(call)

    return run


def operators(**declared: tuple[str, Callable[..., Made]]) -> Mapping[str, DeclaredHandler]:
    """Handlers by the names of their operators, with their operands."""
    return MappingProxyType({name: DeclaredHandler(*own) for name, own in declared.items()})
