"""Transposed convolutions of stride 1 as convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from modelcc.ir.graph import Graph, Node
from modelcc.ir.index import Index
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ops.conv import Conv, ConvTranspose
from modelcc.ops.shape import Reshape, Transpose
from modelcc.ops.slicing import Slice


@dataclass(frozen=True)
class ConvTransposeToConv:
    """A ConvTranspose of stride 1 is a Conv by the flipped filter, with inputs and outputs
    exchanged (Dumoulin and Visin, "A guide to convolution arithmetic for deep learning", 2016,
    section 4).  The filter is a constant, or, with ``computed``, any value.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<1x2x5x5xf32>, %w: tensor<2x4x3x2xf32>):
          %y = "mcc.ConvTranspose"(%x, %w)
              {strides = [1, 1], pads_before = [0, 1], pads_after = [1, 0], dilations = [1, 1],
               groups = 1, output_padding = [0, 0]}
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<1x2x5x5xf32>, %w: tensor<2x4x3x2xf32>):
          %f = "mcc.Slice"(%w)
              {starts = [0, 0, 2, 1], extents = [2, 4, 3, 2], steps = [1, 1, -1, -1]}
          %t = "mcc.Transpose"(%f) {perm = [1, 0, 2, 3]}
          %y = "mcc.Conv"(%x, %t)
              {strides = [1, 1], pads_before = [2, 0], pads_after = [1, 1], dilations = [1, 1],
               groups = 1}
          "mcc.return"(%y)
        })
    """

    computed: bool = True
    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        return rewrite(graph, (partial(flip, self.computed),), self.limit)


def flip(computed: bool, node: Node, at: Rewriter) -> Replacement:
    """The equivalent convolution, if the op crops no more than its windows reach."""
    op = node.op
    if not isinstance(op, ConvTranspose) or any(step != 1 for step in op.strides):
        return None
    x, w, *bias = node.inputs
    if not computed and at.constant_value(w) is None:
        return None
    extents = at.type_of(w).shape[2:]
    reaches = [d * (e - 1) for d, e in zip(op.dilations, extents, strict=True)]
    before = tuple(r - pad for r, pad in zip(reaches, op.pads_before, strict=True))
    ends = zip(reaches, op.pads_after, op.output_padding, strict=True)
    after = tuple(reach - pad + more for reach, pad, more in ends)
    if not all(isinstance(n, int) and n >= 0 for n in (*extents, *before, *after)):
        return None
    conv = Conv(op.strides, before, after, op.dilations, op.groups)
    return at.emit(conv, x, _turned(at, w, op.groups), *bias)


def _turned(at: Rewriter, filter_: str, groups: int) -> str:
    """A filter [inputs, outputs of a group, *window] as [outputs, inputs of a group, *window], with
    flipped windows."""
    inputs, outputs, *window = at.type_of(filter_).shape
    starts: tuple[Index, ...] = (0, 0, *(extent - 1 for extent in window))
    extents = (inputs, outputs, *window)
    turned = at.emit(Slice(starts, extents, (1, 1, *(-1 for _ in window))), filter_)
    axes = tuple(range(2, 2 + len(window)))
    if groups == 1:
        return at.emit(Transpose((1, 0, *axes)), turned)
    assert isinstance(inputs, int)
    parted = at.emit(Reshape((groups, inputs // groups, outputs, *window)), turned)
    order = (0, 2, 1, *(axis + 1 for axis in axes))
    swapped = at.emit(Transpose(order), parted)
    return at.emit(Reshape((groups * outputs, inputs // groups, *window)), swapped)
