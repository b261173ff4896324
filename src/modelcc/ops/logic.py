"""Elementwise logic on bools and on the bits of integers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, apply
from modelcc.ir.op import Op
from modelcc.ir.types import BOOL, I8, I32, I64, U8, U32, Array
from modelcc.ops.arithmetic import PiecewiseConstant, typed_samples
from modelcc.ops.samples import bounded, sample, tensor

_BOOLS = (
    *typed_samples((BOOL,), 2),
    sample(tensor(2, "n", dtype=BOOL), tensor("n", dtype=BOOL)),
    sample(tensor(dtype=BOOL), tensor(3, dtype=BOOL)),
)
_BITS = (
    *typed_samples((I64, I8, U8), 2, -99, 99),
    bounded((-99, 99), tensor(2, "n", dtype=I32), tensor("n", dtype=I32)),
)


@dataclass(frozen=True)
class And(PiecewiseConstant):
    """Whether both hold."""

    domain, function, numpy = "bool", "and", np.logical_and
    samples = _BOOLS


@dataclass(frozen=True)
class Or(PiecewiseConstant):
    """Whether at least one holds."""

    domain, function, numpy = "bool", "or", np.logical_or
    samples = _BOOLS


@dataclass(frozen=True)
class Xor(PiecewiseConstant):
    """Whether exactly one holds."""

    domain, function, numpy = "bool", "xor", np.logical_xor
    samples = _BOOLS


@dataclass(frozen=True)
class Not(PiecewiseConstant):
    """Whether x does not hold."""

    domain, function, numpy = "bool", "not", np.logical_not
    samples = (*typed_samples((BOOL,), 1), sample(tensor(dtype=BOOL)))


@dataclass(frozen=True)
class BitwiseAnd(PiecewiseConstant):
    """Bits set in both."""

    domain, function, numpy = "int", "and", np.bitwise_and
    samples = _BITS


@dataclass(frozen=True)
class BitwiseOr(PiecewiseConstant):
    """Bits set in at least one."""

    domain, function, numpy = "int", "or", np.bitwise_or
    samples = _BITS


@dataclass(frozen=True)
class BitwiseXor(PiecewiseConstant):
    """Bits set in exactly one."""

    domain, function, numpy = "int", "xor", np.bitwise_xor
    samples = _BITS


@dataclass(frozen=True)
class BitwiseNot(PiecewiseConstant):
    """All bits of x flipped."""

    domain, function, numpy = "int", "not", np.invert
    samples = typed_samples((I64, I8, U8), 1, -99, 99)


@dataclass(frozen=True)
class BitShift(PiecewiseConstant):
    """``a`` shifted by b bits, up if ``left``; b is less than the width of a."""

    domain = "int"
    left: bool = True
    samples = (
        *typed_samples((U8, U32, I64), 2, 0, 7, left=True),
        *typed_samples((U8, U32, I64), 2, 0, 7, left=False),
    )

    def element(self, a: Element, b: Element) -> Element:
        return apply("shl" if self.left else "shr", a, b)

    def evaluate(self, a: Array, b: Array) -> Array:
        return np.left_shift(a, b) if self.left else np.right_shift(a, b)


OPS: tuple[type[Op], ...] = (
    *(And, Or, Xor, Not, BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseNot, BitShift),
)
