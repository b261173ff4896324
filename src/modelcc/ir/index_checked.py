"""Values of index expressions as a machine finds them that minds overflow."""

from __future__ import annotations

from collections.abc import Mapping

from modelcc.ir.index_expr import Expr, FloorDiv, FloorMod, Index, Sym
from modelcc.ir.index_extremum import IndexMax, IndexMin

LEAST, MOST = -(1 << 63), (1 << 63) - 1
"""What a 64-bit integer can hold."""


class NoValueError(ArithmeticError):
    """An expression whose computation leaves 64 bits, or divides by 0."""


def evaluate_checked(e: Index, values: Mapping[str, int]) -> int:
    """The value of ``e``; :class:`NoValueError` where compiled code would find none either.

    KeyError names a symbol that has no value.
    """
    if isinstance(e, int):
        return _checked(e)
    match e:
        case Sym(name):
            return _checked(values[name])
        case FloorDiv(dividend, divisor) | FloorMod(dividend, divisor):
            left, right = evaluate_checked(dividend, values), evaluate_checked(divisor, values)
            if right == 0:
                raise NoValueError(f"{e} divides by 0")
            return _checked(left // right if isinstance(e, FloorDiv) else left % right)
        case IndexMin(args):
            return min(evaluate_checked(arg, values) for arg in args)
        case IndexMax(args):
            return max(evaluate_checked(arg, values) for arg in args)
        case _:
            return _sum(e, values)


def _sum(e: Expr, values: Mapping[str, int]) -> int:
    total = e.const
    for coeff, mono in e.terms.values():
        part = coeff
        for atom in mono:
            part = _checked(part * evaluate_checked(atom, values))
        total = _checked(total + part)
    return total


def _checked(value: int) -> int:
    if not LEAST <= value <= MOST:
        raise NoValueError(f"{value} does not fit into 64 bits")
    return value
