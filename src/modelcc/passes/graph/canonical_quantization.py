"""Canonical form of quantised models: u8 tensors, and DequantizeLinear before float ops."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ir.types import I8, U8, Array, dtype_of
from modelcc.ops.activation import Clip, Relu
from modelcc.ops.broadcast import Reshape
from modelcc.ops.matmul import MatMul
from modelcc.ops.quant import DequantizeLinear, QuantizeLinear, Recentre, limits
from modelcc.ops.quant_matmul import QLinearConv, QLinearMatMul
from modelcc.ops.shape import Concat, Transpose
from modelcc.passes.graph.products import made_by
from modelcc.passes.graph.quantized_values import BYTES, MOVEMENT, dequantised, parameters


@dataclass(frozen=True)
class CanonicalQuantization:
    """QLinear ops are decomposed, bytes are unsigned and are moved before conversion to floats.

    - ``QLinearConv`` and ``QLinearMatMul`` are an op between DequantizeLinear and QuantizeLinear.
    - Data movement of dequantised values is dequantisation of moved bytes.
    - Values quantised to i8 and dequantised again are u8 with a zero point 128 higher; where bytes
      of any ``signs`` are multiplied, not those whose zero point is 0, which pads are then, too.
    - QuantizeLinear cancels DequantizeLinear of the same parameters; it absorbs Relu and Clip
      whose bounds are not inside its own.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<1x2x4x4xf32>):
          %s = "mcc.constant"() {value = dense<0.5> : tensor<f32>}
          %z = "mcc.constant"() {value = dense<-128> : tensor<i8>}
          %r = "mcc.Relu"(%x)
          %q = "mcc.QuantizeLinear"(%r, %s, %z) {to = i8, axis = 0, block = 0}
          %d = "mcc.DequantizeLinear"(%q, %s, %z) {axis = 0, block = 0}
          %m = "mcc.Transpose"(%d) {perm = [0, 2, 3, 1]}
          %p = "mcc.QuantizeLinear"(%m, %s, %z) {to = i8, axis = 0, block = 0}
          %y = "mcc.DequantizeLinear"(%p, %s, %z) {axis = 0, block = 0}
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<1x2x4x4xf32>):
          %s = "mcc.constant"() {value = dense<0.5> : tensor<f32>}
          %z = "mcc.constant"() {value = dense<0> : tensor<ui8>}
          %q = "mcc.QuantizeLinear"(%x, %s, %z) {to = ui8, axis = 0, block = 0}
          %m = "mcc.Transpose"(%q) {perm = [0, 2, 3, 1]}
          %y = "mcc.DequantizeLinear"(%m, %s, %z) {axis = 0, block = 0}
          "mcc.return"(%y)
        })
    """

    signs: bool = False
    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        rules = (
            *(written_out, moved_bytes, joined_bytes, undone, absorbed),
            *(self._unsigned, recentred_early, recentred_before_movement, recentred_twice),
        )
        return rewrite(graph, rules, self.limit)

    def _unsigned(self, node: Node, at: Rewriter) -> Replacement:
        return unsigned(node, at, self.signs)


def written_out(node: Node, at: Rewriter) -> Replacement:
    """A QLinear op with constant scales as an op on dequantised operands."""
    if not isinstance(node.op, QLinearConv | QLinearMatMul):
        return None
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *rest = node.inputs
    scales = (at.constant_value(x_scale), at.constant_value(w_scale))
    first, second = scales
    if first is None or second is None or first.size != 1:
        return None
    is_conv = isinstance(node.op, QLinearConv)
    if is_conv and at.constant_value(w) is None:
        return None  # no integer rule would match it
    axis = 0 if is_conv else at.type_of(w).rank - 1
    operands = [
        at.emit(DequantizeLinear(0), x, x_scale, x_zero),
        at.emit(DequantizeLinear(axis), w, w_scale, w_zero),
    ]
    if rest and rest[0]:
        scale = np.asarray(first.reshape(()) * second, np.float32)
        operands.append(at.emit(DequantizeLinear(0), rest[0], at.constant(scale)))
    op = node.op.integer.conv if isinstance(node.op, QLinearConv) else MatMul()
    real = at.emit(op, *operands)
    return at.emit(QuantizeLinear(at.type_of(y_zero).dtype, 0), real, y_scale, y_zero)


def moved_bytes(node: Node, at: Rewriter) -> Replacement:
    """Movement of a dequantised value."""
    if not isinstance(node.op, MOVEMENT) or len(node.outputs) != 1:
        return None
    made = made_by(at, node.inputs[0], DequantizeLinear)
    value = dequantised(at, node.inputs[0])
    if made is None or value is None or value.dtype not in BYTES:
        return None
    axis = 0 if value.per_tensor else _moved_axis(node, value.axis)
    if axis is None:
        return None
    data = at.constant_value(value.name)
    if data is not None and isinstance(node.op, Reshape | Transpose):
        moved = at.constant(np.asarray(node.op.reference(data)))
    else:
        moved = at.emit(node.op, value.name, *node.inputs[1:])
    return at.emit(DequantizeLinear(axis), moved, *made.inputs[1:])


def _moved_axis(node: Node, axis: int) -> int | None:
    return node.op.perm.index(axis) if isinstance(node.op, Transpose) else None


def joined_bytes(node: Node, at: Rewriter) -> Replacement:
    """Concatenation of values that are dequantised alike."""
    if not isinstance(node.op, Concat):
        return None
    operands = [dequantised(at, name) for name in node.inputs]
    values = [value for value in operands if value is not None and value.per_tensor]
    alike = {(value.dtype, float(value.scale), int(value.zero)) for value in values}
    if len(values) < len(node.inputs) or len(alike) != 1:
        return None
    joined = at.emit(node.op, *(value.name for value in values))
    made = made_by(at, node.inputs[0], DequantizeLinear)
    return None if made is None else at.emit(DequantizeLinear(0), joined, *made.inputs[1:])


def undone(node: Node, at: Rewriter) -> Replacement:
    """Quantisation of a value dequantised by the same parameters."""
    if not isinstance(node.op, QuantizeLinear):
        return None
    value, own = dequantised(at, node.inputs[0]), parameters(at, node, node.op.to)
    if value is None or own is None or value.dtype != node.op.to:
        return None
    same = value.per_tensor and own[0].ndim == 0 and own[1].ndim == 0
    return value.name if same and (value.scale, value.zero) == own else None


def absorbed(node: Node, at: Rewriter) -> Replacement:
    """Quantisation of bounded values, if its own range is as narrow."""
    if not isinstance(node.op, QuantizeLinear):
        return None
    bounded = made_by(at, node.inputs[0], Relu, Clip)
    own = parameters(at, node, node.op.to)
    if bounded is None or own is None or any(p.ndim for p in own):
        return None
    scale, zero = (float(p) for p in own)
    low, high = ((limit - zero) * scale for limit in limits(node.op.to))
    least, most = (bounded.op.low, bounded.op.high) if isinstance(bounded.op, Clip) else (0.0, None)
    if (least is not None and least > low) or (most is not None and most < high):
        return None
    return at.emit(node.op, bounded.inputs[0], *node.inputs[1:])


# --- unsigned bytes


def unsigned(node: Node, at: Rewriter, signs: bool) -> Replacement:
    """Dequantisation of i8 that a QuantizeLinear made, moved or not; with ``signs``, only if it has
    a zero point."""
    value = dequantised(at, node.outputs[0])
    if value is None or value.dtype != I8 or not value.per_tensor:
        return None
    if signs and not value.zero.any():
        return None
    if not isinstance(node.op, DequantizeLinear) or _origin(at, value.name) is None:
        return None
    return at.emit(
        DequantizeLinear(0),
        at.emit(Recentre(), value.name),
        node.inputs[1],
        at.constant(recentred(value.zero.astype(np.int8))),
    )


def recentred(zero: Array) -> Array:
    """A zero point for the other signedness."""
    return Recentre().reference(np.asarray(zero))


def _origin(at: Rewriter, name: str) -> Node | None:
    """The QuantizeLinear of whose results ``name`` consists, with a constant zero point."""
    node = at.producer(name)
    while node is not None and isinstance(node.op, MOVEMENT):
        node = at.producer(node.inputs[0])
    if node is None or not isinstance(node.op, QuantizeLinear) or node.op.block:
        return None
    zero = node.inputs[2] if len(node.inputs) > 2 else ""
    return node if not zero or at.constant_value(zero) is not None else None


def recentred_early(node: Node, at: Rewriter) -> Replacement:
    """Quantisation to bytes that are then recentred, and recentred constants."""
    if not isinstance(node.op, Recentre):
        return None
    data = at.constant_value(node.inputs[0])
    if data is not None:
        return at.constant(node.op.reference(data))
    made = made_by(at, node.inputs[0], QuantizeLinear)
    if made is None or not isinstance(made.op, QuantizeLinear) or made.op.block:
        return None
    given = made.inputs[2] if len(made.inputs) > 2 else ""
    zero = at.constant_value(given) if given else np.zeros((), made.op.to.numpy)
    if zero is None:
        return None
    other = recentred(zero)
    op = replace(made.op, to=U8 if dtype_of(other) == U8 else I8)
    return at.emit(op, *made.inputs[:2], at.constant(other))


def recentred_before_movement(node: Node, at: Rewriter) -> Replacement:
    """Movement of bytes that are then recentred."""
    moved = made_by(at, node.inputs[0], *MOVEMENT) if isinstance(node.op, Recentre) else None
    if moved is None:
        return None
    return at.emit(moved.op, at.emit(Recentre(), moved.inputs[0]), *moved.inputs[1:])


def recentred_twice(node: Node, at: Rewriter) -> Replacement:
    """Cancels recentring there and back."""
    inner = made_by(at, node.inputs[0], Recentre) if isinstance(node.op, Recentre) else None
    return None if inner is None else inner.inputs[0]
