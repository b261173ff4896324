"""Convolutions without the taps that only read padding."""

from __future__ import annotations

from dataclasses import dataclass, replace

from modelcc.ir.graph import Graph, Node
from modelcc.ir.index import Index
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ops.conv import Conv
from modelcc.ops.window import Window


@dataclass(frozen=True)
class TrimWindows:
    """Removes taps at the ends of a window that are outside of the input at all positions.

    For small inputs, wide dilations and borders leave few taps: 3×3 windows over one element are
    1×1, and so are the outer branches of pyramids (ASPP) on small images.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<1x4x1x8xf32>):
          %w = "mcc.constant"() {digest = "w"} : () -> tensor<2x4x3x3xf32>
          %y = "mcc.Conv"(%x, %w)
              {strides = [1, 1], pads_before = [1, 1], pads_after = [1, 1], dilations = [1, 1],
               groups = 1}
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<1x4x1x8xf32>):
          %w = "mcc.constant"() {digest = "v"} : () -> tensor<2x4x1x3xf32>
          %y = "mcc.Conv"(%x, %w)
              {strides = [1, 1], pads_before = [0, 1], pads_after = [0, 1], dilations = [1, 1],
               groups = 1}
          "mcc.return"(%y)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        return rewrite(graph, (self._trim,), self.limit)

    def _trim(self, node: Node, at: Rewriter) -> Replacement:
        if not isinstance(node.op, Conv):
            return None
        weights = at.constant_value(node.inputs[1])
        if weights is None:
            return None
        op, window = node.op, node.op.window(weights.shape)
        shapes = (at.type_of(name).shape[2:] for name in (node.inputs[0], node.outputs[0]))
        spans = [
            _span(window, axis, size, extent)
            for axis, (size, extent) in enumerate(zip(*shapes, strict=True))
        ]
        if all(len(span) == taps for span, taps in zip(spans, weights.shape[2:], strict=True)):
            return None
        around = zip(spans, weights.shape[2:], op.dilations, strict=True)
        dropped = [(span.start * d, (taps - span.stop) * d) for span, taps, d in around]
        trimmed = replace(
            op,
            pads_before=tuple(p - d for p, (d, _) in zip(op.pads_before, dropped, strict=True)),
            pads_after=tuple(p - d for p, (_, d) in zip(op.pads_after, dropped, strict=True)),
        )
        kept = weights[(..., *(slice(span.start, span.stop) for span in spans))]
        return at.emit(trimmed, node.inputs[0], at.constant(kept), *node.inputs[2:])


def _span(window: Window, axis: int, size: Index, extent: Index) -> range:
    """The taps from the first to the last that read an element at some position; at least one."""
    taps, last = window.kernel[axis], extent - 1
    assert isinstance(taps, int)
    inside = [
        tap
        for tap in range(taps)
        if not _below(window.position(axis, last, tap), 0)
        and not _below(size - 1, window.position(axis, 0, tap))
    ]
    return range(inside[0], inside[-1] + 1) if inside else range(1)


def _below(a: Index, b: Index) -> bool:
    """Whether ``a`` is provably less than ``b``."""
    difference = a - b
    return isinstance(difference, int) and difference < 0
