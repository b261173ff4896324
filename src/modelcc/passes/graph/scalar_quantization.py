"""Quantisation by constants as elementwise arithmetic, which fuses with its surroundings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ir.types import F32, Array
from modelcc.ops.activation import Clip
from modelcc.ops.elementwise import Add, Cast, Mul, Round
from modelcc.ops.quant import DequantizeLinear, QuantizeLinear, Saturate, limits
from modelcc.passes.graph.products import keeps_shape, made_by, swapped
from modelcc.passes.graph.quantized_values import along, dequantised, parameters


@dataclass(frozen=True)
class ScalarQuantization:
    """QuantizeLinear and DequantizeLinear by constants as Mul, Add and one conversion.

    ``x / scale`` is ``x * (1 / scale)``, which may round differently in the last place.  Values
    that are quantised and immediately dequantised stay floats.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x4xui8>):
          %s = "mcc.constant"() {value = dense<0.5> : tensor<f32>}
          %z = "mcc.constant"() {value = dense<3> : tensor<ui8>}
          %t = "mcc.constant"() {value = dense<0.25> : tensor<f32>}
          %a = "mcc.DequantizeLinear"(%x, %s, %z) {axis = 0, block = 0}
          %y = "mcc.QuantizeLinear"(%a, %t) {to = ui8, axis = 0, block = 0}
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x4xui8>):
          %z = "mcc.constant"() {value = dense<-3.0> : tensor<f32>}
          %t = "mcc.constant"() {value = dense<2.0> : tensor<f32>}
          %f = "mcc.Cast"(%x) {to = f32}
          %c = "mcc.Add"(%f, %z)
          %e = "mcc.Mul"(%c, %t)
          %y = "mcc.Saturate"(%e) {to = ui8}
          "mcc.return"(%y)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        return rewrite(graph, (quantised, dequantised_by_constants, stays_float), self.limit)


def quantised(node: Node, at: Rewriter) -> Replacement:
    """QuantizeLinear of f32 to integers of up to 16 bits."""
    if not isinstance(node.op, QuantizeLinear) or not node.op.to.is_integer:
        return None
    x = node.inputs[0]
    own = parameters(at, node, node.op.to)
    if own is None or at.type_of(x).dtype != F32 or not 8 <= node.op.to.bits <= 16:
        return None
    scale, zero = (along(p, node.op.axis, at.type_of(x).rank) for p in own)
    x, factor = _unscaled(at, x)
    with np.errstate(all="ignore"):
        factor = np.asarray(factor / scale)
    if not np.isfinite(factor).all():
        return None
    value = at.emit(Mul(), x, at.constant(factor))
    if zero.any():
        # Rounded first, since a sum with the zero point is rounded differently near halves.
        value = at.emit(Add(), at.emit(Round(), value), at.constant(zero.astype(np.float32)))
    return at.emit(Saturate(node.op.to), value)


def _unscaled(at: Rewriter, name: str) -> tuple[str, Array]:
    """(x, c) where ``name`` is ``x * c`` with f32 constants c, to round one quotient only."""
    node = made_by(at, name, Mul)
    if node is not None and at.uses(name) == 1:
        for x, constant in swapped(node):
            data = at.constant_value(constant)
            if data is not None and keeps_shape(at, node, x):
                return x, data
    return name, np.ones((), np.float32)


def dequantised_by_constants(node: Node, at: Rewriter) -> Replacement:
    """DequantizeLinear to f32."""
    if not isinstance(node.op, DequantizeLinear):
        return None
    value = dequantised(at, node.outputs[0])
    if value is None or at.constant_value(value.name) is not None:
        return None
    rank = at.type_of(value.name).rank
    scale, zero = (along(p, value.axis, rank) for p in (value.scale, value.zero))
    real = at.emit(Cast(F32), value.name)
    if zero.any():
        real = at.emit(Add(), real, at.constant(-zero.astype(np.float32)))
    return at.emit(Mul(), real, at.constant(np.asarray(scale, np.float32)))


def stays_float(node: Node, at: Rewriter) -> Replacement:
    """Conversion back to f32 of an integer that has no other reader."""
    if node.op != Cast(F32):
        return None
    made = made_by(at, node.inputs[0], Saturate)
    if made is None or not isinstance(made.op, Saturate) or at.uses(node.inputs[0]) > 1:
        return None
    low, high = limits(made.op.to)
    return at.emit(Round(), at.emit(Clip(float(low), float(high)), made.inputs[0]))
