"""Algebraic identities on elementwise arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ir.types import BOOL, Array, DType
from modelcc.ops.activation import Relu
from modelcc.ops.elementwise import (
    Abs,
    Add,
    Cast,
    Ceil,
    Div,
    Floor,
    Mul,
    Neg,
    Not,
    Pow,
    Reciprocal,
    Round,
    Rsqrt,
    Sign,
    Sqrt,
    Sub,
    Where,
)
from modelcc.passes.graph.products import keeps_shape, made_by, scalar, swapped


@dataclass(frozen=True)
class SimplifyAlgebra:
    """Neutral elements, nested constants, divisions by constants, powers, double negations.

    - Exact: ``x*1``, ``x/1``, ``x+0``, ``x-c`` as ``x+(-c)``, ``x*(-1)``, ``-(-x)``, ``x+(-y)``,
      ``x²`` as a product, integer ``(x+a)+b``, casts that lose nothing, a known ``Where``.
      (-0.0 + 0 gives -0.0.)
    - Rounded differently, by at most 1.5 units in the last place: ``x/c`` as ``x*(1/c)`` (exact
      for powers of two; only where 1/c is a normal number), ``(x*a)*b`` as ``x*(a*b)``,
      ``x³``, ``x/sqrt(y)`` as ``x*rsqrt(y)`` where y is the smaller tensor.

    Floating ``(x+a)+b`` stays, since ``(x+2²³)-2²³`` is a way to round.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xf32>):
          %two = "mcc.constant"() {value = dense<2.0> : tensor<f32>}
          %four = "mcc.constant"() {value = dense<4.0> : tensor<f32>}
          %zero = "mcc.constant"() {value = dense<0.0> : tensor<3xf32>}
          %p = "mcc.Pow"(%x, %two)
          %d = "mcc.Div"(%p, %four)
          %z = "mcc.Add"(%zero, %d)
          %m = "mcc.Neg"(%z)
          %y = "mcc.Neg"(%m)
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xf32>):
          %quarter = "mcc.constant"() {value = dense<0.25> : tensor<f32>}
          %p = "mcc.Mul"(%x, %x)
          %y = "mcc.Mul"(%p, %quarter)
          "mcc.return"(%y)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        rules = (
            *(neutral, minus_constant, minus_one, negations, sum_with_negation, powers),
            *(divide_by_constant, reciprocal, divide_by_root, factors_in_a_row, addends_in_a_row),
            *(idempotent, known_where, casts_in_a_row),
        )
        return rewrite(graph, rules, self.limit)


def neutral(node: Node, at: Rewriter) -> Replacement:
    """``x + 0``, ``x - 0``, ``x * 1``, ``x / 1``."""
    if not isinstance(node.op, Add | Sub | Mul | Div):
        return None
    wanted = 0 if isinstance(node.op, Add | Sub) else 1
    pairs = swapped(node) if isinstance(node.op, Add | Mul) else iter((_pair(node),))
    for x, constant in pairs:
        data = at.constant_value(constant)
        if data is not None and data.size and keeps_shape(at, node, x) and (data == wanted).all():
            return x
    return None


def _pair(node: Node) -> tuple[str, str]:
    a, b = node.inputs
    return a, b


def minus_constant(node: Node, at: Rewriter) -> Replacement:
    """``x - c`` as ``x + (-c)``."""
    data = at.constant_value(node.inputs[1]) if isinstance(node.op, Sub) else None
    if data is None or at.type_of(node.inputs[0]).dtype.kind not in ("float", "int"):
        return None
    return at.emit(Add(), node.inputs[0], at.constant(np.asarray(-data)))


def minus_one(node: Node, at: Rewriter) -> Replacement:
    """``x * (-1)`` as ``-x``."""
    for x, constant in swapped(node) if isinstance(node.op, Mul) else ():
        if scalar(at, constant) == -1.0 and keeps_shape(at, node, x):
            return at.emit(Neg(), x)
    return None


def negations(node: Node, at: Rewriter) -> Replacement:
    """``-(-x)``, ``not not x``, ``-(a - b)``."""
    inner = made_by(at, node.inputs[0], Neg, Not, Sub) if isinstance(node.op, Neg | Not) else None
    if inner is None:
        return None
    if isinstance(inner.op, Sub):
        once = isinstance(node.op, Neg) and at.uses(node.inputs[0]) == 1
        return at.emit(Sub(), *reversed(inner.inputs)) if once else None
    return inner.inputs[0] if inner.op == node.op else None


def sum_with_negation(node: Node, at: Rewriter) -> Replacement:
    """``x + (-y)`` and ``x - (-y)``."""
    if isinstance(node.op, Add):
        for x, name in swapped(node):
            negated = made_by(at, name, Neg)
            if negated is not None:
                return at.emit(Sub(), x, negated.inputs[0])
    negated = made_by(at, node.inputs[1], Neg) if isinstance(node.op, Sub) else None
    return at.emit(Add(), node.inputs[0], negated.inputs[0]) if negated is not None else None


def powers(node: Node, at: Rewriter) -> Replacement:
    """``Pow`` with exponent 1, 2, 3, ½, -½, -1."""
    if not isinstance(node.op, Pow) or not keeps_shape(at, node, node.inputs[0]):
        return None
    x, exponent = node.inputs[0], scalar(at, node.inputs[1])
    is_float = at.type_of(x).dtype.is_float
    match exponent:
        case 1.0:
            return x
        case 2.0:
            return at.emit(Mul(), x, x)
        case 3.0:
            return at.emit(Mul(), at.emit(Mul(), x, x), x)
        case 0.5 if is_float:
            return at.emit(Sqrt(), x)
        case -0.5 if is_float:
            return at.emit(Rsqrt(), x)
        case -1.0 if is_float:
            return at.emit(Reciprocal(), x)
        case _:
            return None


