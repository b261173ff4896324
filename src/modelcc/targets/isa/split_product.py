"""3xTF32: products of f32 on tensor cores that take 11 bits of a significand, from two parts of
each operand: ``a b`` is about ``low(a) high(b) + high(a) low(b) + high(a) high(b)``.

What is dropped, ``low(a) low(b)`` and the last of the 24 bits in a second part, is below 2**-20 of
``a b`` (H. Ootomo and R. Yokota, "Recovering single precision accuracy from Tensor Cores while
surpassing the FP32 theoretical peak performance", 2022; CUTLASS's 3xTF32).  As there, the terms of
a fragment are accumulated separately and then added to the sums in f32, which rounds to nearest:
tensor cores truncate sums (M. Fasi, N. Higham, M. Mikaitis and S. Pranesh, "Numerical behavior of
NVIDIA tensor cores", 2021), which would add a bias with each fragment of terms.
"""

from __future__ import annotations

from functools import cache

from modelcc.ir.index import Sym
from modelcc.ir.loop import (
    Alloc,
    Assign,
    Bitcast,
    Buffer,
    Const,
    Expr,
    For,
    Function,
    Load,
    MulAdd,
    Parameter,
    Register,
    ScalarCall,
    Select,
    Splat,
    Stmt,
    Store,
    Var,
)
from modelcc.ir.types import BOOL, F32, U32
from modelcc.targets.isa.fragments import SIDE, cut_to_tf32, depth, rounded_to_tf32

LEAST_BEYOND = 2.0**128 - 2.0**116
"""The least number that is rounded to infinity."""

SMALL = 0xBFFFE000
"""A mask by which infinity becomes 1, of its sign."""

_MAGNITUDE = 0x7FFFFFFF
_ROW, _TERM, _TERMS = Sym("i"), Sym("k"), depth(F32)
_PARTS = "high", "low"


def split(e: Expr) -> tuple[Expr, Expr]:
    """``e`` as a sum of two numbers of 11 bits: the nearest one, and the remainder, truncated.

    The first part of infinity is 1, with infinity as the remainder: none of its products is an
    infinity of the other sign, or infinity times 0, unless that of the whole numbers is.  Of finite
    numbers from :data:`LEAST_BEYOND` on, it is about 1, too, and the remainder has 11 bits of them.
    """
    bits, beyond = Bitcast(e, U32), Bitcast(Const(LEAST_BEYOND, F32, e.lanes), U32)
    usual = ScalarCall("lt", (_kept(bits, _MAGNITUDE), beyond), BOOL, e.lanes)
    high = Select(usual, rounded_to_tf32(e), Bitcast(_kept(bits, SMALL), F32))
    return high, cut_to_tf32(ScalarCall("sub", (e, high), F32, e.lanes))


@cache
def multiply_split() -> Function:
    """``c += a b`` of f32: the products of parts, those with a low one first, are accumulated from
    0 for the terms of these fragments."""
    small = (_products("low", "high"), _products("high", "low"))
    whole = ScalarCall(
        "add", (Load("c", SIDE * _ROW, F32, SIDE), Var("total", F32, SIDE)), F32, SIDE
    )
    rows = For(
        "i", 0, SIDE,
        (
            Register("total", Const(0, F32, SIDE)), *small, _products("high", "high"),
            Store("c", SIDE * _ROW, whole),
        ),
    )  # fmt: skip
    size = SIDE * _TERMS
    parts = [Alloc(Buffer(f"{part}_{x}", F32, size, "local")) for x in "ab" for part in _PARTS]
    body = (*parts, _split_all("a"), _split_all("b"), rows)
    sums = Parameter(Buffer("c", F32, SIDE * SIDE), mutable=True)
    taken = (Parameter(Buffer(x, F32, size)) for x in "ab")
    return Function("multiply_f32_split", (sums, *taken), (), body)


def _split_all(name: str) -> For:
    """Both parts of a fragment, by vectors."""
    at = SIDE * _TERM
    parts = zip(_PARTS, split(Load(name, at, F32, SIDE)), strict=True)
    return For("k", 0, _TERMS, tuple(Store(f"{part}_{name}", at, e) for part, e in parts))


def _products(left: str, right: str) -> Stmt:
    """The total of a row and products of these parts of its terms."""
    a = Load(f"{left}_a", _TERMS * _ROW + _TERM, F32)
    b = Load(f"{right}_b", SIDE * _TERM, F32, SIDE)
    total = MulAdd(Splat(a, SIDE), b, Var("total", F32, SIDE))
    return For("k", 0, _TERMS, (Assign("total", total),))


def _kept(bits: Expr, mask: int) -> Expr:
    return ScalarCall("and", (bits, Const(mask, U32, bits.lanes)), U32, bits.lanes)
