"""Library calls as LLVM text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from modelcc.ir.library import Address, Argument, ExternalCall, Null, Struct
from modelcc.ir.loop import For, Stmt
from modelcc.targets.llvm.code import Code
from modelcc.targets.llvm.statements import StatementCode
from modelcc.targets.llvm.values import value_type


class LibraryCallCode(StatementCode):
    """Emits the loop over the points of a call, with the call as its body."""

    def __init__(self, code: Code, call: ExternalCall) -> None:
        super().__init__(code)
        self._call = call

    def emit(self) -> None:
        """Emits all calls."""
        call = self._call
        if call.counter:
            self.statement(For(call.counter, 0, call.count, ()))
        else:
            self.block(())

    def block(self, body: Sequence[Stmt]) -> None:
        """One call."""
        arguments = [self._argument(argument) for argument in self._call.arguments]
        types = ", ".join(type_ for type_, _ in arguments)
        callee = self._code.intrinsic("void", self._call.symbol, types)
        self._code.effect(f"call {callee}({', '.join(map(' '.join, arguments))})")

    def _argument(self, argument: Argument) -> tuple[str, str]:
        match argument:
            case Address(name, offset):
                return "ptr", self.expressions.memory.address(name, offset)
            case Null():
                return "ptr", "null"
            case Struct(_, fields):
                return "ptr", self._struct(fields)
            case _:
                return value_type(argument.dtype), self.expressions.operand(argument)

    def _struct(self, fields: Sequence[Argument]) -> str:
        """The address of a structure with these fields."""
        parts = list(_flat(fields))
        values = [self._argument(argument) for _, argument in parts]
        types = dict(
            zip((place for place, _ in parts), (type_ for type_, _ in values), strict=True)
        )
        whole = _struct_type(fields, types, ())
        slot = self._code.allocate(whole, "given")
        for (place, _), (type_, value) in zip(parts, values, strict=True):
            path = ", ".join(f"i32 {number}" for number in (0, *place))
            at = self._code.emit(f"getelementptr inbounds {whole}, ptr {slot}, {path}", "field")
            self._code.effect(f"store {type_} {value}, ptr {at}")
        return slot


_Place = tuple[int, ...]


def _flat(fields: Sequence[Argument], within: _Place = ()) -> Iterator[tuple[_Place, Argument]]:
    """The fields of structures, nested ones flattened, each with its indices."""
    for number, argument in enumerate(fields):
        if isinstance(argument, Struct):
            yield from _flat(argument.fields, (*within, number))
        else:
            yield (*within, number), argument


def _struct_type(fields: Sequence[Argument], types: Mapping[_Place, str], within: _Place) -> str:
    inside = (
        _struct_type(argument.fields, types, (*within, number))
        if isinstance(argument, Struct)
        else types[*within, number]
        for number, argument in enumerate(fields)
    )
    return f"{{ {', '.join(inside)} }}"
