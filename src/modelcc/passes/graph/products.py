"""Normal forms of arithmetic, independent of association, commutation and division.

Exporters write the same formula in many ways: ``x*0.5``, ``0.5*x``, ``x/2``; a product of three
in any order; ``x*x`` or ``Pow(x, 2)``.  Rules compare such normal forms instead of shapes of trees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isclose
from typing import Any, cast

from ml_dtypes import finfo

from modelcc.ir.graph import Node
from modelcc.ir.op import Op
from modelcc.ir.rewriting import Rewriter
from modelcc.ops.arithmetic import Elementwise
from modelcc.ops.elementwise import Add, Cast, Div, Mul, Neg, Pow, Reciprocal, Rsqrt, Sqrt, Sub

DEPTH = 8
"""Depth of nested products that are expanded."""

CHAIN = 12
"""Elementwise nodes across which data movement is moved to meet other movement."""

TOLERANCE = 1e-5
"""Relative difference within which an exported f32 is the number of a formula (``1.41421``)."""


@dataclass(frozen=True)
class PowerProduct:
    """``coefficient`` times each value to its power; powers are not 0.

    ``tolerance`` is the relative error that the coefficient may have from rounded constants.
    """

    coefficient: float
    powers: Mapping[str, int]
    tolerance: float = TOLERANCE

    def is_like(self, coefficient: float, powers: Mapping[str, int]) -> bool:
        """Whether this equals ``coefficient`` times ``powers``, within the tolerance."""
        return self.powers == powers and close(self.coefficient, coefficient, self.tolerance)


def close(value: float, wanted: float, tolerance: float = TOLERANCE) -> bool:
    """Whether ``value`` is ``wanted`` up to exporters' rounding."""
    return isclose(value, wanted, rel_tol=tolerance)


def tolerance_of(at: Rewriter, name: str) -> float:
    """Relative error of exported constants of the type of ``name``.

    Numbers that round to the same one differ by up to its unit u, of the larger one by u / (1 + u);
    neighbours of a power of two by more.
    """
    dtype = at.type_of(name).dtype
    unit = float(cast(Any, finfo)(dtype.numpy).eps) / 2 if dtype.is_float else 0.0
    return max(TOLERANCE, unit / (1 + unit))


def scalar(at: Rewriter, name: str) -> float | None:
    """The value of a numeric constant of one element.

    Floats are read as their shortest decimal (1e-05, not 9.999999747378752e-06).
    """
    data = at.constant_value(name) if name else None
    if data is None or data.size != 1 or data.dtype == object or data.dtype.kind == "c":
        return None
    return float(str(data.reshape(())[()]))


def made_by(at: Rewriter, name: str, *kinds: type[Op]) -> Node | None:
    """The node that computes ``name`` if its op is one of ``kinds``."""
    node = at.producer(name)
    return node if node is not None and isinstance(node.op, kinds) else None


def leads_to(at: Rewriter, node: Node, kind: type[Op], beside: Callable[[str], bool]) -> bool:
    """Whether elementwise ops, each read once, lead from ``node`` to one of ``kind``; all their
    other operands satisfy ``beside``."""
    for _ in range(CHAIN):
        readers = at.consumers(node.outputs[0])
        if len(readers) != 1 or at.is_output(node.outputs[0]):
            return False
        (node,) = readers
        if isinstance(node.op, kind):
            return True
        if not isinstance(node.op, Elementwise | Cast):
            return False
        if sum(not beside(name) for name in node.inputs) != 1:
            return False
    return False


def swapped(node: Node) -> Iterator[tuple[str, str]]:
    """Both orders of a binary node's operands."""
    a, b = node.inputs
    yield a, b
    yield b, a


def keeps_shape(at: Rewriter, node: Node, operand: str) -> bool:
    """Whether the result has the operand's type (no broadcast)."""
    return at.type_of(node.outputs[0]) == at.type_of(operand)


