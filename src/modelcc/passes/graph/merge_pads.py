"""Folds padding into convolutions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ops.conv import Conv
from modelcc.ops.padding import Pad
from modelcc.ops.quant import Recentre
from modelcc.ops.quant_matmul import ConvInteger


@dataclass(frozen=True)
class MergePads:
    """A Pad by the value of a convolution's own padding becomes part of that.

    For a Conv that is 0, for a ConvInteger its zero point or ``padding``.  This avoids a copy of
    the image, and allows its producer to be fused.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<1x2x5x5xf32>):
          %w = "mcc.constant"() {digest = "w"} : () -> tensor<4x2x3x3xf32>
          %p = "mcc.Pad"(%x)
              {before = [0, 0, 1, 0], after = [0, 0, 1, 2], mode = "constant", value = 0.0}
          %y = "mcc.Conv"(%p, %w)
              {strides = [1, 1], pads_before = [0, 1], pads_after = [0, 0], dilations = [1, 1],
               groups = 1}
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<1x2x5x5xf32>):
          %w = "mcc.constant"() {digest = "w"} : () -> tensor<4x2x3x3xf32>
          %y = "mcc.Conv"(%x, %w)
              {strides = [1, 1], pads_before = [1, 1], pads_after = [1, 2], dilations = [1, 1],
               groups = 1}
          "mcc.return"(%y)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        return rewrite(graph, (_floats, _integers), self.limit)


def _floats(node: Node, at: Rewriter) -> Replacement:
    made = at.producer(node.inputs[0]) if isinstance(node.op, Conv) else None
    pad = None if made is None else _of_image(made)
    if made is None or pad is None or pad.value != 0:
        return None
    return at.emit(_padded(node.op, pad), made.inputs[0], *node.inputs[1:])


def _integers(node: Node, at: Rewriter) -> Replacement:
    """With or without a change of signedness in between."""
    if not isinstance(node.op, ConvInteger):
        return None
    made = at.producer(node.inputs[0])
    turned = made is not None and isinstance(made.op, Recentre)
    if made is not None and turned:
        made = at.producer(made.inputs[0])
    pad = None if made is None else _of_image(made)
    if made is None or pad is None:
        return None
    value = np.asarray(pad.value, at.type_of(made.inputs[0]).dtype.numpy)
    op = _meaning(node, at, int(Recentre().reference(value) if turned else value))
    if op is None:
        return None
    image = at.emit(Recentre(), made.inputs[0]) if turned else made.inputs[0]
    return at.emit(_padded(op, pad), image, *node.inputs[1:])


def _of_image(node: Node) -> Pad | None:
    """The Pad of a node, if it adds a constant around images."""
    op = node.op
    if not isinstance(op, Pad) or op.mode != "constant" or any((*op.before[:2], *op.after[:2])):
        return None
    known = all(isinstance(e, int) and e >= 0 for e in (*op.before, *op.after))
    return op if known else None


def _meaning(node: Node, at: Rewriter, value: int) -> ConvInteger | None:
    """The op of a convolution if it pads by ``value``, or can."""
    op = node.op
    assert isinstance(op, ConvInteger)
    if len(node.inputs) > 2 and node.inputs[2]:
        zero = at.constant_value(node.inputs[2])
        return op if zero is not None and int(zero.reshape(())) == value else None
    if not any((*op.pads_before, *op.pads_after)):
        return replace(op, padding=value)
    return op if op.padding == value else None


def _padded(op: Any, pad: Pad) -> Any:
    return replace(
        op,
        pads_before=tuple(a + b for a, b in zip(op.pads_before, pad.before[2:], strict=True)),
        pads_after=tuple(a + b for a, b in zip(op.pads_after, pad.after[2:], strict=True)),
    )
