"""Python's operators for tensors: broadcasting, and type promotion as in NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import copysign
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.op import Op
from modelcc.ir.types import BOOL, C64, DTYPES, F64, I8, I64, DType
from modelcc.ops.broadcast import Reshape
from modelcc.ops.elementwise import (
    Abs,
    Add,
    And,
    BitShift,
    BitwiseAnd,
    BitwiseNot,
    BitwiseOr,
    BitwiseXor,
    Div,
    Equal,
    Floor,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Mod,
    Mul,
    Neg,
    Not,
    NotEqual,
    Or,
    Pow,
    Reciprocal,
    Sqrt,
    Sub,
    Xor,
)  # fmt: skip
from modelcc.ops.matmul import MatMul
from modelcc.tensor.lazy import FREE, LITERAL, TRACED, Lazy, array_type, callers_line
from modelcc.tensor.promotion import Number, is_complex, promoted, with_number

ADD, SUB, MUL, DIV, NEG, ABS = Add(), Sub(), Mul(), Div(), Neg(), Abs()
NUMBERS = (bool, int, float)

OF_BOOLS: Mapping[Op, Op] = MappingProxyType({ADD: Or(), MUL: And()})
"""Arithmetic of two bools, as in NumPy."""

BITS: Mapping[Op, Op] = MappingProxyType(
    {And(): BitwiseAnd(), Or(): BitwiseOr(), Xor(): BitwiseXor(), Not(): BitwiseNot()}
)
"""Logical ops of bools, and bitwise ones of integers."""


@lru_cache(4096)
def _scalar(number: Number, kind: type, dtype: str, negative: bool, node: type[Lazy]) -> Any:
    """A number as a node; ``kind`` tells 1 from True in the cache, ``negative`` 0.0 from -0.0."""
    array = np.asarray(number, DTYPES[dtype].numpy)
    array.flags.writeable = False
    return node.made(LITERAL, (), array_type((), array.dtype), FREE, array)


def is_number(value: object) -> bool:
    """Whether ``value`` is a Python number, not a NumPy one, which has a type of its own."""
    return isinstance(value, NUMBERS) and not isinstance(value, np.generic)


class TensorOperators(Lazy):
    """Operators between tensors, numbers and arrays."""

    __slots__ = ()

    def of_number(self, number: Number, dtype: DType) -> Self:
        """A number as a tensor."""
        negative = not number and copysign(1.0, number) < 0
        return _scalar(number, type(number), dtype.name, negative, type(self))

    def as_complex(self, dtype: DType = C64) -> Any:
        """The same values as complex numbers of ``dtype`` at least."""
        raise NotImplementedError

    def lifted(self, other: Any) -> Self:
        """``other`` as a tensor, a Python number in its promoted type."""
        if isinstance(other, type(self)):
            return other
        if is_complex(other):
            return self.as_complex().lifted(other)
        if is_number(other):
            return self.of_number(other, with_number(self.type.dtype, other))
        array = np.array(other)
        array.flags.writeable = False
        return type(self).of_array(array)

    def alike(self, other: Any) -> tuple[Self, Self]:
        """Both in their common element type."""
        b = self.lifted(other)
        if b.type.dtype is self.type.dtype:
            return self, b
        if b.type.dtype.kind == "complex":
            return self.as_complex().alike(b)
        dtype = promoted(self.type.dtype, b.type.dtype)
        return self.cast(dtype), b.cast(dtype)

    def combined(self, op: Op, other: Any, swapped: bool = False) -> Self:
        """``op`` of both in their common type."""
        pair = self.alike(other)
        return self.result(op, *(pair[::-1] if swapped else pair))

    def arithmetic(self, op: Op, other: Any, swapped: bool = False) -> Self:
        """As :meth:`combined`, of numbers, with a fast path for the usual case."""
        mine, kind = self.type, type(self)
        if type(other) is kind:
            b = other
        elif type(other) is float and mine.dtype.is_float:
            b = self.of_number(other, mine.dtype)
        elif is_complex(other):
            return self.as_complex().arithmetic(op, other, swapped)
        else:
            b = self.lifted(other)
        if b.type is mine or (b.type.dtype is mine.dtype and not b.type.shape):
            phase = self.phase if self.phase > b.phase else b.phase
            if phase != TRACED and mine.dtype.bits > 8:
                return kind.made(op, (b, self) if swapped else (self, b), mine, phase)
        if mine.dtype == BOOL and b.type.dtype == BOOL:
            if op not in OF_BOOLS:
                raise ModelError(f"{type(op).__name__} is not for bools", callers_line(),
                                 "use ^ or logical_xor")  # fmt: skip
            op = OF_BOOLS[op]
        return self.combined(op, b, swapped)

    def __add__(self, other: Any) -> Self:
        return self.arithmetic(ADD, other)

    def __radd__(self, other: Any) -> Self:
        return self.arithmetic(ADD, other, True)

    def __sub__(self, other: Any) -> Self:
        return self.arithmetic(SUB, other)

    def __rsub__(self, other: Any) -> Self:
        return self.arithmetic(SUB, other, True)

    def __mul__(self, other: Any) -> Self:
        return self.arithmetic(MUL, other)

    def __rmul__(self, other: Any) -> Self:
        return self.arithmetic(MUL, other, True)

    def __truediv__(self, other: Any) -> Self:
        return self.divided(other)

    def __rtruediv__(self, other: Any) -> Self:
        return self.divided(other, True)

    def divided(self, other: Any, swapped: bool = False) -> Self:
        """The quotient; integers are divided as f64."""
        if self.type.dtype.is_float or is_complex(other):
            return self.arithmetic(DIV, other, swapped)
        a, b = self.alike(other)
        if not a.type.dtype.is_float:
            a, b = a.cast(F64), b.cast(F64)
        return a.arithmetic(DIV, b, swapped)

    def counted(self) -> Self:
        """Bools as 8-bit integers, in which NumPy divides them."""
        return self.cast(I8) if self.type.dtype == BOOL else self

    def __floordiv__(self, other: Any) -> Self:
        return self.floor_divided(*self.alike(other))

    def __rfloordiv__(self, other: Any) -> Self:
        return self.floor_divided(*self.alike(other)[::-1])

    def floor_divided(self, a: Self, b: Self) -> Self:
        """The quotient rounded down; integer division by 0 is machine-dependent."""
        a, b = a.counted(), b.counted()
        if a.type.dtype.is_float:
            return (a / b).result(Floor(), a / b)
        return (a - a % b).arithmetic(DIV, b)

    def __mod__(self, other: Any) -> Self:
        return self.counted().combined(Mod(), other)

    def __rmod__(self, other: Any) -> Self:
        return self.counted().combined(Mod(), other, True)

    def __pow__(self, other: Any) -> Self:
        if is_number(other) and self.type.dtype.is_float:
            simple = self._simple_power(other)
            if simple is not None:
                return simple
        return self.counted().arithmetic(Pow(), other)

    def __rpow__(self, other: Any) -> Self:
        return self.counted().arithmetic(Pow(), other, True)

    def _simple_power(self, exponent: float) -> Self | None:
        if exponent == 2:
            return self * self
        if exponent == 3:
            return self * self * self
        if exponent == 0.5:
            return self.result(Sqrt(), self)
        if exponent == -1:
            return self.result(Reciprocal(), self)
        return self if exponent == 1 else None

    def __matmul__(self, other: Any) -> Self:
        a, b = self.alike(other)
        return a.product(a, b)

    def __rmatmul__(self, other: Any) -> Self:
        a, b = self.alike(other)
        return a.product(b, a)

    def product(self, a: Self, b: Self) -> Self:
        """The matrix product; a vector is a row at the left and a column at the right."""
        if not a.ndim or not b.ndim:
            message = "matmul needs operands with axes, not a scalar"
            raise ModelError(message, callers_line(), "use *")
        left = a if a.ndim > 1 else a.result(Reshape((1, *a.shape)), a)
        right = b if b.ndim > 1 else b.result(Reshape((*b.shape, 1)), b)
        result = left.result(MatMul(), left, right)
        shape = list(result.shape)
        if b.ndim == 1:
            del shape[-1]
        if a.ndim == 1:
            del shape[len(result.shape) - 2]
        return result if a.ndim > 1 < b.ndim else result.result(Reshape(tuple(shape)), result)

    def __neg__(self) -> Self:
        return self.of_elements(NEG)

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Self:
        return self.of_elements(ABS)

    def __invert__(self) -> Self:
        return self.result(Not() if self.type.dtype == BOOL else BitwiseNot(), self)

    def logical(self, op: Op, other: Any, swapped: bool = False) -> Self:
        """Logical op of bools, or bitwise op of integers."""
        a, b = self.alike(other)
        pair = (b, a) if swapped else (a, b)
        return a.result(op if a.type.dtype == BOOL else BITS[op], *pair)

    def __and__(self, other: Any) -> Self:
        return self.logical(And(), other)

    def __rand__(self, other: Any) -> Self:
        return self.logical(And(), other, True)

    def __or__(self, other: Any) -> Self:
        return self.logical(Or(), other)

    def __ror__(self, other: Any) -> Self:
        return self.logical(Or(), other, True)

    def __xor__(self, other: Any) -> Self:
        return self.logical(Xor(), other)

    def __rxor__(self, other: Any) -> Self:
        return self.logical(Xor(), other, True)

    def __lshift__(self, other: Any) -> Self:
        return self.combined(BitShift(True), other)

    def __rshift__(self, other: Any) -> Self:
        return self.combined(BitShift(False), other)

    def __lt__(self, other: Any) -> Self:
        return self.compared(Less(), other)

    def __le__(self, other: Any) -> Self:
        return self.compared(LessOrEqual(), other)

    def __gt__(self, other: Any) -> Self:
        return self.compared(Greater(), other)

    def __ge__(self, other: Any) -> Self:
        return self.compared(GreaterOrEqual(), other)

    def __eq__(self, other: Any) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.compared(Equal(), other)

    def __ne__(self, other: Any) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.compared(NotEqual(), other)

    __hash__ = Lazy.__hash__

    def compared(self, op: Op, other: Any) -> Self:
        """A comparison; bools are compared as numbers."""
        if is_complex(other):
            return self.as_complex().compared(op, other)
        a, b = self.alike(other)
        if a.type.dtype == BOOL and not isinstance(op, Equal | NotEqual):
            a, b = a.cast(I64), b.cast(I64)
        return a.result(op, a, b)
