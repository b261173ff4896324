"""Loop-level arithmetic written with operators, shared parts bound by ``Let``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from modelcc.ir.loop import Bitcast, Call, Choose, Const, Convert, Expr, Let, MulAdd, Var
from modelcc.ir.types import BOOL, F32, F64, I32, I64, U32, U64, DType

Number = float | int


@dataclass(frozen=True, eq=False)
class Value:
    """An expression under construction; Python numbers take its dtype and lanes."""

    expr: Expr

    @property
    def dtype(self) -> DType:
        return self.expr.dtype

    @property
    def lanes(self) -> int:
        return self.expr.lanes

    def number(self, value: Number) -> Value:
        """A constant like this value."""
        return Value(Const(value, self.dtype, self.lanes))

    def call(self, function: str, *others: Value | Number) -> Value:
        """``function`` of this value and others."""
        return self._apply(function, self, *others)

    def __add__(self, other: Value | Number) -> Value:
        return self._apply("add", self, other)

    def __radd__(self, other: Number) -> Value:
        return self._apply("add", other, self)

    def __sub__(self, other: Value | Number) -> Value:
        return self._apply("sub", self, other)

    def __rsub__(self, other: Number) -> Value:
        return self._apply("sub", other, self)

    def __mul__(self, other: Value | Number) -> Value:
        return self._apply("mul", self, other)

    def __rmul__(self, other: Number) -> Value:
        return self._apply("mul", other, self)

    def __truediv__(self, other: Value | Number) -> Value:
        return self._apply("div", self, other)

    def __rtruediv__(self, other: Number) -> Value:
        return self._apply("div", other, self)

    def __neg__(self) -> Value:
        return self._apply("neg", self)

    def __and__(self, other: Value | Number) -> Value:
        return self._apply("and", self, other)

    def __or__(self, other: Value | Number) -> Value:
        return self._apply("or", self, other)

    def __xor__(self, other: Value | Number) -> Value:
        return self._apply("xor", self, other)

    def __lshift__(self, other: Number) -> Value:
        return self._apply("shl", self, other)

    def __rshift__(self, other: Number) -> Value:
        return self._apply("shr", self, other)

    def __lt__(self, other: Value | Number) -> Value:
        return self._apply("lt", self, other)

    def __gt__(self, other: Value | Number) -> Value:
        return self._apply("gt", self, other)

    def equal(self, other: Value | Number) -> Value:
        """``self == other``, a bool."""
        return self._apply("eq", self, other)

    def differs(self, other: Value | Number) -> Value:
        """``self != other``, a bool."""
        return self._apply("ne", self, other)

    def times(self, factor: Value | Number, plus: Value | Number) -> Value:
        """``self * factor + plus`` with one rounding where the target can."""
        return Value(MulAdd(self.expr, self._value(factor).expr, self._value(plus).expr))

    def at_least(self, low: Number) -> Value:
        """``max(low, self)``; NaN stays NaN."""
        return self._apply("max", low, self)

    def at_most(self, high: Number) -> Value:
        """``min(high, self)``; NaN stays NaN."""
        return self._apply("min", high, self)

    def where(self, condition: Value, other: Value | Number) -> Value:
        """This value where ``condition`` holds, else ``other``."""
        return Value(Choose(condition.expr, self.expr, self._value(other).expr))

    def to(self, dtype: DType) -> Value:
        """The value converted."""
        return self if dtype == self.dtype else Value(Convert(self.expr, dtype))

    @property
    def bits(self) -> Value:
        """The bits as a signed integer."""
        return Value(Bitcast(self.expr, I32 if self.dtype.bits == 32 else I64))

    @property
    def unsigned_bits(self) -> Value:
        """The bits as an unsigned integer."""
        return Value(Bitcast(self.expr, U32 if self.dtype.bits == 32 else U64))

    @property
    def as_float(self) -> Value:
        """The float with these bits."""
        return Value(Bitcast(self.expr, F32 if self.dtype.bits == 32 else F64))

    def _value(self, other: Value | Number) -> Value:
        return other if isinstance(other, Value) else self.number(other)

    def _apply(self, function: str, *args: Value | Number) -> Value:
        exprs = tuple(self._value(a).expr for a in args)
        is_test = function in ("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf")
        return Value(Call(function, exprs, BOOL if is_test else self.dtype, self.lanes))


@dataclass
class Builder:
    """Collects ``Let`` statements under names nothing else in the function has."""

    prefix: str
    count: int = 0
    lets: list[Let] = field(default_factory=list[Let])

    def let(self, value: Value) -> Value:
        """The value under a name, to be used more than once."""
        if isinstance(value.expr, Var | Const):
            return value
        self.lets.append(Let(f"{self.prefix}{self.count}", value.expr))
        self.count += 1
        return Value(Var(self.lets[-1].name, value.dtype, value.lanes))

    def take(self) -> tuple[Let, ...]:
        """The statements collected since the last call."""
        taken, self.lets = tuple(self.lets), []
        return taken


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """``c[0] + c[1] x + c[2] x^2 + …`` by Horner's rule."""
    result = x.number(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = result.times(x, c)
    return result


def with_sign_of(magnitude: Value, sign: Value) -> Value:
    """The non-negative ``magnitude`` with the sign bit of ``sign``."""
    top = -(1 << (magnitude.dtype.bits - 1))
    return (magnitude.bits | (sign.bits & top)).as_float
