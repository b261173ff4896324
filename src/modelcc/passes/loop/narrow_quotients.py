"""Uses a faster, less accurate division for f32 quotients that are rounded to 16 bits.

    let %y = convert[bf16](mul(%x, div(%p, %q)))

becomes, with an ``instruction`` that is inexact in the last bits of f32::

    let %y = convert[bf16](mul(%x, div_fast(%p, %q)))

A relative error of 2^-22 is preserved by products, and moves a result of bf16 by 2^-13, one of f16
by 2^-11 of its last place.  Sums may cancel, and are left alone.
"""

from __future__ import annotations

from dataclasses import replace

from modelcc.ir.loop import Convert, Expr, Function, Instruction, Intrinsic, ScalarCall, Splat, Stmt
from modelcc.ir.loop_traversal import (
    map_blocks,
    mentions,
    operands,
    statement_expressions,
    with_operands,
    with_statement_expressions,
)
from modelcc.ir.types import BF16, F16, F32

_HALVES = (F16, BF16)


def narrow_quotients(function: Function, instruction: Instruction) -> Function:
    """``function`` with such quotients of two f32 operands computed by ``instruction``."""

    def divides(e: Expr) -> bool:
        return isinstance(e, ScalarCall) and e.function == "div" and e.dtype in (F32, *_HALVES)

    def block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map(changed, body))

    def changed(s: Stmt) -> Stmt:
        found = [_narrowed(e, instruction, False) for e in statement_expressions(s)]
        return map_blocks(with_statement_expressions(s, found), block)

    if not mentions(function.body, divides):
        return function
    return replace(function, body=block(function.body))


def _narrowed(e: Expr, instruction: Instruction, rounded: bool) -> Expr:
    """``e``, with reduced precision if it is ``rounded``."""
    match e:
        case ScalarCall(function="div", dtype=dtype) if dtype in _HALVES:
            args = tuple(Convert(_narrowed(a, instruction, False), F32) for a in e.args)
            return Convert(_quotient(instruction, args, e.lanes), e.dtype)
        case ScalarCall(function="div", dtype=dtype) if rounded and dtype == F32:
            args = tuple(_narrowed(a, instruction, False) for a in e.args)
            return _quotient(instruction, args, e.lanes)
        case _:
            pass
    inner = operands(e)
    if not inner:
        return e
    narrow = isinstance(e, Convert) and e.dtype in _HALVES
    through = rounded and isinstance(e, ScalarCall | Splat) and _keeps(e)
    return with_operands(e, [_narrowed(o, instruction, narrow or through) for o in inner])


def _keeps(e: ScalarCall | Splat) -> bool:
    """Whether it preserves relative errors of its operands."""
    return isinstance(e, Splat) or (e.function in ("mul", "neg", "abs") and e.dtype == F32)


def _quotient(instruction: Instruction, args: tuple[Expr, ...], lanes: int) -> Expr:
    wide = (a if a.lanes == lanes else Splat(a, lanes) for a in args)
    return Intrinsic(instruction, tuple(wide))
