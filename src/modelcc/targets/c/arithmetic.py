"""Scalar functions and conversions as C expressions, lane by lane."""

from __future__ import annotations

from modelcc.ir.types import BOOL, F32, I32, DType
from modelcc.targets.c.code import CExpression
from modelcc.targets.c.halves import HalfFunctions
from modelcc.targets.c.integers import IntegerFunctions
from modelcc.targets.c.prelude import Prelude, each
from modelcc.targets.c.values import HALVES, constant, memory_type, prefix, scalar_type
from modelcc.targets.c.vectors import VectorFunctions

_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_OPERATOR = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_BUILTIN = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "nearbyint",
    "abs": "fabs",
}  # fmt: skip
_LOGIC = {"and": "&", "or": "|", "xor": "^", "ne": "^", "min": "&", "max": "|"}


class ArithmeticCode:
    """Spells arithmetic; inline functions come from ``prelude``."""

    def __init__(self, prelude: Prelude) -> None:
        self._prelude = prelude
        self._vectors = VectorFunctions(prelude)
        self._integers = IntegerFunctions(prelude)
        self._halves = HalfFunctions(prelude)

    def type(self, dtype: DType, lanes: int, mask: int = 0) -> str:
        """C type of a value; ``mask`` is the element width in bits of a vector of bools."""
        if lanes == 1:
            return scalar_type(dtype)
        return self._prelude.mask(mask, lanes) if mask else self._prelude.vector(dtype, lanes)

    def constant(self, value: float | int | bool, dtype: DType, lanes: int) -> CExpression:
        """The constant in every lane."""
        text = constant(value, dtype, self._prelude.dialect)
        return self.splat(CExpression(text, value >= 0), dtype, lanes)

    def splat(self, value: CExpression, dtype: DType, lanes: int) -> CExpression:
        """A scalar in every lane."""
        if lanes == 1:
            return value
        if dtype == BOOL:
            return CExpression(f"{self._vectors.splat_mask(8, lanes)}({value.text})", True, 8)
        return CExpression(f"{self._vectors.splat(dtype, lanes)}({value.text})")

    def call(
        self, function: str, args: tuple[CExpression, ...], dtype: DType, lanes: int
    ) -> CExpression:
        """``function`` of :mod:`modelcc.ir.scalar` on operands of ``dtype``.

        Raises ``NotImplementedError`` for elementary functions, which
        :mod:`modelcc.passes.loop.expand_math` turns into arithmetic.
        """
        if dtype in HALVES:
            return self._half_call(function, args, dtype, lanes)
        if dtype == BOOL:
            return self._logic(function, args, lanes)
        if function in _COMPARE:
            text = f"{args[0].inner} {_COMPARE[function]} {args[1].inner}"
            return self._comparison(text, dtype, lanes)
        if dtype.is_float:
            return self._float_call(function, args, dtype, lanes)
        name = self._integers.name(function, dtype, lanes)
        if name is None:
            raise _unexpanded(function, dtype)
        return CExpression(f"{name}({', '.join(a.text for a in args)})")

    def muladd(
        self, a: CExpression, b: CExpression, c: CExpression, dtype: DType, lanes: int
    ) -> CExpression:
        """``a*b + c``; the compiler fuses it if there is an instruction."""
        if dtype.is_float and dtype not in HALVES:
            return CExpression(f"{a.inner} * {b.inner} + {c.inner}", False)
        return self.call("add", (self.call("mul", (a, b), dtype, lanes), c), dtype, lanes)

    def select(
        self,
        condition: CExpression,
        then: CExpression,
        other: CExpression,
        dtype: DType,
        lanes: int,
    ) -> CExpression:
        """``then`` where ``condition`` else ``other``."""
        if lanes == 1:
            text = f"{condition.inner} ? {then.inner} : {other.inner}"
            return CExpression(text, False)
        if dtype == BOOL:
            bits = then.mask
            mask, other = self.remask(condition, bits, lanes), self.remask(other, bits, lanes)
            text = f"({mask.inner} & {then.inner}) | (~{mask.inner} & {other.inner})"
            return CExpression(text, False, bits)
        mask = self.remask(condition, 8 * dtype.bytes, lanes)
        name = self._vectors.select(dtype, lanes)
        return CExpression(f"{name}({mask.text}, {then.text}, {other.text})")

    def remask(self, value: CExpression, bits: int, lanes: int) -> CExpression:
        """A vector of masks converted to another width."""
        if lanes == 1 or value.mask == bits:
            return value
        name = self._prelude.mask(bits, lanes)
        return CExpression(f"__builtin_convertvector({value.text}, {name})", True, bits)

    # --- conversions

    def convert(self, value: CExpression, source: DType, target: DType, lanes: int) -> CExpression:
        """The value as another dtype; float to integer truncates, to bool compares with 0.

        Floats beyond a narrow integer's range are truncated to its lowest bits, as NumPy does.
        """
        if source == target:
            return value
        if source in HALVES:
            wide = CExpression(f"{self._halves.widen(source, lanes)}({value.text})")
            return self.convert(wide, F32, target, lanes)
        if target in HALVES:
            wide = self.convert(value, source, F32, lanes)
            return CExpression(f"{self._halves.narrow(target, lanes)}({wide.text})")
        if target == BOOL:
            return self.call("ne", (value, self.constant(0, source, lanes)), source, lanes)
        if source.is_float and target.is_integer and target.bits < 32:
            return self.convert(self.convert(value, source, I32, lanes), I32, target, lanes)
        if lanes == 1:
            return CExpression(f"({scalar_type(target)}){value.inner}")
        if source == BOOL:
            return self._numbers(value, target, lanes)
        name = self._prelude.vector(target, lanes)
        return CExpression(f"__builtin_convertvector({value.text}, {name})")

    def bitcast(self, value: CExpression, source: DType, target: DType, lanes: int) -> CExpression:
        """The same bits as another dtype of the same width."""
        if memory_type(source) == memory_type(target) or source == target:
            return value
        if lanes > 1:
            return CExpression(f"({self._prelude.vector(target, lanes)}){value.inner}")
        if source.is_integer and target.is_integer:
            return CExpression(f"({scalar_type(target)}){value.inner}")
        return CExpression(f"{self._prelude.bitcast(source, target)}({value.text})")

    def _numbers(self, value: CExpression, target: DType, lanes: int) -> CExpression:
        """A mask as integers 0 and 1."""
        bits = 8 * target.bytes
        ones = CExpression(f"-{self.remask(value, bits, lanes).inner}", False)
        if target.is_float:
            name = self._prelude.vector(target, lanes)
            return CExpression(f"__builtin_convertvector({ones.text}, {name})")
        return CExpression(f"({self._prelude.vector(target, lanes)})({ones.text})")

    # --- kinds of operands

    def _comparison(self, text: str, dtype: DType, lanes: int) -> CExpression:
        if lanes == 1:
            return CExpression(text, False)
        bits = 8 * dtype.bytes
        return CExpression(f"({self._prelude.mask(bits, lanes)})({text})", True, bits)

    def _half_call(
        self, function: str, args: tuple[CExpression, ...], dtype: DType, lanes: int
    ) -> CExpression:
        wide = tuple(self.convert(a, dtype, F32, lanes) for a in args)
        result = self.call(function, wide, F32, lanes)
        if function in _COMPARE or function in ("isnan", "isinf"):
            return result
        return self.convert(result, F32, dtype, lanes)

    def _logic(self, function: str, args: tuple[CExpression, ...], lanes: int) -> CExpression:
        bits = max(a.mask for a in args)
        masks = [self.remask(a, bits, lanes) for a in args]
        invert = "!" if lanes == 1 else "~"
        if function in _LOGIC:
            return CExpression(f"{masks[0].inner} {_LOGIC[function]} {masks[1].inner}", False, bits)
        match function:
            case "not":
                return CExpression(f"{invert}{masks[0].inner}", True, bits)
            case "eq":
                return CExpression(f"{invert}({masks[0].inner} ^ {masks[1].inner})", True, bits)
            case "lt":
                return CExpression(f"{invert}{masks[0].inner} & {masks[1].inner}", False, bits)
            case "gt":
                return CExpression(f"{masks[0].inner} & {invert}{masks[1].inner}", False, bits)
            case "le":
                return CExpression(f"{invert}{masks[0].inner} | {masks[1].inner}", False, bits)
            case "ge":
                return CExpression(f"{masks[0].inner} | {invert}{masks[1].inner}", False, bits)
            case _:
                raise _unexpanded(function, BOOL)

    def _float_call(
        self, function: str, args: tuple[CExpression, ...], dtype: DType, lanes: int
    ) -> CExpression:
        if function in _OPERATOR:
            text = f"{args[0].inner} {_OPERATOR[function]} {args[1].inner}"
            return CExpression(text, False)
        a = args[0]
        match function:
            case "min" | "max" | "sign":
                name = self._choosing(function, dtype, lanes)
                return CExpression(f"{name}({', '.join(a.text for a in args)})")
            case "neg":
                return CExpression(f"-{a.inner}", False)
            case "reciprocal":
                return CExpression(f"{self.constant(1, dtype, lanes).inner} / {a.inner}", False)
            case "rsqrt":
                root = self._builtin("sqrt", a, dtype, lanes)
                return CExpression(f"{self.constant(1, dtype, lanes).inner} / {root.inner}", False)
            case "isnan":
                return self._comparison(f"{a.inner} != {a.inner}", dtype, lanes)
            case "isinf":
                size = self._builtin("abs", a, dtype, lanes)
                infinity = self.constant(float("inf"), dtype, lanes)
                return self._comparison(f"{size.inner} == {infinity.inner}", dtype, lanes)
            case _ if function in _BUILTIN:
                return self._builtin(function, a, dtype, lanes)
            case _:
                raise _unexpanded(function, dtype)

    def _builtin(self, function: str, a: CExpression, dtype: DType, lanes: int) -> CExpression:
        standard = f"{_BUILTIN[function]}{'f' if dtype == F32 else ''}"
        name = self._prelude.dialect.builtin.format(standard)
        if lanes > 1:
            v, one = self._prelude.vector(dtype, lanes), name
            name = self._prelude.function(
                f"{v}_{function}", v, f"{v} a",
                lambda: f"return ({v}){each(lanes, lambda lane: f'{one}(a[{lane}])')};",
            )  # fmt: skip
        return CExpression(f"{name}({a.text})")

    def _choosing(self, function: str, dtype: DType, lanes: int) -> str:
        """Functions that select by a comparison; if an operand is NaN, the second one."""
        v = self.type(dtype, lanes)
        name = f"{prefix(dtype) if lanes == 1 else v}_{function}"
        if function == "sign":
            return self._prelude.function(name, v, f"{v} a", lambda: self._sign(dtype, lanes))
        condition = self._comparison(f"a {'<' if function == 'min' else '>'} b", dtype, lanes)
        a, b = CExpression("a"), CExpression("b")
        result = self.select(condition, a, b, dtype, lanes)
        return self._prelude.function(name, v, f"{v} a, {v} b", lambda: f"return {result.text};")

    def _sign(self, dtype: DType, lanes: int) -> str:
        zero, one = self.constant(0, dtype, lanes), self.constant(1, dtype, lanes)
        minus, a = self.constant(-1, dtype, lanes), CExpression("a")
        below = self._comparison(f"a < {zero.text}", dtype, lanes)
        above = self._comparison(f"a > {zero.text}", dtype, lanes)
        inner = self.select(below, minus, a, dtype, lanes)  # keeps NaN
        return f"return {self.select(above, one, inner, dtype, lanes).text};"


def _unexpanded(function: str, dtype: DType) -> NotImplementedError:
    return NotImplementedError(
        f"C has no operator for '{function}' on {dtype}; run the expand_math pass first"
    )
