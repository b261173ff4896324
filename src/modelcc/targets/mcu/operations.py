"""Approximate instruction counts of expressions of the loop level.

Common subexpressions are counted once: ``seen`` has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from modelcc.ir.index import Index, symbols
from modelcc.ir.loop import (
    Const,
    Convert,
    Expr,
    IndexOf,
    Intrinsic,
    Load,
    MulAdd,
    Predicate,
    ScalarCall,
    Select,
    Var,
)
from modelcc.ir.loop_traversal import indices, operands, walk
from modelcc.ir.scalar import FUNCTIONS
from modelcc.ir.types import DType
from modelcc.targets.mcu.machine import McuModel
from modelcc.targets.mcu.timing import Counts, Kind, counted

WORD = 4
"""Bytes of a register."""

_REMAINDER = 4
"""Instructions of a division and a remainder of an index."""

_INTEGER: Mapping[str, int] = MappingProxyType(
    {
        "min": 2, "max": 2, "rounding_high_mul": 5, "rounding_high_word": 4, "rounding_shr": 5,
        "eq": 2, "ne": 2, "lt": 2, "le": 2, "gt": 2, "ge": 2, "div": 1, "abs": 2,
    }
)  # fmt: skip
"""Instructions for 32-bit integers, where these differ from the default cost of a function."""

_KINDS: Mapping[str, Kind] = MappingProxyType(
    {"mul": "multiply", "div": "divide", "rounding_high_mul": "long_multiply"}
)

_LONG = 2
"""Factor on these for 64-bit integers."""

_LONG_PRODUCT = 55
"""Instructions of a library's 64-bit multiplication."""

_BY_LONG = "rounding_high_mul", "rounding_high_word"

_ROUNDED = "round", "floor", "ceil", "trunc"

_ROUNDING = 33
"""Instructions of a library's rounding functions."""

_ARM_SOFT, _OTHER_SOFT = (60, 100), (85, 150)
"""Instructions of a library's functions for 32-bit and 64-bit floats; Arm's are in assembly."""


@dataclass(frozen=True)
class Operations:
    """Instruction costs of expressions on a processor: ``single`` and ``double`` tell whether it
    has instructions for 32-bit and 64-bit floats, ``accumulates`` whether it has
    multiply-accumulate, ``small`` whether it has only eight registers and no 64-bit products,
    ``rounds`` whether it rounds floats to integers."""

    single: bool
    double: bool
    accumulates: bool
    small: bool
    rounds: bool

    def of(self, e: Expr, seen: set[object], varying: frozenset[str] | None) -> Counts:
        """Counts for ``e`` and its subexpressions, unless ``seen`` or independent of the
        ``varying`` names (None: any)."""
        if e in seen or _is_known(e) or not (varying is None or varying & {*names_in(e)}):
            return Counter()
        seen.add(e)
        total = self._own(e)
        for operand in _computed(e):
            total += self.of(operand, seen, varying)
        for index in () if isinstance(e, Predicate) else indices(e):
            total += self.address(e.buffer if isinstance(e, Load) else "", index, seen, varying)
        return total

    def address(
        self, buffer: str, index: Index, seen: set[object], varying: frozenset[str] | None
    ) -> Counts:
        """Counts for an address, given its symbolic part: constant offsets are free."""
        terms = index if isinstance(index, int) else index - index.const
        used = symbols(terms)
        if not used or (buffer, terms) in seen or not (varying is None or varying & used):
            return Counter()
        seen.add((buffer, terms))
        text = str(terms)
        return counted(plain=1 + _REMAINDER * (text.count("floordiv") + text.count(" mod ")))

    def _own(self, e: Expr) -> Counts:
        match e:
            case Load():
                return Counter({"pair" if e.dtype.bytes > WORD else "load": 1})
            case Convert():
                return self._conversion(e.value, e.dtype)
            case MulAdd() if e.dtype.is_float:
                return self._floats(e.dtype, 1, "float_product")
            case MulAdd():
                return self._product(e.dtype)
            case ScalarCall():
                return self._call(e)
            case Intrinsic():
                return Counter({"plain" if len(e.args) == 1 else "multiply": 1})
            case Select():
                return counted(plain=2)
            case Predicate():
                return counted(plain=max(1, len(e.conditions) // 2))  # bounds on both sides are one
            case IndexOf():
                return Counter()
            case _:
                return Counter()

    def _product(self, dtype: DType) -> Counts:
        if dtype.bytes > WORD:
            return self._long_product()
        if self.small:  # operands and sums are spilled
            return counted(multiply=1, plain=2, load=2, store=1)
        return counted(multiply=1) if self.accumulates else counted(multiply=1, plain=1)

    def _long_product(self) -> Counts:
        return counted(plain=_LONG_PRODUCT) if self.small else counted(long_multiply=1)

    def _call(self, e: ScalarCall) -> Counts:
        usual = FUNCTIONS[e.function].cost
        operand = e.args[0].dtype
        if operand.is_float and e.function in _ROUNDED and not self.rounds:
            return counted(plain=_ROUNDING)
        if operand.is_float:
            kind: Kind = "float_divide" if e.function in ("div", "sqrt", "reciprocal") else "float"
            return self._floats(operand, 1 if kind == "float_divide" else usual, kind)
        if e.function == "mul" and operand.bytes > WORD:
            return self._long_product()
        if e.function in _BY_LONG and self.small:
            return self._long_product()
        count = _INTEGER.get(e.function, usual) * (_LONG if operand.bytes > WORD else 1)
        kind = _KINDS.get(e.function, "plain")
        found: Counts = Counter({kind: 1})
        found["plain"] += count - 1
        return found

    def _floats(self, dtype: DType, count: int, kind: Kind) -> Counts:
        there = self.single if dtype.bytes <= WORD else self.double
        if there:
            return Counter({kind: count})
        soft = _ARM_SOFT if self.accumulates else _OTHER_SOFT
        return counted(plain=count * soft[dtype.bytes > WORD])

    def _conversion(self, value: Expr, to: DType) -> Counts:
        if value.dtype.is_float or to.is_float:
            wide = to if to.is_float else value.dtype
            return self._floats(wide, 1, "float")
        if isinstance(value, Load) or to.bytes <= value.dtype.bytes:
            return Counter()  # folded into the load, or the store
        return counted(plain=int(to.bytes <= WORD))  # long products include the widening


def _computed(e: Expr) -> tuple[Expr, ...]:
    """Operands computed before ``e``; a conversion to integers includes rounding."""
    match e:
        case Convert(value=ScalarCall(function="round", args=args)) if not e.dtype.is_float:
            return args
        case _:
            return operands(e)


def _is_known(e: Expr) -> bool:
    """Whether compilers fold it to a constant."""
    return all(isinstance(part, Const | ScalarCall | Convert) for part in walk(e))


def operations_of(model: McuModel) -> Operations:
    """The operation costs of a processor, by the options that GCC gets for it."""
    hard = "-mfloat-abi=hard" in model.flags
    wide = any(flag in ("-mfpu=fpv5-d16", "-mcpu=cortex-m55") for flag in model.flags)
    arm = model.architecture == "arm"
    small = "-mcpu=cortex-m0plus" in model.flags
    rounds = hard and "-mfpu=fpv4-sp-d16" not in model.flags
    return Operations(hard, hard and wide, arm, small, rounds)


def names_in(e: Expr) -> Iterator[str]:
    """Values, index symbols and buffers that an expression mentions."""
    for part in walk(e):
        for index in indices(part):
            yield from symbols(index)
        if isinstance(part, Var):
            yield part.name
        elif isinstance(part, Load):
            yield part.buffer