def divide_by_constant(node: Node, at: Rewriter) -> Replacement:
    """``x / c`` as ``x * (1/c)`` where 1/c neither overflows nor underflows."""
    data = at.constant_value(node.inputs[1]) if isinstance(node.op, Div) else None
    if data is None or not at.type_of(node.inputs[0]).dtype.is_float:
        return None
    with np.errstate(all="ignore"):
        inverse = np.asarray(1.0 / data.astype(np.float64)).astype(data.dtype)
    return at.emit(Mul(), node.inputs[0], at.constant(inverse)) if _is_normal(inverse) else None


def _is_normal(data: Array) -> bool:
    size = np.abs(data.astype(np.float64))
    bits = 5 if data.dtype.name == "float16" else 8
    tiny = 2.0 ** (2 - 2 ** (bits - 1)) if data.dtype != np.float64 else 2.0**-1022
    return bool((np.isfinite(size) & (size >= tiny)).all())


def reciprocal(node: Node, at: Rewriter) -> Replacement:
    """``1 / x``."""
    if not isinstance(node.op, Div) or scalar(at, node.inputs[0]) != 1.0:
        return None
    x = node.inputs[1]
    fits = keeps_shape(at, node, x) and at.type_of(x).dtype.is_float
    return at.emit(Reciprocal(), x) if fits else None


def divide_by_root(node: Node, at: Rewriter) -> Replacement:
    """``x / sqrt(y)`` where there are fewer roots than quotients."""
    root = made_by(at, node.inputs[1], Sqrt) if isinstance(node.op, Div) else None
    if root is None or keeps_shape(at, node, node.inputs[1]):
        return None
    return at.emit(Mul(), node.inputs[0], at.emit(Rsqrt(), root.inputs[0]))


def factors_in_a_row(node: Node, at: Rewriter) -> Replacement:
    """``(x * a) * b`` with constants a and b."""
    combined = _in_a_row(node, at, Mul) if isinstance(node.op, Mul) else None
    if combined is None:
        return None
    x, a, b = combined
    with np.errstate(all="ignore"):
        both = np.asarray(a * b)
    exact = not at.type_of(x).dtype.is_float
    if not exact and not (_is_normal(both) or not both.any()):
        return None
    return at.emit(Mul(), x, at.constant(both))


def addends_in_a_row(node: Node, at: Rewriter) -> Replacement:
    """``(x + a) + b`` with integer constants a and b."""
    combined = _in_a_row(node, at, Add) if isinstance(node.op, Add) else None
    if combined is None or not at.type_of(node.outputs[0]).dtype.is_integer:
        return None
    x, a, b = combined
    return at.emit(Add(), x, at.constant(np.asarray(a + b)))


def _in_a_row(node: Node, at: Rewriter, kind: type[Add | Mul]) -> tuple[str, Array, Array] | None:
    """(x, a, b) of ``kind(kind(x, a), b)``, read once, where a and b do not broadcast x."""
    for name, outer in swapped(node):
        b, inner = at.constant_value(outer), made_by(at, name, kind)
        if b is None or inner is None or at.uses(name) > 1:
            continue
        for x, constant in swapped(inner):
            a = at.constant_value(constant)
            if a is not None and at.type_of(x) == at.type_of(node.outputs[0]):
                return x, a, b
    return None


def idempotent(node: Node, at: Rewriter) -> Replacement:
    """``f(f(x))`` of an idempotent function; ``abs(-x)``."""
    if not isinstance(node.op, Relu | Abs | Floor | Ceil | Round | Sign):
        return None
    inner = made_by(at, node.inputs[0], type(node.op))
    if inner is not None:
        return node.inputs[0]
    negated = made_by(at, node.inputs[0], Neg) if isinstance(node.op, Abs) else None
    return at.emit(Abs(), negated.inputs[0]) if negated is not None else None


def known_where(node: Node, at: Rewriter) -> Replacement:
    """A selection with a constant condition."""
    condition = at.constant_value(node.inputs[0]) if isinstance(node.op, Where) else None
    if condition is None or not condition.size or condition.any() != condition.all():
        return None
    chosen = node.inputs[1] if condition.all() else node.inputs[2]
    return chosen if keeps_shape(at, node, chosen) else None


def casts_in_a_row(node: Node, at: Rewriter) -> Replacement:
    """A cast of a lossless cast."""
    inner = made_by(at, node.inputs[0], Cast) if isinstance(node.op, Cast) else None
    if inner is None or not isinstance(node.op, Cast):
        return None
    x = inner.inputs[0]
    origin, middle = at.type_of(x).dtype, at.type_of(inner.outputs[0]).dtype
    if not _holds(middle, origin):
        return None
    return x if node.op.to == origin else at.emit(node.op, x)


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of ``narrow`` is representable in ``wide``."""
    if narrow == BOOL:
        return wide.kind in ("int", "uint", "float")
    if wide.kind == narrow.kind and wide.kind in ("int", "uint"):
        return wide.bits >= narrow.bits
    exact = {"f32": ("f16", "bf16", "i16", "i8", "u16", "u8"), "f64": ("f32", "f16", "bf16")}
    return narrow.name in exact.get(wide.name, ())