def times_scalar(at: Rewriter, node: Node) -> tuple[float, str] | None:
    """``(c, x)`` if a node computes ``c * x`` with a number c and does not change x's type."""
    match node.op:
        case Neg():
            return -1.0, node.inputs[0]
        case Mul():
            for x, c in swapped(node):
                value = scalar(at, c)
                if value is not None and keeps_shape(at, node, x):
                    return value, x
        case Div():
            x, c = node.inputs
            value = scalar(at, c)
            if value and keeps_shape(at, node, x) and at.type_of(x).dtype.is_float:
                return 1.0 / value, x
        case _:
            pass
    return None


def plus_scalar(at: Rewriter, name: str) -> tuple[str, float] | None:
    """``(x, c)`` if ``name`` is ``x + c`` with a number c and x of the same type."""
    node = made_by(at, name, Add, Sub)
    if node is None:
        return None
    if isinstance(node.op, Sub):
        x, c = node.inputs
        value = scalar(at, c)
        return (x, -value) if value is not None and keeps_shape(at, node, x) else None
    for x, c in swapped(node):
        value = scalar(at, c)
        if value is not None and keeps_shape(at, node, x):
            return x, value
    return None


def scalings(at: Rewriter, name: str) -> Iterator[tuple[float, str]]:
    """``(c, x)`` with ``name == c * x``: first ``(1, name)``, then factor by factor removed."""
    coefficient = 1.0
    for _ in range(DEPTH):
        yield coefficient, name
        node = at.producer(name)
        step = None if node is None else times_scalar(at, node)
        if step is None:
            return
        coefficient, name = coefficient * step[0], step[1]


def product(at: Rewriter, name: str, stop: frozenset[str] = frozenset()) -> PowerProduct:
    """``name`` as a product, without expanding values of ``stop``."""
    powers: dict[str, int] = {}
    coefficient = _multiply(at, name, 1, stop, powers, DEPTH)
    kept = {n: p for n, p in powers.items() if p}
    return PowerProduct(coefficient, kept, tolerance_of(at, name))


def _multiply(
    at: Rewriter, name: str, sign: int, stop: frozenset[str], powers: dict[str, int], depth: int
) -> float:
    """Adds factors of ``name ** sign`` to ``powers``; returns its coefficient."""
    value = scalar(at, name)
    if value is not None and (value or sign > 0):
        return value**sign
    node = at.producer(name) if depth and name not in stop else None
    factors = _factors(at, node) if node is not None else None
    if factors is None:
        powers[name] = powers.get(name, 0) + sign
        return 1.0
    coefficient = -1.0 if node is not None and isinstance(node.op, Neg) else 1.0
    for operand, power in factors:
        for _ in range(abs(power)):
            step = sign if power > 0 else -sign
            coefficient *= _multiply(at, operand, step, stop, powers, depth - 1)
    return coefficient


def _factors(at: Rewriter, node: Node) -> tuple[tuple[str, int], ...] | None:
    """Operands of a product and their powers; None for other nodes."""
    match node.op:
        case Mul():
            return tuple((n, 1) for n in node.inputs)
        case Div() if at.type_of(node.outputs[0]).dtype.is_float:
            return (node.inputs[0], 1), (node.inputs[1], -1)
        case Neg():
            return ((node.inputs[0], 1),)
        case Reciprocal():
            return ((node.inputs[0], -1),)
        case Pow():
            exponent = scalar(at, node.inputs[1])
            if exponent in (2.0, 3.0, 4.0) and keeps_shape(at, node, node.inputs[0]):
                return ((node.inputs[0], int(exponent)),)
        case _:
            pass
    return None


def inverse_root(at: Rewriter, name: str, power: int) -> str | None:
    """x if ``name ** power`` is ``1 / sqrt(x)``."""
    node = made_by(at, name, Sqrt, Rsqrt, Pow)
    if node is None:
        return None
    if isinstance(node.op, Pow):
        exponent = scalar(at, node.inputs[1])
        inverse = exponent is not None and close(exponent * power, -0.5)
    else:
        inverse = power == (-1 if isinstance(node.op, Sqrt) else 1)
    return node.inputs[0] if inverse else None
