"""Library calls in C."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.library import Address, Argument, ExternalCall, LibraryFunction, Null, Struct
from modelcc.ir.loop import Const, For, IndexOf, Stmt
from modelcc.targets.c.code import Code, folded
from modelcc.targets.c.prelude import Prelude
from modelcc.targets.c.statements import StatementCode
from modelcc.targets.c.values import memory_type, scalar_type


def library_prototype(function: LibraryFunction) -> str:
    """The declaration of the callee, or its header."""
    if function.call.header:
        return f'#include "{function.call.header}"'
    buffers = {p.buffer.name: p for p in function.parameters}

    def type_of(argument: Argument) -> str:
        if not isinstance(argument, Address):
            assert isinstance(argument, Const | IndexOf)  # structures need a header
            return scalar_type(argument.dtype)
        parameter = buffers[argument.buffer]
        constant = "" if parameter.mutable else "const "
        return f"{constant}{memory_type(parameter.buffer.dtype)} *"

    types = ", ".join(map(type_of, function.call.arguments))
    return "\n".join(folded(f"void {function.call.symbol}({types});", ""))


class LibraryCallCode(StatementCode):
    """Prints the loop over the points of a call, with the call as its body."""

    def __init__(self, code: Code, prelude: Prelude, call: ExternalCall) -> None:
        super().__init__(code, prelude)
        self._call = call

    def emit(self) -> None:
        """Print all calls."""
        call = self._call
        if call.counter:
            self.statement(For(call.counter, 0, call.count, ()))
        else:
            self.block(())

    def block(self, body: Sequence[Stmt]) -> None:
        """One call."""
        arguments = ", ".join(map(self._argument, self._call.arguments))
        self._code.line(f"{self._call.symbol}({arguments});")

    def _argument(self, argument: Argument) -> str:
        match argument:
            case Address(name, offset):
                return self.expressions.memory.address(name, offset)
            case Null():
                return "0"
            case Struct(type_):
                return f"&(const {type_}){self._field(argument)}"
            case _:
                return self.expressions.operand(argument).inner

    def _field(self, argument: Argument) -> str:
        match argument:
            case Struct(_, fields):
                return f"{{{', '.join(map(self._field, fields))}}}"
            case Address():  # structures of libraries may have non-const pointers to read-only data
                return f"(void *){self._argument(argument)}"
            case _:
                return self._argument(argument)
