"""Python's operators for expressions under construction, at any level."""

from __future__ import annotations

from typing import Self

Plain = float | int | bool


class Arithmetic:
    """Base: each operator is a function of the scalar language (:mod:`modelcc.ir.scalar`).

    Python numbers take the element type of the other operand.
    """

    def applied(self, function: str, *args: Self | Plain) -> Self:
        """``function`` of ``args``, at least one of which is an expression."""
        raise NotImplementedError(function)

    def __neg__(self) -> Self:
        return self.applied("neg", self)

    def __add__(self, other: Self | Plain) -> Self:
        return self.applied("add", self, other)

    def __radd__(self, other: Plain) -> Self:
        return self.applied("add", other, self)

    def __sub__(self, other: Self | Plain) -> Self:
        return self.applied("sub", self, other)

    def __rsub__(self, other: Plain) -> Self:
        return self.applied("sub", other, self)

    def __mul__(self, other: Self | Plain) -> Self:
        return self.applied("mul", self, other)

    def __rmul__(self, other: Plain) -> Self:
        return self.applied("mul", other, self)

    def __truediv__(self, other: Self | Plain) -> Self:
        return self.applied("div", self, other)

    def __rtruediv__(self, other: Plain) -> Self:
        return self.applied("div", other, self)

    def __and__(self, other: Self | Plain) -> Self:
        return self.applied("and", self, other)

    def __or__(self, other: Self | Plain) -> Self:
        return self.applied("or", self, other)

    def __xor__(self, other: Self | Plain) -> Self:
        return self.applied("xor", self, other)

    def __lshift__(self, other: Self | Plain) -> Self:
        return self.applied("shl", self, other)

    def __rshift__(self, other: Self | Plain) -> Self:
        return self.applied("shr", self, other)

    def __lt__(self, other: Self | Plain) -> Self:
        return self.applied("lt", self, other)

    def __le__(self, other: Self | Plain) -> Self:
        return self.applied("le", self, other)

    def __gt__(self, other: Self | Plain) -> Self:
        return self.applied("gt", self, other)

    def __ge__(self, other: Self | Plain) -> Self:
        return self.applied("ge", self, other)
