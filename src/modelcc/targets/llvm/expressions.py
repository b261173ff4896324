"""Loop-level expressions as LLVM operands."""

from __future__ import annotations

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
from modelcc.ir.types import BOOL, F32, I64, DType
from modelcc.targets.llvm.arithmetic import ArithmeticCode
from modelcc.targets.llvm.code import Code, LlvmValue
from modelcc.targets.llvm.halves import HALVES
from modelcc.targets.llvm.indices import IndexCode
from modelcc.targets.llvm.intrinsics import IntrinsicCode
from modelcc.targets.llvm.memory import MemoryCode
from modelcc.targets.llvm.values import constant, integers, mangled, scalar_type, value_type

_PREDICATES = {"<": "slt", "<=": "sle", "==": "eq", "!=": "ne", ">": "sgt", ">=": "sge"}


class ExpressionCode:
    """Emits expressions into ``code``."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self.index = IndexCode(code)
        self.memory = MemoryCode(code, self.index)
        self.arithmetic = ArithmeticCode(code)
        self.intrinsics = IntrinsicCode(code, self.memory)

    def operand(self, e: Expr) -> str:
        """An operand of type ``value_type(e.dtype, e.lanes)``."""
        match e:
            case Const():
                return constant(e.value, e.dtype, e.lanes)
            case Var():
                return self._read(self.value(e.name))
            case IndexOf():
                return self._index_of(e)
            case Load():
                return self.memory.load(e.buffer, e.offset, e.lanes, e.stride, e.active)
            case VectorGather():
                offsets = self.operand(e.offsets)
                return self.memory.gather(
                    e.buffer, e.offset, offsets, e.offsets.dtype, e.lanes, e.active
                )
            case ScalarCall():
                args = tuple(self.operand(a) for a in e.args)
                return self.arithmetic.call(e.function, args, e.args[0].dtype, e.lanes)
            case MulAdd():
                a, b, c = self.operand(e.a), self.operand(e.b), self.operand(e.c)
                return self.arithmetic.muladd(a, b, c, e.dtype, e.lanes)
            case Intrinsic():
                return self.intrinsics.operand(e, [self.operand(a) for a in e.args])
            case _:
                return self._shaping_operand(e)

    def value(self, name: str) -> LlvmValue:
        """The LLVM form of the ``Let`` or register ``name``."""
        for scope in reversed(self._code.scopes):
            if name in scope.values:
                return scope.values[name]
        raise KeyError(f"value '{name}' is not defined here")

    def condition(self, conditions: tuple[Condition, ...]) -> str:
        """An ``i1``: the conjunction of index conditions."""
        result = ""
        for c in conditions:
            left, right = self.index.operand(c.left), self.index.operand(c.right)
            one = self._code.emit(f"icmp {_PREDICATES[c.comparison]} i64 {left}, {right}", "c")
            result = self._code.emit(f"and i1 {result}, {one}", "c") if result else one
        return result or "true"

    def _shaping_operand(self, e: Expr) -> str:
        match e:
            case Select():
                condition = self.operand(e.condition)
                then, other = self.operand(e.then), self.operand(e.other)
                return self.arithmetic.select(condition, then, other, e.dtype, e.lanes)
            case Convert(value=ScalarCall(function="round", args=(x,), dtype=dtype)) if (
                dtype == F32
                and e.dtype.is_integer
                and e.dtype.bits < 32
                and self._code.groups is None
            ):
                return self.arithmetic.rounded(self.operand(x), e.dtype, e.lanes)
            case Convert():
                return self.arithmetic.convert(
                    self.operand(e.value), e.value.dtype, e.dtype, e.lanes
                )
            case Bitcast():
                return self.arithmetic.bitcast(
                    self.operand(e.value), e.value.dtype, e.dtype, e.lanes
                )
            case Splat():
                return self._splat(e)
            case Shuffle():
                return self._shuffle(e)
            case Reduce():
                return self._reduce(e)
            case Predicate():
                return self.condition(e.conditions)
            case _:
                raise TypeError(f"no LLVM form of {type(e).__name__}")

    def _read(self, value: LlvmValue) -> str:
        if not value.is_register:
            return value.operand
        return self._code.emit(f"load {value.type}, ptr {value.operand}", "r")

    def _splat(self, e: Splat) -> str:
        if isinstance(e.value, Const):
            return constant(e.value.value, e.dtype, e.lanes)
        scalar = self.operand(e.value)
        return (
            scalar if e.lanes == 1 else self.memory.broadcast(scalar, value_type(e.dtype), e.lanes)
        )

    def _shuffle(self, e: Shuffle) -> str:
        type_ = value_type(e.dtype, e.a.lanes)
        if e.lanes == 1:
            ((from_b, place),) = (divmod(place, e.a.lanes) for place in e.places)
            vector = self.operand(e.b if from_b else e.a)
            return self._code.emit(f"extractelement {type_} {vector}, i64 {place}")
        operands = f"{type_} {self.operand(e.a)}, {type_} {self.operand(e.b)}"
        places = f"<{e.lanes} x i32> {integers(e.places, 'i32')}"
        return self._code.emit(f"shufflevector {operands}, {places}")

    def _index_of(self, e: IndexOf) -> str:
        operand = self.index.operand(e.index)
        if e.lanes == 1:
            return self.arithmetic.convert(operand, I64, e.dtype, 1)
        if e.dtype.is_integer and e.dtype != I64:
            operand = self.arithmetic.convert(operand, I64, e.dtype, 1)
        own = e.dtype if e.dtype.is_integer else I64
        element = scalar_type(own)
        result = self.memory.broadcast(operand, element, e.lanes)
        if e.step:
            steps = integers(tuple(lane * e.step for lane in range(e.lanes)), element)
            result = self._code.emit(f"add {value_type(own, e.lanes)} {result}, {steps}")
        return self.arithmetic.convert(result, own, e.dtype, e.lanes)

    def _reduce(self, e: Reduce) -> str:
        value, lanes = self.operand(e.value), e.value.lanes
        if lanes == 1:
            return value
        if e.function == "add" and e.dtype in HALVES:
            wide = self.arithmetic.convert(value, e.dtype, F32, lanes)
            return self.arithmetic.convert(self._sum(wide, F32, lanes), F32, e.dtype, 1)
        if e.function == "add" and e.dtype.is_float:
            return self._sum(value, e.dtype, lanes)
        if e.dtype == BOOL and e.function in ("and", "or", "xor"):
            type_ = value_type(BOOL, lanes)
            name = f"llvm.vector.reduce.{e.function}.{mangled('i1', lanes)}"
            return self._code.emit(
                f"call {self._code.intrinsic('i1', name, type_)}({type_} {value})"
            )
        return self._halved(e.function, value, e.dtype, lanes)

    def _sum(self, value: str, dtype: DType, lanes: int) -> str:
        type_, scalar = value_type(dtype, lanes), scalar_type(dtype)
        name = f"llvm.vector.reduce.fadd.{mangled(scalar, lanes)}"
        callee = self._code.intrinsic(scalar, name, f"{scalar}, {type_}")
        return self._code.emit(f"call reassoc {callee}({scalar} -0.0, {type_} {value})")

    def _halved(self, function: str, value: str, dtype: DType, lanes: int) -> str:
        """Combines the lower and the upper half until one lane is left."""
        while lanes > 1 and lanes % 2 == 0:
            lanes //= 2
            low = self._lanes(value, dtype, range(lanes), 2 * lanes)
            high = self._lanes(value, dtype, range(lanes, 2 * lanes), 2 * lanes)
            value = self.arithmetic.call(function, (low, high), dtype, lanes)
        if lanes == 1:
            return value
        result = self._lanes(value, dtype, range(1), lanes)
        for lane in range(1, lanes):
            one = self._lanes(value, dtype, range(lane, lane + 1), lanes)
            result = self.arithmetic.call(function, (result, one), dtype, 1)
        return result

    def _lanes(self, value: str, dtype: DType, chosen: range, lanes: int) -> str:
        type_ = value_type(dtype, lanes)
        if len(chosen) == 1:
            return self._code.emit(f"extractelement {type_} {value}, i64 {chosen[0]}")
        return self._code.emit(
            f"shufflevector {type_} {value}, {type_} poison, "
            f"<{len(chosen)} x i32> {integers(chosen, 'i32')}"
        )
