"""Calls of libraries as LLVM text."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.library import Address, Argument, ExternalCall
from modelcc.ir.loop import For, Stmt
from modelcc.targets.llvm.code import Code
from modelcc.targets.llvm.statements import StatementCode
from modelcc.targets.llvm.values import value_type


class LibraryCallCode(StatementCode):
    """Emits the loop over the points of a call; what is in the loop is the call."""

    def __init__(self, code: Code, call: ExternalCall) -> None:
        super().__init__(code)
        self._call = call

    def emit(self) -> None:
        """Emit all calls."""
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
        if isinstance(argument, Address):
            return "ptr", self.expressions.memory.address(argument.buffer, argument.offset)
        return value_type(argument.dtype), self.expressions.operand(argument)
