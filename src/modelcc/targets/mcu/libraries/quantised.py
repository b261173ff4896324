"""Quantised bytes: recognises how stages compute them, as in TFLite's reference kernels."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.condition import Condition
from modelcc.ir.tensor import Apply, Cast, Guard, Number, Read, Scalar
from modelcc.ir.types import I8, I32


@dataclass(frozen=True)
class QuantisedOperand:
    """Bytes ``read`` less ``zero``, or 0 where the ``conditions`` do not all hold."""

    read: Read
    zero: int
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Clamped:
    """``value`` plus ``zero``, clamped to ``low`` … ``high``, as a byte."""

    value: Scalar
    zero: int
    low: int
    high: int


@dataclass(frozen=True)
class Scaled:
    """``value * multiplier / 2^31 / 2^shift``, each quotient rounded, as in
    :class:`~modelcc.ops.fixed_point.FixedPointMultiply`."""

    value: Scalar
    multiplier: Scalar
    shift: Scalar


def operand_of(scalar: Scalar) -> QuantisedOperand | None:
    """``scalar`` as bytes less a zero point, in 32 bits."""
    match scalar:
        case Cast(Guard(conditions, inside, Number(0)), dtype) if dtype == I32:
            found = _difference(inside)
            return None if found is None else QuantisedOperand(*found, conditions)
        case Cast(inside, dtype) if dtype == I32:
            found = _difference(inside)
            return None if found is None else QuantisedOperand(*found)
        case Apply("add", (Cast(Read(dtype=source) as read, _), Number(value)), _) if source == I8:
            return QuantisedOperand(read, -int(value))
        case _:
            return None


def _difference(scalar: Scalar) -> tuple[Read, int] | None:
    match scalar:
        case Apply("sub", (Cast(Read(dtype=source) as read, _), Number(value)), _):
            return (read, int(value)) if source == I8 else None
        case Read(dtype=source) as read if source == I8:
            return read, 0
        case _:
            return None


def clamped(scalar: Scalar) -> Clamped | None:
    """``scalar`` as a value clamped to the range of a byte."""
    match scalar:
        case Cast(Apply("min", (Apply("max", (value, Number(low))), Number(high))), dtype):
            if dtype != I8 or value.dtype != I32:
                return None
        case _:
            return None
    match value:
        case Apply("add", (inner, Number(zero))):
            return Clamped(inner, int(zero), int(low), int(high))
        case _:
            return Clamped(value, 0, int(low), int(high))


def scaled(scalar: Scalar) -> Scaled | None:
    """``scalar`` as a product by a fixed-point multiplier."""
    match scalar:
        case Apply("rounding_shr", (Apply("rounding_high_mul", (value, multiplier)), shift)):
            return Scaled(value, multiplier, shift)
        case _:
            return None
