"""Loop-level expressions as C expressions."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.index import Index
from modelcc.ir.loop import (
    Bitcast,
    Const,
    Convert,
    Expr,
    IndexOf,
    Intrinsic,
    Load,
    MulAdd,
    Predicate,
    Reduce,
    ScalarCall,
    Select,
    Shuffle,
    Splat,
    Var,
    VectorGather,
)
from modelcc.ir.tensor import Condition
from modelcc.ir.types import BOOL, I64, DType
from modelcc.targets.c.arithmetic import ArithmeticCode
from modelcc.targets.c.code import CExpression, Code, Named
from modelcc.targets.c.indices import IndexCode
from modelcc.targets.c.intrinsics import IntrinsicFunctions
from modelcc.targets.c.memory import MemoryCode
from modelcc.targets.c.prelude import Prelude, each


class ExpressionCode:
    """Prints expressions with the names visible in ``code``."""

    def __init__(self, code: Code, prelude: Prelude) -> None:
        self._code = code
        self._prelude = prelude
        self.index = IndexCode(code, prelude)
        self.arithmetic = ArithmeticCode(prelude)
        self.memory = MemoryCode(code, prelude, self.index, self.arithmetic)
        self._intrinsics = IntrinsicFunctions(prelude, self._alone)

    def operand(self, e: Expr) -> CExpression:
        """The expression, whose type is :meth:`type`."""
        match e:
            case Const():
                return self.arithmetic.constant(e.value, e.dtype, e.lanes)
            case Var():
                return self._code.value(e.name).operand
            case IndexOf():
                return self._index_of(e)
            case Load():
                return self.memory.load(e.buffer, e.offset, e.lanes, e.stride, e.active)
            case VectorGather():
                at = self.operand(e.offsets)
                return self.memory.gather(
                    e.buffer, e.offset, at, e.offsets.dtype, e.lanes, e.active
                )
            case ScalarCall():
                args = tuple(self.operand(a) for a in e.args)
                return self.arithmetic.call(e.function, args, e.args[0].dtype, e.lanes)
            case MulAdd():
                a, b, c = self.operand(e.a), self.operand(e.b), self.operand(e.c)
                return self.arithmetic.muladd(a, b, c, e.dtype, e.lanes)
            case Intrinsic():
                return CExpression(self._intrinsics.call(e, [self.operand(a).text for a in e.args]))
            case _:
                return self._shaping_operand(e)

    def type(self, e: Expr, operand: CExpression) -> str:
        """C type of an expression."""
        return self.arithmetic.type(e.dtype, e.lanes, operand.mask)

    def condition(self, conditions: tuple[Condition, ...]) -> CExpression:
        """A bool: the conjunction of index conditions."""
        parts = [self._comparison(c.left, c.comparison, c.right) for c in conditions]
        return CExpression(" && ".join(parts), False) if parts else CExpression("true")

    def _comparison(self, left: Index, comparison: str, right: Index) -> str:
        return f"{self.index.text(left)} {comparison} {self.index.text(right)}"

    def _shaping_operand(self, e: Expr) -> CExpression:
        match e:
            case Select():
                condition = self.operand(e.condition)
                then, other = self.operand(e.then), self.operand(e.other)
                return self.arithmetic.select(condition, then, other, e.dtype, e.lanes)
            case Convert():
                value = self.operand(e.value)
                return self.arithmetic.convert(value, e.value.dtype, e.dtype, e.lanes)
            case Bitcast():
                value = self.operand(e.value)
                return self.arithmetic.bitcast(value, e.value.dtype, e.dtype, e.lanes)
            case Splat():
                return self.arithmetic.splat(self.operand(e.value), e.dtype, e.lanes)
            case Shuffle():
                return self._shuffle(e)
            case Reduce():
                return self._reduce(e)
            case Predicate():
                return self.condition(e.conditions)
            case _:
                raise TypeError(f"no C form of {type(e).__name__}")

    def _alone(self, e: Expr, parameters: Sequence[Var]) -> str:
        """An expression whose only variables are parameters."""
        code = Code()
        for v in parameters:
            type_ = self.arithmetic.type(v.dtype, v.lanes)
            code.scope.values[v.name] = Named(CExpression(v.name), type_)
        return ExpressionCode(code, self._prelude).operand(e).text

    def _shuffle(self, e: Shuffle) -> CExpression:
        a, b = self.operand(e.a), self.operand(e.b)
        if e.lanes == 1:
            from_b, place = divmod(e.places[0], e.a.lanes)
            return CExpression(f"{(b if from_b else a).inner}[{place}]")
        places = ", ".join(map(str, e.places))
        return CExpression(f"__builtin_shufflevector({a.inner}, {b.inner}, {places})")

    def _index_of(self, e: IndexOf) -> CExpression:
        at = CExpression(self.index.text(e.index), False)
        if e.lanes == 1:
            return self.arithmetic.convert(at, I64, e.dtype, 1)
        own = e.dtype if e.dtype.is_integer else I64
        result = self.arithmetic.splat(self.arithmetic.convert(at, I64, own, 1), own, e.lanes)
        if e.step:
            v = self._prelude.vector(own, e.lanes)
            steps = CExpression(f"({v}){each(e.lanes, lambda lane: str(lane * e.step))}")
            result = self.arithmetic.call("add", (result, steps), own, e.lanes)
        return self.arithmetic.convert(result, own, e.dtype, e.lanes)

    def _reduce(self, e: Reduce) -> CExpression:
        value, lanes = self.operand(e.value), e.value.lanes
        if lanes == 1:
            return value
        name = self._fold_function(e.function, e.dtype, lanes, value.mask)
        result = CExpression(f"{name}({value.text})")
        return CExpression(f"{result.text} != 0", False) if e.dtype == BOOL else result

    def _fold_function(self, function: str, dtype: DType, lanes: int, mask: int) -> str:
        """A reduction that combines the lower and the upper half until one lane is left."""
        v = self.arithmetic.type(dtype, lanes, mask)
        half = lanes // 2
        low, high = (
            CExpression(f"__builtin_shufflevector(v, v, {', '.join(map(str, chosen))})", True, mask)
            for chosen in (range(half), range(half, lanes))
        )
        if half == 1:
            ends = CExpression("v[0]"), CExpression("v[1]")
            scalar = "bool" if mask else self.arithmetic.type(dtype, 1)
            text = self.arithmetic.call(function, ends, dtype, 1).text
        else:
            scalar = "bool" if mask else self.arithmetic.type(dtype, 1)
            rest = self._fold_function(function, dtype, half, mask)
            text = f"{rest}({self.arithmetic.call(function, (low, high), dtype, half).text})"
        return self._prelude.function(
            f"{v}_fold_{function}", scalar, f"{v} v", lambda: f"return {text};"
        )
