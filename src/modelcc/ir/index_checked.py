"""Index expressions evaluated step by step with overflow checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Protocol, TypeVar

from modelcc.ir.index_expr import Atom, Expr, FloorDiv, FloorMod, Index, Sym
from modelcc.ir.index_extremum import IndexMax, IndexMin

LEAST, MOST = -(1 << 63), (1 << 63) - 1
"""The range of a 64-bit integer."""

T = TypeVar("T")


class CheckedSteps(Protocol[T]):
    """Computes with 64-bit integers ``T`` and records overflow and division by 0."""

    def number(self, value: int) -> T:
        """A constant, which may be too large."""
        ...

    def symbol(self, e: Sym) -> T:
        """The value of a symbol."""
        ...

    def step(self, operation: str, left: T, right: T) -> T:
        """One of ``add``, ``mul``, ``floordiv``, ``mod``, ``min``, ``max``; or ``divisor``, which
        is ``right`` if ``left`` may be divided by it."""
        ...


def compute(e: Index, steps: CheckedSteps[T]) -> T:
    """``e`` by ``steps``: products from left to right, then their sum."""
    if isinstance(e, int):
        return steps.number(e)
    match e:
        case Sym():
            return steps.symbol(e)
        case FloorDiv(dividend, divisor) | FloorMod(dividend, divisor):
            left, right = compute(dividend, steps), compute(divisor, steps)
            if not isinstance(divisor, int):
                right = steps.step("divisor", left, right)
            return steps.step("floordiv" if isinstance(e, FloorDiv) else "mod", left, right)
        case IndexMin(args) | IndexMax(args):
            operation = "min" if isinstance(e, IndexMin) else "max"
            return reduce(partial(steps.step, operation), (compute(arg, steps) for arg in args))
        case Atom():
            raise TypeError(f"index atom {e} has no steps")
        case _:
            return reduce(partial(steps.step, "add"), _terms(e, steps))


def _terms(e: Expr, steps: CheckedSteps[T]) -> Iterator[T]:
    if e.const:
        yield steps.number(e.const)
    for coefficient, atoms in e.terms.values():
        yield reduce(partial(steps.step, "mul"), _factors(coefficient, atoms, steps))


def _factors(coefficient: int, atoms: tuple[Atom, ...], steps: CheckedSteps[T]) -> Iterator[T]:
    if coefficient != 1:
        yield steps.number(coefficient)
    yield from (compute(atom, steps) for atom in atoms)


class NoValueError(ArithmeticError):
    """An expression whose computation leaves 64 bits, or divides by 0."""


def evaluate_checked(e: Index, values: Mapping[str, int]) -> int:
    """The value of ``e``; :class:`NoValueError` where compiled code would fail as well.

    KeyError names a symbol that has no value.
    """
    return compute(e, _Evaluation(values))


_OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "add": int.__add__, "mul": int.__mul__, "floordiv": int.__floordiv__, "mod": int.__mod__,
    "min": min, "max": max,
}  # fmt: skip


@dataclass(frozen=True)
class _Evaluation:
    values: Mapping[str, int]

    def number(self, value: int) -> int:
        if not LEAST <= value <= MOST:
            raise NoValueError(f"{value} does not fit into 64 bits")
        return value

    def symbol(self, e: Sym) -> int:
        return self.number(self.values[e.name])

    def step(self, operation: str, left: int, right: int) -> int:
        if operation != "divisor":
            return self.number(_OPERATIONS[operation](left, right))
        if right == 0:
            raise NoValueError(f"{left} is divided by 0")
        return right
