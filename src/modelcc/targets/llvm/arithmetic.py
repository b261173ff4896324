"""Scalar functions and conversions as LLVM instructions, lane by lane."""

from __future__ import annotations

from modelcc.ir.types import BOOL, F32, I16, I32, I64, DType
from modelcc.targets.llvm.code import Code
from modelcc.targets.llvm.halves import HALVES, HalfCode
from modelcc.targets.llvm.rounding import INTRINSICS, RoundingCode
from modelcc.targets.llvm.values import constant, mangled, scalar_type, value_type

_COMPARE = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_FLOAT_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "fmod": "frem"}
_INT_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_INTRINSIC = {"sqrt": "sqrt", "abs": "fabs", **INTRINSICS}
_TESTS = ("isnan", "isinf")


class ArithmeticCode:
    """Emits arithmetic into ``code``; operands are SSA names or constants."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._halves = HalfCode(code)
        self._rounding = RoundingCode(code)

    def call(self, function: str, args: tuple[str, ...], dtype: DType, lanes: int) -> str:
        """``function`` of :mod:`modelcc.ir.scalar` on operands of ``dtype``.

        Raises ``NotImplementedError`` for elementary functions, which
        :mod:`modelcc.passes.loop.expand_math` turns into arithmetic.
        """
        if function in _COMPARE:
            return self._compare(function, args, dtype, lanes)
        if function in ("min", "max"):
            if dtype == F32 and self._code.instructions.extrema:
                return self._extremum(function, args, lanes)
            condition = self._compare("lt" if function == "min" else "gt", args, dtype, lanes)
            picked = self.select(condition, args[0], args[1], dtype, lanes)
            if lanes > 1 or not dtype.is_float:
                return picked
            # LLVM would merge it with a surrounding select, and branch on either condition.
            return self._code.emit(f"freeze {value_type(dtype, lanes)} {picked}")
        if dtype.is_float:
            return self._float_call(function, args, dtype, lanes)
        return self._integer_call(function, args, dtype, lanes)

    def _extremum(self, function: str, args: tuple[str, ...], lanes: int) -> str:
        type_ = value_type(F32, lanes)
        name = f"llvm.{function}imum.{mangled(scalar_type(F32), lanes)}"
        callee = self._code.intrinsic(type_, name, f"{type_}, {type_}")
        return self._code.emit(f"call {callee}({type_} {args[0]}, {type_} {args[1]})")

    def muladd(self, a: str, b: str, c: str, dtype: DType, lanes: int) -> str:
        """``a*b + c``, fused if the target has the instruction."""
        if dtype in HALVES:
            a, b, c = (self._halves.widen(x, dtype, lanes) for x in (a, b, c))
            return self._halves.narrow(self.muladd(a, b, c, F32, lanes), dtype, lanes)
        type_ = value_type(dtype, lanes)
        if not dtype.is_float:
            return self._code.emit(f"add {type_} {self._code.emit(f'mul {type_} {a}, {b}')}, {c}")
        name = f"llvm.fmuladd.{mangled(scalar_type(dtype), lanes)}"
        callee = self._code.intrinsic(type_, name, f"{type_}, {type_}, {type_}")
        return self._code.emit(f"call contract {callee}({type_} {a}, {type_} {b}, {type_} {c})")

    def select(self, condition: str, then: str, other: str, dtype: DType, lanes: int) -> str:
        """``then`` where ``condition`` else ``other``."""
        type_ = value_type(dtype, lanes)
        masks = value_type(BOOL, lanes)
        return self._code.emit(f"select {masks} {condition}, {type_} {then}, {type_} {other}")

    def convert(self, value: str, source: DType, target: DType, lanes: int) -> str:
        """The value as another dtype; float to integer truncates, to bool compares with 0.

        Floats beyond a narrow integer's range are truncated to its lowest bits, as NumPy does.
        """
        if source == target:
            return value
        if source in HALVES:
            wide = self._halves.widen(value, source, lanes)
            return self.convert(wide, F32, target, lanes)
        if target in HALVES:
            wide = self.convert(value, source, F32, lanes)
            return self._halves.narrow(wide, target, lanes)
        if target == BOOL:
            return self.call("ne", (value, constant(0, source, lanes)), source, lanes)
        if source.is_float and target.is_integer and target.bits < 32:
            return self.convert(self.convert(value, source, I32, lanes), I32, target, lanes)
        if source.is_float and target.is_float:
            cast = "fpext" if target.bits > source.bits else "fptrunc"
        elif source.is_float:
            cast = "fptosi" if target.kind == "int" else "fptoui"
        elif target.is_float:
            cast = "sitofp" if source.kind == "int" else "uitofp"
        elif source != BOOL and target.bits == source.bits:
            return value
        elif source != BOOL and target.bits < source.bits:
            cast = "trunc"
        else:
            cast = "sext" if source.kind == "int" else "zext"
        result = self._cast(cast, value, source, target, lanes)
        if source.is_float and target.is_integer and target.bits >= 32:
            # Out of range, the result is poison: a check of an index derived from it would prove
            # nothing.
            result = self._code.emit(f"freeze {value_type(target, lanes)} {result}")
        return result

    def rounded(self, value: str, target: DType, lanes: int) -> str:
        """f32 rounded to a narrow integer type that can represent the result, in one conversion."""
        wide, source = value_type(I32, lanes), value_type(F32, lanes)
        suffix = f"{mangled('i32', lanes)}.{mangled('float', lanes)}"
        callee = self._code.intrinsic(wide, f"llvm.lrint.{suffix}", source)
        return self._cast(
            "trunc", self._code.emit(f"call {callee}({source} {value})"), I32, target, lanes
        )

    def bitcast(self, value: str, source: DType, target: DType, lanes: int) -> str:
        """The same bits as another dtype of the same width."""
        if scalar_type(source) == scalar_type(target):
            return value
        return self._cast("bitcast", value, source, target, lanes)

    def _cast(self, cast: str, value: str, source: DType, target: DType, lanes: int) -> str:
        from_, to = value_type(source, lanes), value_type(target, lanes)
        return self._code.emit(f"{cast} {from_} {value} to {to}")

    def _compare(self, function: str, args: tuple[str, ...], dtype: DType, lanes: int) -> str:
        if dtype in HALVES:
            args, dtype = tuple(self._halves.widen(a, dtype, lanes) for a in args), F32
        type_, predicate = value_type(dtype, lanes), _COMPARE[function]
        if dtype.is_float:
            ordered = "u" if function == "ne" else "o"
            return self._code.emit(f"fcmp {ordered}{predicate} {type_} {args[0]}, {args[1]}", "c")
        if function not in ("eq", "ne"):
            predicate = ("s" if dtype.kind == "int" else "u") + predicate
        return self._code.emit(f"icmp {predicate} {type_} {args[0]}, {args[1]}", "c")

    # --- floats

    def _float_call(self, function: str, args: tuple[str, ...], dtype: DType, lanes: int) -> str:
        if dtype in HALVES:
            return self._half_call(function, args, dtype, lanes)
        type_ = value_type(dtype, lanes)
        one = constant(1, dtype, lanes)
        if function in _FLOAT_BINARY and function != "fmod":
            flag = "" if function == "div" else "contract "
            return self._code.emit(f"{_FLOAT_BINARY[function]} {flag}{type_} {args[0]}, {args[1]}")
        if function in INTRINSICS and not self._code.instructions.rounding:
            return self._rounding.rounded(function, args[0], dtype, lanes)
        if function in _INTRINSIC:
            return self._unary_intrinsic(_INTRINSIC[function], args[0], dtype, lanes)
        match function:
            case "neg":
                return self._code.emit(f"fneg {type_} {args[0]}")
            case "reciprocal":
                return self._code.emit(f"fdiv {type_} {one}, {args[0]}")
            case "rsqrt":
                root = self._unary_intrinsic("sqrt", args[0], dtype, lanes)
                return self._code.emit(f"fdiv {type_} {one}, {root}")
            case "sign":
                return self._sign(args[0], dtype, lanes)
            case "isnan":
                return self._code.emit(f"fcmp uno {type_} {args[0]}, {args[0]}", "c")
            case "isinf":
                size = self._unary_intrinsic("fabs", args[0], dtype, lanes)
                infinity = constant(float("inf"), dtype, lanes)
                return self._compare("eq", (size, infinity), dtype, lanes)
            case _:
                raise _unexpanded(function, dtype)

    def _half_call(self, function: str, args: tuple[str, ...], dtype: DType, lanes: int) -> str:
        """Computed in f32 and rounded, except for changes of the sign alone."""
        if function in ("neg", "abs"):
            name, bits = ("xor", -1 << 15) if function == "neg" else ("and", (1 << 15) - 1)
            operands = f"{value_type(dtype, lanes)} {args[0]}, {constant(bits, I16, lanes)}"
            return self._code.emit(f"{name} {operands}")
        wide = tuple(self._halves.widen(a, dtype, lanes) for a in args)
        result = self._float_call(function, wide, F32, lanes)
        return result if function in _TESTS else self._halves.narrow(result, dtype, lanes)

    def _unary_intrinsic(self, name: str, value: str, dtype: DType, lanes: int) -> str:
        type_ = value_type(dtype, lanes)
        full = f"llvm.{name}.{mangled(scalar_type(dtype), lanes)}"
        return self._code.emit(f"call {self._code.intrinsic(type_, full, type_)}({type_} {value})")

    def _sign(self, value: str, dtype: DType, lanes: int) -> str:
        zero, one = constant(0, dtype, lanes), constant(1, dtype, lanes)
        minus = constant(-1, dtype, lanes)
        above = self._compare("gt", (value, zero), dtype, lanes)
        below = self._compare("lt", (value, zero), dtype, lanes)
        rest = value if dtype.is_float else zero  # keeps NaN
        inner = self.select(below, minus, rest, dtype, lanes)
        return self.select(above, one, inner, dtype, lanes)

    # --- integers and bools

    def _integer_call(self, function: str, args: tuple[str, ...], dtype: DType, lanes: int) -> str:
        type_ = value_type(dtype, lanes)
        if function in _INT_BINARY:
            return self._code.emit(f"{_INT_BINARY[function]} {type_} {args[0]}, {args[1]}")
        match function:
            case "not":
                ones = constant(True if dtype == BOOL else -1, dtype, lanes)
                return self._code.emit(f"xor {type_} {args[0]}, {ones}")
            case "neg":
                return self._code.emit(f"sub {type_} {constant(0, dtype, lanes)}, {args[0]}")
            case "abs":
                below = (args[0], constant(0, dtype, lanes))
                if dtype.kind == "uint":
                    return args[0]
                negative = self._compare("lt", below, dtype, lanes)
                minus = self._integer_call("neg", args, dtype, lanes)
                return self.select(negative, minus, args[0], dtype, lanes)
            case "sign":
                return self._sign(args[0], dtype, lanes)
            case "div" | "floordiv" | "mod" | "fmod":
                return self._division(function, args, dtype, lanes)
            case "shl" | "shr":
                return self._shift(function, args, dtype, lanes)
            case "dot_halves":
                return self._dot_halves(args, dtype, lanes)
            case "dot_bytes":
                return self._dot_bytes(args, dtype, lanes)
            case "rounding_high_mul":
                return self._rounding_high_mul(args, lanes)
            case "rounding_high_word":
                high = self._rounded_product(args, 32, lanes)
                return self._cast("trunc", high, I64, I32, lanes)
            case "high_word":
                wide = tuple(self._cast("sext", a, I32, I64, lanes) for a in args)
                product = self._integer_call("mul", wide, I64, lanes)
                high = self._shift("shr", (product, constant(32, I64, lanes)), I64, lanes)
                return self._cast("trunc", high, I64, I32, lanes)
            case "rounding_shr":
                return self._rounding_shr(args, dtype, lanes)
            case _:
                raise _unexpanded(function, dtype)

    def _shift(self, function: str, args: tuple[str, ...], dtype: DType, lanes: int) -> str:
        """LLVM leaves shifts by the width or more undefined; they give 0 or the sign here."""
        type_ = value_type(dtype, lanes)
        name = "shl" if function == "shl" else "ashr" if dtype.kind == "int" else "lshr"
        value, amount = args
        if not amount.startswith("%"):
            return self._code.emit(f"{name} {type_} {value}, {amount}")
        last = constant(dtype.bits - 1, dtype, lanes)
        fits = self._code.emit(f"icmp ule {type_} {amount}, {last}", "c")
        amount = self.select(fits, amount, last, dtype, lanes)
        shifted = self._code.emit(f"{name} {type_} {value}, {amount}")
        if name == "ashr":
            return shifted
        return self.select(fits, shifted, constant(0, dtype, lanes), dtype, lanes)

    def _dot_halves(self, args: tuple[str, ...], dtype: DType, lanes: int) -> str:
        half = constant(dtype.bits // 2, dtype, lanes)
        low = [self._shift("shl", (a, half), dtype, lanes) for a in args]
        low = [self._shift("shr", (a, half), dtype, lanes) for a in low]
        high = [self._shift("shr", (a, half), dtype, lanes) for a in args]
        products = (self._integer_call("mul", tuple(x), dtype, lanes) for x in (low, high))
        return self._integer_call("add", tuple(products), dtype, lanes)

    def _dot_bytes(self, args: tuple[str, ...], dtype: DType, lanes: int) -> str:
        sums = constant(0, dtype, lanes)
        low = constant(255 if dtype.bits > 8 else -1, dtype, lanes)
        last = dtype.bits - 8
        for shift in range(0, dtype.bits, 8):
            down, up, end = (constant(n, dtype, lanes) for n in (shift, last - shift, last))
            a = self._shift("shr", (args[0], down), dtype, lanes)
            a = self._integer_call("and", (a, low), dtype, lanes)
            b = self._shift("shl", (args[1], up), dtype, lanes)
            b = self._shift("shr", (b, end), dtype, lanes)
            product = self._integer_call("mul", (a, b), dtype, lanes)
            sums = self._integer_call("add", (sums, product), dtype, lanes)
        return sums

    def _rounding_high_mul(self, args: tuple[str, ...], lanes: int) -> str:
        high = self._rounded_product(args, 31, lanes)
        limit = constant((1 << 31) - 1, I64, lanes)
        fits = self._compare("lt", (high, limit), I64, lanes)
        return self._cast("trunc", self.select(fits, high, limit, I64, lanes), I64, I32, lanes)

    def _rounded_product(self, args: tuple[str, ...], bits: int, lanes: int) -> str:
        """A 64-bit product divided by a power of two."""
        wide = tuple(self._cast("sext", a, I32, I64, lanes) for a in args)
        product = self._integer_call("mul", wide, I64, lanes)
        rounded = (product, constant(1 << (bits - 1), I64, lanes))
        high = self._integer_call("add", rounded, I64, lanes)
        return self._shift("shr", (high, constant(bits, I64, lanes)), I64, lanes)

    def _rounding_shr(self, args: tuple[str, ...], dtype: DType, lanes: int) -> str:
        one, zero, last = (constant(n, dtype, lanes) for n in (1, 0, 31))
        bits = self._integer_call("and", (args[1], last), dtype, lanes)
        power = self._code.emit(f"shl {value_type(dtype, lanes)} {one}, {bits}")
        mask = self._integer_call("sub", (power, one), dtype, lanes)
        rest = self._integer_call("and", (args[0], mask), dtype, lanes)
        half = self._code.emit(f"lshr {value_type(dtype, lanes)} {mask}, {one}")
        more = self._integer_call("add", (half, one), dtype, lanes)
        negative = self._compare("lt", (args[0], zero), dtype, lanes)
        half = self.select(negative, more, half, dtype, lanes)
        quotient = self._code.emit(f"ashr {value_type(dtype, lanes)} {args[0]}, {bits}")
        up = self._compare("gt", (rest, half), dtype, lanes)
        above = self._integer_call("add", (quotient, one), dtype, lanes)
        return self.select(up, above, quotient, dtype, lanes)

    def _division(self, function: str, args: tuple[str, ...], dtype: DType, lanes: int) -> str:
        """Division by 0 and the overflowing ``least / -1`` trap, so the divisor is replaced by 1.

        Division by zero then gives the dividend (``div``), else 0.
        """
        type_ = value_type(dtype, lanes)
        a, b = args
        zero, one = constant(0, dtype, lanes), constant(1, dtype, lanes)
        by_zero = self._compare("eq", (b, zero), dtype, lanes)
        safe = self.select(by_zero, one, b, dtype, lanes)
        signed = dtype.kind == "int"
        is_minus = ""
        if signed:
            is_minus = self._compare("eq", (b, constant(-1, dtype, lanes)), dtype, lanes)
            safe = self.select(is_minus, one, safe, dtype, lanes)
        letter = "s" if signed else "u"
        rest = self._code.emit(f"{letter}rem {type_} {a}, {safe}")
        if function in ("mod", "fmod"):
            return self._floored_rest(rest, safe, dtype, lanes, function == "mod" and signed)
        quotient = self._code.emit(f"{letter}div {type_} {a}, {safe}")
        if signed:
            minus = self._integer_call("neg", (a,), dtype, lanes)
            quotient = self.select(is_minus, minus, quotient, dtype, lanes)
        if function == "div":
            return quotient
        if signed:
            wrong = self._rounds_up(rest, safe, dtype, lanes)
            less = self._code.emit(f"sub {type_} {quotient}, {one}")
            quotient = self.select(wrong, less, quotient, dtype, lanes)
        return self.select(by_zero, zero, quotient, dtype, lanes)

    def _rounds_up(self, rest: str, divisor: str, dtype: DType, lanes: int) -> str:
        """Whether the truncated quotient exceeds the floored one."""
        type_, zero = value_type(dtype, lanes), constant(0, dtype, lanes)
        signs = self._code.emit(f"xor {type_} {rest}, {divisor}")
        differ = self._compare("lt", (signs, zero), dtype, lanes)
        inexact = self._compare("ne", (rest, zero), dtype, lanes)
        return self._code.emit(f"and {value_type(BOOL, lanes)} {differ}, {inexact}", "c")

    def _floored_rest(
        self, rest: str, divisor: str, dtype: DType, lanes: int, floored: bool
    ) -> str:
        if not floored:
            return rest
        wrong = self._rounds_up(rest, divisor, dtype, lanes)
        moved = self._code.emit(f"add {value_type(dtype, lanes)} {rest}, {divisor}")
        return self.select(wrong, moved, rest, dtype, lanes)


def _unexpanded(function: str, dtype: DType) -> NotImplementedError:
    return NotImplementedError(
        f"LLVM has no instruction for '{function}' on {dtype}; run the expand_math pass first"
    )
