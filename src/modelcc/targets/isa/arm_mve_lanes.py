"""Loops over elements by Helium: arithmetic on 32 bits, four lanes at a time.

There is no table of these: whatever routine is one loop, whose iterations compute integers of
elements at their own place, has a text made of intrinsics of ``arm_mve.h``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from modelcc.ir.index import Index, Sym, floordiv, mod, symbols
from modelcc.ir.instructions import vectors
from modelcc.ir.loop import (
    Const,
    Convert,
    Expr,
    For,
    Function,
    Intrinsic,
    Let,
    Load,
    MulAdd,
    ScalarCall,
    Stmt,
    Store,
    Var,
)
from modelcc.ir.types import I8, I16, I32, U8, DType
from modelcc.targets.isa.templates import CTemplate, RoutineText

LANES = 4

_MACRO = "__ARM_FEATURE_MVE"
_PREDICATE = "there"

_BINARY: Mapping[str, str] = {
    "add": "vaddq_s32",
    "sub": "vsubq_s32",
    "mul": "vmulq_s32",
    "min": "vminq_s32",
    "max": "vmaxq_s32",
    "and": "vandq_s32",
    "or": "vorrq_s32",
    "xor": "veorq_s32",
    "rounding_high_word": "vrmulhq_s32",
    "rounding_high_mul": "vqrdmulhq_s32",
}

_MEMORY: Mapping[DType, str] = {I8: "rbq_{}s32", I16: "rhq_{}s32", I32: "rwq_{}s32"}
"""What follows ``vld`` or ``vst``."""


_SUM = re.compile(r"[\w *+]+")
"""Of indices as C spells them, too."""


class _NoFormError(Exception):
    """There is no vector of that."""


def lanewise(routine: Function) -> RoutineText | None:
    """The routine four elements at a time; None if it is something else."""
    match routine.body:
        case (For(start=0, step=1, kind="serial", when=None, part=None) as loop,):
            pass
        case _:
            return None
    if symbols(loop.stop) - {*routine.sizes} or not _SUM.fullmatch(str(loop.stop)):
        return None
    try:
        made = _Loop(loop.variable, loop.stop)
        lines = list(made.text(loop.body))
    except _NoFormError:
        return None
    template = CTemplate("arm_mve.h", (_MACRO,), "\n".join(lines))
    times = floordiv(loop.stop + (LANES - 1), LANES)
    inner = ("vector", *made.lines)
    return RoutineText(routine, "arm", ("+mve",), template, True, inner, times)


@dataclass(frozen=True)
class _Loop:
    """Statements of the loop's body become ``lines``; ``known`` are vectors by what they hold,
    ``values`` what names stand for."""

    variable: str
    stop: Index
    lines: list[str] = field(default_factory=list[str])
    known: dict[str, str] = field(default_factory=dict[str, str])
    values: dict[str, Expr] = field(default_factory=dict[str, Expr])

    @property
    def _ragged(self) -> bool:
        return mod(self.stop, LANES) != 0

    def text(self, body: tuple[Stmt, ...]) -> Iterator[str]:
        """Of the whole loop; a predicate says which lanes there are, if that is not known."""
        for s in body:
            self._statement(s)
        v = self.variable
        stop = str(self.stop).replace("*", " * ")
        yield f"    for (int32_t {v} = 0; {v} < {stop}; {v} += {LANES}) {{"
        if self._ragged:
            yield f"        const mve_pred16_t {_PREDICATE} ="
            yield f"            __arm_vctp32q((uint32_t)({stop} - {v}));"
        yield from (f"        {line}" for line in self.lines)
        yield "    }"

    def _statement(self, s: Stmt) -> None:
        match s:
            case Let():
                self.values[s.name] = s.value
            case Store(stride=1, active=None) if self._goes_along(s.offset):
                value, dtype = s.value, s.value.dtype
                if isinstance(value, Convert):
                    value = value.value
                if dtype not in _MEMORY or value.dtype != I32:
                    raise _NoFormError
                vector = self._vector(value)
                there = f", {_PREDICATE}" if self._ragged else ""
                name = "vst" + _MEMORY[dtype].format("p_" if self._ragged else "")
                self.lines.append(f"__arm_{name}({_at(s)}, {vector}{there});")
            case _:
                raise _NoFormError

    def _goes_along(self, offset: Index) -> bool:
        """Whether lanes are beside each other, at a sum of sizes from the place of the first."""
        rest = offset - Sym(self.variable)
        return self.variable not in symbols(rest) and _SUM.fullmatch(str(rest)) is not None

    def _vector(self, e: Expr) -> str:
        """The name of a vector of 32-bit integers."""
        match e:
            case Var() if e.name in self.values:
                return self._vector(self.values[e.name])
            case Const() if e.dtype == I32:
                return self._named(f"__arm_vdupq_n_s32({int(e.value)})")
            case Load():
                return self._load(e, signed=True)
            case Convert(value, dtype) if dtype == I32 and self._is_load(value):
                return self._vector(value)
            case Intrinsic():
                return self._vector(vectors(e))
            case MulAdd() if e.dtype == I32:
                return self._call("vaddq_s32", self._call("vmulq_s32", e.a, e.b), e.c)
            case ScalarCall() if e.dtype == I32 and len(e.args) == 2:
                return self._binary(e.function, *e.args)
            case _:
                raise _NoFormError

    def _is_load(self, e: Expr) -> bool:
        """Whether it is an element as it lies in memory."""
        if isinstance(e, Var) and e.name in self.values:
            return self._is_load(self.values[e.name])
        return isinstance(e, Load)

    def _binary(self, function: str, a: Expr, b: Expr) -> str:
        a, b = self._followed(a), self._followed(b)
        match function, b:
            case "and", Const(255) if isinstance(a, Convert):
                loaded = self._followed(a.value)
                if isinstance(loaded, Load) and loaded.dtype == I8:
                    return self._load(loaded, signed=False)
            case "shl", Const(bits) if 0 <= int(bits) < 32:
                return self._named(f"__arm_vshlq_n_s32({self._vector(a)}, {int(bits)})")
            case "shr", Const(bits) if 1 <= int(bits) < 32:
                return self._named(f"__arm_vshrq_n_s32({self._vector(a)}, {int(bits)})")
            case "shr", _:
                return self._call("vshlq_s32", a, self._backwards(b))
            case _ if function in _BINARY:
                return self._call(_BINARY[function], a, b)
            case _:
                pass
        raise _NoFormError

    def _backwards(self, bits: Expr) -> str:
        """Shifts to the right as shifts to the left; those by more bits than there are by 31."""
        given = f"(uint32x4_t){self._vector(bits)}"
        most = self._named(f"(int32x4_t)__arm_vminq_u32({given}, __arm_vdupq_n_u32(31))")
        return self._named(f"__arm_vnegq_s32({most})")

    def _followed(self, e: Expr) -> Expr:
        """What a name stands for, and what an instruction means."""
        match e:
            case Intrinsic():
                return vectors(e)
            case Var(name) if name in self.values:
                return self._followed(self.values[name])
            case _:
                return e

    def _call(self, name: str, *args: Expr | str) -> str:
        given = (a if isinstance(a, str) else self._vector(a) for a in args)
        return self._named(f"__arm_{name}({', '.join(given)})")

    def _load(self, e: Load, signed: bool) -> str:
        dtype = e.dtype
        if e.offset == 0 and dtype in _MEMORY and signed:
            return self._named(f"__arm_vdupq_n_s32({e.buffer}[0])")
        if not self._goes_along(e.offset) or dtype not in {*_MEMORY, U8}:
            raise _NoFormError
        name = "vld" + _MEMORY[I8 if dtype == U8 else dtype].format("z_" if self._ragged else "")
        there = f", {_PREDICATE}" if self._ragged else ""
        if signed and dtype != U8:
            return self._named(f"__arm_{name}({_at(e)}{there})")
        name = name.removesuffix("s32") + "u32"
        return self._named(f"(int32x4_t)__arm_{name}((const uint8_t *)({_at(e)}){there})")

    def _named(self, text: str) -> str:
        if text not in self.known:
            self.known[text] = f"v{len(self.known)}"
            self.lines.append(f"const int32x4_t {self.known[text]} = {text};")
        return self.known[text]


def _at(access: Load | Store) -> str:
    """The address of the first lane."""
    return f"{access.buffer} + {access.offset}".replace("*", " * ")


RULES = (lanewise,)
