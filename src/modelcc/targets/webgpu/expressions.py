"""Loop-level expressions as WGSL expressions, one lane at a time: shaders are vectorised across
threads, so a vector is as many values as it has lanes."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.condition import Condition
from modelcc.ir.index import Atom, Index, Sym
from modelcc.ir.loop import (
    Bitcast,
    Const,
    Convert,
    Expr,
    IndexOf,
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
from modelcc.ir.types import F32, I32, I64, DType
from modelcc.targets.c.code import CExpression, Code
from modelcc.targets.c.indices import IndexCode
from modelcc.targets.webgpu.arithmetic import bitcast, call, convert, muladd, select
from modelcc.targets.webgpu.memory import ShaderMemory
from modelcc.targets.webgpu.values import PAIR, constant, value_type


class WgslIndices:
    """The names of index functions in WGSL."""

    def index(self, name: str) -> str:
        """The function's name."""
        return {"mcc_min": "min", "mcc_max": "max"}.get(name, name)


class WgslIndexCode(IndexCode):
    """Index expressions as arithmetic of 32 bits; ``NotImplementedError`` for numbers so large that
    a sum with another one might not fit."""

    def text(self, e: Index) -> str:
        if isinstance(e, int):
            numbers = [e]
        else:
            numbers = [] if isinstance(e, Atom) else [e.const, *(c for c, _ in e.terms.values())]
        if any(abs(number) >= FARTHEST for number in numbers):
            raise NotImplementedError(f"WGSL computes places in 32 bits, and {e} may have more")
        return super().text(e)


FARTHEST = 1 << 30
"""Less than this is each number in the places of a shader."""


class ExpressionCode:
    """Prints expressions with the names visible in ``code``, and memory in ``rooms``."""

    def __init__(
        self, code: Code, rooms: dict[str, ShaderMemory], cancelled: frozenset[Expr]
    ) -> None:
        self._code = code
        self._rooms = rooms
        self._cancelled = cancelled
        self.index = WgslIndexCode(code, WgslIndices())

    def operand(self, e: Expr, lane: int = 0) -> CExpression:
        """A lane of the expression."""
        match e:
            case Const():
                text = constant(e.value, e.dtype)
                return CExpression(text, not text.startswith("-"))
            case Var():
                return self._code.value(lane_name(e.name, lane)).operand
            case IndexOf(Sym(name)) if e.dtype == I64 and self._has_whole(name):
                return self._code.value(whole_name(name)).operand
            case IndexOf():
                at = CExpression(self.index.text(e.index + lane * e.step), False)
                return convert(at, I32, e.dtype)
            case Load():
                return self._load(e, lane)
            case VectorGather():
                at = f"{self.index.inner(e.offset)} + {self.offset(e.offsets, lane)}"
                return self._active(self._rooms[e.buffer].load(at), e.dtype, e.active, lane)
            case ScalarCall():
                args = [self.operand(a, lane) for a in e.args]
                if e in self._cancelled:
                    args[-1] = _hidden(args[-1])
                return _kept(call(e.function, args, e.args[0].dtype), e.function, e.args)
            case MulAdd():
                a, b, c = (self.operand(x, lane) for x in (e.a, e.b, e.c))
                return _kept(muladd(a, b, c, e.dtype), "add", (e.c,))
            case Select():
                parts = (self.operand(x, lane) for x in (e.condition, e.then, e.other))
                return select(*parts)
            case _:
                return self._shaping_operand(e, lane)

    def _has_whole(self, symbol: str) -> bool:
        return any(whole_name(symbol) in scope.values for scope in self._code.scopes)

    def offset(self, e: Expr, lane: int) -> str:
        """A number from memory as an index."""
        value = self.operand(e, lane)
        return convert(value, e.dtype, I32).inner

    def condition(self, conditions: tuple[Condition, ...]) -> CExpression:
        """A bool: all index conditions hold."""
        parts = [
            f"({self.index.text(c.left)} {c.comparison} {self.index.text(c.right)})"
            for c in conditions
        ]
        return CExpression(" && ".join(parts), len(parts) == 1) if parts else CExpression("true")

    def active(self, active: Index | None, lane: int) -> str | None:
        """Whether a lane is active; None if it is known to be."""
        if active is None or self.index.at_least(active, lane + 1):
            return None
        return f"({lane} < {self.index.text(active)})"

    def _shaping_operand(self, e: Expr, lane: int) -> CExpression:
        match e:
            case Convert():
                return convert(self.operand(e.value, lane), e.value.dtype, e.dtype)
            case Bitcast():
                return bitcast(self.operand(e.value, lane), e.value.dtype, e.dtype)
            case Splat():
                return self.operand(e.value)
            case Shuffle():
                from_b, place = divmod(e.places[lane], e.a.lanes)
                return self.operand(e.b if from_b else e.a, place)
            case Reduce():
                return self._reduce(e)
            case Predicate():
                return self.condition(e.conditions)
            case _:
                raise TypeError(f"no WGSL form of {type(e).__name__}")

    def _load(self, e: Load, lane: int) -> CExpression:
        at = self.index.text(e.offset + lane * e.stride)
        return self._active(self._rooms[e.buffer].load(at), e.dtype, e.active, lane)

    def _active(
        self, value: CExpression, dtype: DType, active: Index | None, lane: int
    ) -> CExpression:
        condition = self.active(active, lane)
        if condition is None:
            return value
        return select(CExpression(condition), value, CExpression(constant(0, dtype)))

    def _reduce(self, e: Reduce) -> CExpression:
        """A tree: the lower half of lanes is combined with the upper one, until one is left."""
        values = [self.operand(e.value, lane) for lane in range(e.value.lanes)]
        while len(values) > 1:
            half = (len(values) + 1) // 2
            pairs = zip(values[:half], values[half:], strict=False)
            odd = values[half - 1 : half] if len(values) % 2 else []
            values = [call(e.function, pair, e.dtype) for pair in pairs] + odd
        return values[0]


def _kept(sum_: CExpression, function: str, operands: Sequence[Expr]) -> CExpression:
    """``sum_``, hidden from compilers if it adds a large number to round the rest: they may cancel
    that number as if nothing was rounded."""
    rounds = (
        isinstance(e, Const) and e.dtype == F32 and _ROUNDING <= abs(e.value) < float("inf")
        for e in operands
    )
    if function not in ("add", "sub") or not any(rounds):
        return sum_
    return _hidden(sum_)


def _hidden(value: CExpression) -> CExpression:
    """An f32 of which compilers know nothing."""
    return CExpression(f"f32_kept({value.text})")


_ROUNDING = 1 << 22


def lane_name(name: str, lane: int) -> str:
    """The name of a lane of a value or register."""
    return name if lane == 0 else f"{name}.{lane}"


def whole_name(symbol: str) -> str:
    """The name of all 64 bits of a number from data, of which an index has the nearest 32."""
    return f"{symbol} whole"


def index_value(value: CExpression, dtype: DType) -> str:
    """A number as a 32-bit index.

    A 64-bit number becomes the nearest one that is 65,536 away from the ends of 32 bits: out of
    range of any memory if the number is, with and without small numbers added.
    """
    if value_type(dtype) == PAIR:
        return f"i32_near({value.inner})"
    return convert(value, dtype, I32).text
