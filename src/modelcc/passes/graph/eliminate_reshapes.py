"""Fewer reshapes: merged, cancelled, moved together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from modelcc.ir.graph import Graph, Node
from modelcc.ir.index import Index
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ops.arithmetic import Elementwise
from modelcc.ops.elementwise import Cast
from modelcc.ops.matmul import MatMul
from modelcc.ops.shape import Expand, Reshape
from modelcc.passes.graph.products import leads_to, made_by


@dataclass(frozen=True)
class EliminateReshapes:
    """Removes reshapes to the same shape, merges consecutive ones, cancels those around ops, and
    those that only merge batch axes for a matrix product.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3x4xf32>):
          %r = "mcc.Reshape"(%x) {shape = [6, 4]}
          %t = "mcc.Tanh"(%r)
          %y = "mcc.Reshape"(%t) {shape = [2, 3, 4]}
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3x4xf32>):
          %y = "mcc.Tanh"(%x)
          "mcc.return"(%y)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        return rewrite(graph, (merge, no_expansion, sink, sink_unit_axes, batches), self.limit)


def merge(node: Node, at: Rewriter) -> Replacement:
    """A reshape of a reshape, or to the operand's own shape."""
    if not isinstance(node.op, Reshape):
        return None
    (x,) = node.inputs
    if at.type_of(x) == at.type_of(node.outputs[0]):
        return x
    inner = made_by(at, x, Reshape)
    return at.emit(node.op, inner.inputs[0]) if inner is not None else None


def no_expansion(node: Node, at: Rewriter) -> Replacement:
    """An expansion to the operand's own shape."""
    same = at.type_of(node.inputs[0]) == at.type_of(node.outputs[0]) if node.inputs else False
    return node.inputs[0] if isinstance(node.op, Expand) and same else None


def sink(node: Node, at: Rewriter) -> Replacement:
    """Moves a reshape below a function of one value, if a reshape follows."""
    if not isinstance(node.op, Elementwise | Cast) or len(node.outputs) != 1:
        return None
    computed = [n for n in node.inputs if not _is_scalar(at, n)]
    inner = made_by(at, computed[0], Reshape) if len(computed) == 1 else None
    if inner is None or at.uses(computed[0]) > 1 or not _meets_reshape(node, at):
        return None
    operands = (inner.inputs[0] if n == computed[0] else n for n in node.inputs)
    shape = at.type_of(node.outputs[0]).shape
    return at.emit(Reshape(shape), at.emit(node.op, *operands))


def sink_unit_axes(node: Node, at: Rewriter) -> Replacement:
    """The same for a reshape that only adds axes of extent 1, if no operand needs these."""
    if not isinstance(node.op, Elementwise | Cast) or len(node.outputs) != 1:
        return None
    inner = next((n for n in (made_by(at, i, Reshape) for i in node.inputs) if n), None)
    shape = at.type_of(node.outputs[0]).shape
    if inner is None or at.uses(inner.outputs[0]) > 1 or not _meets_reshape(node, at):
        return None
    x, reshaped = inner.inputs[0], at.type_of(inner.outputs[0]).shape
    added = _added_axes(at.type_of(x).shape, reshaped)
    if not added or reshaped != shape:
        return None
    operands = [
        x if n == inner.outputs[0] else _without_axes(at, n, added, len(shape)) for n in node.inputs
    ]
    known = [n for n in operands if n is not None]
    if len(known) < len(operands):
        return None
    return at.emit(Reshape(shape), at.emit(node.op, *known))


def batches(node: Node, at: Rewriter) -> Replacement:
    """A matrix product with one batch axis between reshapes that merge and split it is computed
    with the split axes.

    PyTorch decomposes products with several batch axes to ``bmm``, which would hide attention
    from recognition.
    """
    product = made_by(at, node.inputs[0], MatMul) if isinstance(node.op, Reshape) else None
    if product is None or at.uses(product.outputs[0]) > 1:
        return None
    before, after = (at.type_of(n.outputs[0]).shape for n in (product, node))
    factors = [at.type_of(name).shape for name in product.inputs]
    if len(before) != 3 or len(after) < 4 or after[-2:] != before[-2:]:
        return None
    joined = [n for n in (made_by(at, name, Reshape) for name in product.inputs) if n]
    if len(joined) < 2 or any(len(shape) != 3 or shape[0] != before[0] for shape in factors):
        return None
    operands = (
        at.emit(Reshape((*after[:-2], *shape[-2:])), inner.inputs[0])
        for inner, shape in zip(joined, factors, strict=True)
    )
    return at.emit(product.op, *operands)


def _added_axes(shape: Sequence[Index], longer: Sequence[Index]) -> tuple[int, ...]:
    """Axes of extent 1 that only ``longer`` has; none if they differ otherwise."""
    added: list[int] = []
    position = 0
    for axis, extent in enumerate(longer):
        if position < len(shape) and shape[position] == extent:
            position += 1
        elif extent == 1:
            added.append(axis)
        else:
            return ()
    return tuple(added) if position == len(shape) else ()


def _without_axes(at: Rewriter, name: str, axes: Sequence[int], rank: int) -> str | None:
    """A constant without ``axes`` of the ``rank`` it broadcasts to; None if not constant."""
    data = at.constant_value(name)
    if data is None:
        return name if _is_scalar(at, name) else None
    whole = data.reshape((1,) * (rank - data.ndim) + data.shape)
    if any(whole.shape[axis] != 1 for axis in axes):
        return None
    kept = tuple(d for axis, d in enumerate(whole.shape) if axis not in axes)
    return at.constant(whole.reshape(kept))


def _is_scalar(at: Rewriter, name: str) -> bool:
    return at.type_of(name).rank == 0


def _meets_reshape(node: Node, at: Rewriter) -> bool:
    return leads_to(at, node, Reshape, lambda name: _is_scalar(at, name))
