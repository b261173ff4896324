"""Loop-level arithmetic built with operators; common subexpressions are bound by ``Let``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from modelcc.ir.index import Index, Sym
from modelcc.ir.loop import (
    Alloc,
    Assign,
    Bitcast,
    Buffer,
    Const,
    Convert,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    MulAdd,
    Reduce,
    Register,
    ScalarCall,
    Select,
    Splat,
    Stmt,
    Store,
    Var,
    VectorGather,
    While,
)
from modelcc.ir.loop_traversal import names_used, statements
from modelcc.ir.operators import Arithmetic, Plain
from modelcc.ir.types import BOOL, F32, F64, I32, I64, U32, U64, DType


@dataclass(frozen=True, eq=False)
class Term(Arithmetic):
    """An expression under construction; Python numbers take its dtype and lanes."""

    expr: Expr

    @property
    def dtype(self) -> DType:
        return self.expr.dtype

    @property
    def lanes(self) -> int:
        return self.expr.lanes

    def number(self, value: Plain) -> Term:
        """A constant of this value's dtype and lanes."""
        return Term(Const(value, self.dtype, self.lanes))

    def call(self, function: str, *others: Term | Plain) -> Term:
        """``function`` of this value and others."""
        return self.applied(function, self, *others)

    def equal(self, other: Term | Plain) -> Term:
        """``self == other``, a bool."""
        return self.applied("eq", self, other)

    def differs(self, other: Term | Plain) -> Term:
        """``self != other``, a bool."""
        return self.applied("ne", self, other)

    def times(self, factor: Term | Plain, plus: Term | Plain) -> Term:
        """``self * factor + plus`` with one rounding where the target can."""
        return Term(MulAdd(self.expr, self._value(factor).expr, self._value(plus).expr))

    def at_least(self, low: Plain) -> Term:
        """``max(low, self)``; NaN stays NaN."""
        return self.applied("max", low, self)

    def at_most(self, high: Plain) -> Term:
        """``min(high, self)``; NaN stays NaN."""
        return self.applied("min", high, self)

    def where(self, condition: Term, other: Term | Plain) -> Term:
        """This value where ``condition`` holds, else ``other``."""
        return Term(Select(condition.expr, self.expr, self._value(other).expr))

    def to(self, dtype: DType) -> Term:
        """The value converted."""
        return self if dtype == self.dtype else Term(Convert(self.expr, dtype))

    @property
    def bits(self) -> Term:
        """The bits as a signed integer."""
        return Term(Bitcast(self.expr, I32 if self.dtype.bits == 32 else I64))

    @property
    def unsigned_bits(self) -> Term:
        """The bits as an unsigned integer."""
        return Term(Bitcast(self.expr, U32 if self.dtype.bits == 32 else U64))

    @property
    def as_float(self) -> Term:
        """The float with these bits."""
        return Term(Bitcast(self.expr, F32 if self.dtype.bits == 32 else F64))

    def _value(self, other: Term | Plain) -> Term:
        return other if isinstance(other, Term) else self.number(other)

    def applied(self, function: str, *args: Term | Plain) -> Term:
        exprs = tuple(self._value(a).expr for a in args)
        is_test = function in ("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf")
        return Term(ScalarCall(function, exprs, BOOL if is_test else self.dtype, self.lanes))


@dataclass
class CodeBuilder:
    """Collects statements, with names that are unique in the function.

    Without ``arrays``, dynamic indexing is replaced by selects: GPUs cannot index registers, and
    keep such arrays in thread-local memory.
    """

    prefix: str
    arrays: bool = True
    count: int = 0
    statements: list[Stmt] = field(default_factory=list[Stmt])

    def let(self, value: Term) -> Term:
        """Binds the value to a name, for several uses."""
        if isinstance(value.expr, Var | Const):
            return value
        name = self._name()
        self.statements.append(Let(name, value.expr))
        return Term(Var(name, value.dtype, value.lanes))

    def corrected(self, usual: Term, rare: Term, correct: Callable[[], Term]) -> Term:
        """``usual``, or the result of ``correct`` in lanes where the bool ``rare`` holds.

        The statements that ``correct`` adds run only if there is such a lane.
        """
        register = Var(self._name(), usual.dtype, usual.lanes)
        self.statements.append(Register(register.name, usual.expr))
        any_lane = rare.expr if rare.lanes == 1 else Reduce("or", rare.expr)
        outside, self.statements = self.statements, []
        corrected = correct().where(rare, Term(register))
        self.statements.append(Assign(register.name, corrected.expr))
        self.statements = [*outside, If(any_lane, self.take(), rare=True)]
        return Term(register)

    def corrected_each(
        self, usual: Term, rare: Term, x: Term, correct: Callable[[Term], Term]
    ) -> Term:
        """``usual``, or in lanes where the bool ``rare`` holds, the result of ``correct`` for a
        scalar ``x``, not 0 there: lanes of equal values together, in a loop without arrays.
        """
        if x.lanes == 1:
            return self.corrected(usual, rare, lambda: correct(x))
        register = Var(self._name(), usual.dtype, usual.lanes)
        self.statements.append(Register(register.name, usual.expr))
        outside, self.statements = self.statements, []
        bits = Var(self._name(), U32 if x.dtype.bits == 32 else U64, x.lanes)
        left = Term(bits)
        largest = Term(Reduce("max", left.expr))
        value = self.let(largest)
        own = self.let(left.equal(Term(Splat(value.expr, x.lanes))))
        corrected = Term(Splat(correct(self.let(value.as_float)).expr, x.lanes))
        self.statements += [
            Assign(register.name, corrected.where(own, Term(register)).expr),
            Assign(bits.name, left.number(0).where(own, left).expr),
        ]
        loop = While(largest.differs(0).expr, self.take())
        begin = Register(bits.name, x.unsigned_bits.where(rare, 0).expr)
        any_lane = Reduce("or", rare.expr)
        self.statements = [*outside, If(any_lane, (begin, loop), rare=True)]
        return Term(register)

    def table(self, words: Sequence[int], dtype: DType) -> Callable[[Term, int], list[Term]]:
        """A constant table, as a function that loads ``words[at : at + count]`` for a scalar
        ``at``."""
        if not self.arrays:
            constants = [Term(Const(w, dtype)) for w in words]
            return lambda at, count: self._selected(constants, at, count)
        table = self._local(dtype, len(words))
        self.statements += [Store(table, place, Const(w, dtype)) for place, w in enumerate(words)]

        def read(at: Term, count: int) -> list[Term]:
            return [Term(VectorGather(table, k, at.expr, dtype)) for k in range(count)]

        return read

    def _selected(self, words: list[Term], at: Term, count: int) -> list[Term]:
        """``words[at : at + count]`` by conditional shifts by powers of two, the largest first."""
        for power in reversed(range((len(words) - count).bit_length())):
            moves, far = self.let((at & (1 << power)).differs(0)), words[1 << power :]
            kept = words[: count + (1 << power) - 1]
            chosen = [self.let(w.where(moves, near)) for w, near in zip(far, kept, strict=False)]
            words = [*chosen, *kept[len(chosen) :]]
        return words

    def each_lane(self, x: Term, compute: Callable[[Term], Sequence[Term]]) -> list[Term]:
        """Results of ``compute`` on scalars, for the lanes of ``x`` one after another in a loop."""
        given, lane = self._local(x.dtype, x.lanes), self._name()
        self.statements.append(Store(given, 0, x.expr))
        outside, self.statements = self.statements, []
        results = [self.let(v) for v in compute(Term(Load(given, Sym(lane), x.dtype)))]
        body, self.statements = self.take(), outside
        buffers = [self._local(v.dtype, x.lanes) for v in results]
        stores = (Store(b, Sym(lane), v.expr) for b, v in zip(buffers, results, strict=True))
        self.statements.append(For(lane, 0, x.lanes, (*body, *stores)))
        pairs = zip(buffers, results, strict=True)
        return [self.let(Term(Load(b, 0, v.dtype, x.lanes))) for b, v in pairs]

    def repeated(self, start: Term, times: int, step: Callable[[Term, Index], Term]) -> Term:
        """``start`` after ``times`` steps, functions of the previous value and the step number."""
        register, number = Var(self._name(), start.dtype, start.lanes), self._name()
        self.statements.append(Register(register.name, start.expr))
        outside, self.statements = self.statements, []
        after = step(Term(register), Sym(number))
        self.statements.append(Assign(register.name, after.expr))
        self.statements = [*outside, For(number, 0, times, self.take())]
        return Term(register)

    def take(self) -> tuple[Stmt, ...]:
        """The statements collected since the last call."""
        taken, self.statements = tuple(self.statements), []
        return taken

    def _local(self, dtype: DType, size: int) -> str:
        name = self._name()
        self.statements.append(Alloc(Buffer(name, dtype, size, "local")))
        return name

    def _name(self) -> str:
        self.count += 1
        return f"{self.prefix}{self.count - 1}"


def builder_for(function: Function, prefix: str, arrays: bool = True) -> CodeBuilder:
    """A builder for statements of ``function``, whose own names do not start with ``prefix``."""
    taken = set(names_used(function.body)) | {
        s.name for s in statements(function.body) if isinstance(s, Let | Register)
    }
    while any(name.startswith(prefix) for name in taken):
        prefix = f"{prefix}."
    return CodeBuilder(prefix, arrays)


def polynomial(x: Term, coefficients: Sequence[float]) -> Term:
    """``c[0] + c[1] x + c[2] x^2 + …`` by Horner's rule."""
    result = x.number(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = result.times(x, c)
    return result


def with_sign_of(magnitude: Term, sign: Term) -> Term:
    """The non-negative ``magnitude`` with the sign bit of ``sign``."""
    top = -(1 << (magnitude.dtype.bits - 1))
    return (magnitude.bits | (sign.bits & top)).as_float
