"""Fewer transposes: merged, cancelled, moved together, absorbed by matrix products."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ops.arithmetic import Elementwise
from modelcc.ops.elementwise import Add, Cast, Mul
from modelcc.ops.matmul import Einsum, Gemm, MatMul
from modelcc.ops.padding import Pad
from modelcc.ops.shape import Reshape, Transpose
from modelcc.passes.graph.permutations import Permutation, inverse, is_identity, transposed
from modelcc.passes.graph.products import leads_to, made_by


@dataclass(frozen=True)
class EliminateTransposes:
    """Transposes are merged, cancelled, turned into views and moved towards others.

    A transpose moves below elementwise ops and pads if another one follows, if all operands have
    the same one or ones that move the same axis from the end, or if a constant is multiplied or
    added that preceding weights may absorb; constants are transposed at compile time.  ``Gemm``,
    matrix products and ``Einsum`` read transposed operands directly.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3x4xf32>):
          %c = "mcc.constant"() {digest = "c"} : () -> tensor<3xf32>
          %t = "mcc.Transpose"(%x) {perm = [0, 2, 1]}
          %a = "mcc.Add"(%t, %c)
          %r = "mcc.Relu"(%a)
          %y = "mcc.Transpose"(%r) {perm = [0, 2, 1]}
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3x4xf32>):
          %c = "mcc.constant"() {digest = "d"} : () -> tensor<1x3x1xf32>
          %a = "mcc.Add"(%x, %c)
          %y = "mcc.Relu"(%a)
          "mcc.return"(%y)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        return rewrite(
            graph, (merge, to_reshape, sink, behind_pad, into_product, into_einsum), self.limit
        )


def merge(node: Node, at: Rewriter) -> Replacement:
    """A transpose of a transpose, or an identity."""
    if not isinstance(node.op, Transpose):
        return None
    (x,) = node.inputs
    if is_identity(node.op.perm):
        return x
    return transposed(at, x, node.op.perm) if made_by(at, x, Transpose) else None


def to_reshape(node: Node, at: Rewriter) -> Replacement:
    """A transpose that only moves axes of extent 1 is a view."""
    if not isinstance(node.op, Transpose):
        return None
    shape = at.type_of(node.inputs[0]).shape
    moved = [axis for axis in node.op.perm if shape[axis] != 1]
    if moved != sorted(moved):
        return None
    return at.emit(Reshape(at.type_of(node.outputs[0]).shape), node.inputs[0])


def sink(node: Node, at: Rewriter) -> Replacement:
    """An elementwise op of transposed operands becomes a transposed elementwise op."""
    if not isinstance(node.op, Elementwise | Cast) or len(node.outputs) != 1:
        return None
    inner = [made_by(at, name, Transpose) for name in node.inputs]
    perms = dict.fromkeys(n.op.perm for n in inner if n and isinstance(n.op, Transpose))
    if not perms or any(at.uses(n.outputs[0]) > 1 for n in inner if n):
        return None
    if len({perm.index(len(perm) - 1) for perm in perms}) > 1:
        return None
    perm = next(iter(perms))
    moved = sum(n is not None for n in inner)
    affine = isinstance(node.op, Mul | Add) and at.constant_value(node.inputs[1]) is not None
    if moved < 2 and not affine and not _meets_transpose(node, at):
        return None
    if at.type_of(node.outputs[0]).rank != len(perm):
        return None
    undone = [_undone(at, name, perm) for name in node.inputs]
    operands = [name for name in undone if name is not None]
    if len(operands) < len(undone):
        return None
    return at.emit(Transpose(perm), at.emit(node.op, *operands))


def behind_pad(node: Node, at: Rewriter) -> Replacement:
    """A pad between transposes becomes a transposed pad."""
    pad, inner = node.op, made_by(at, node.inputs[0], Transpose) if node.inputs else None
    if not isinstance(pad, Pad) or inner is None or not isinstance(inner.op, Transpose):
        return None
    if at.uses(inner.outputs[0]) > 1 or not _meets_transpose(node, at):
        return None
    back = inverse(inner.op.perm)
    before, after = (tuple(side[axis] for axis in back) for side in (pad.before, pad.after))
    moved = at.emit(replace(pad, before=before, after=after), inner.inputs[0])
    return at.emit(inner.op, moved)


def _meets_transpose(node: Node, at: Rewriter) -> bool:
    return leads_to(at, node, Transpose, lambda name: at.constant_value(name) is not None)


def _undone(at: Rewriter, name: str, perm: Permutation) -> str | None:
    """An operand before the transpose: its source, inversely transposed, or a constant."""
    node = made_by(at, name, Transpose)
    if node is not None:
        same = isinstance(node.op, Transpose) and node.op.perm == perm
        return node.inputs[0] if same else transposed(at, name, inverse(perm))
    data = at.constant_value(name)
    if data is None:
        return name if at.type_of(name).elements == 1 and at.type_of(name).rank == 0 else None
    if data.ndim == 0:
        return name
    whole = data.reshape((1,) * (len(perm) - data.ndim) + data.shape)
    return at.constant(np.ascontiguousarray(whole.transpose(inverse(perm))))


def into_product(node: Node, at: Rewriter) -> Replacement:
    """Matrix products of transposed matrices become ``Gemm`` with a flag."""
    gemm = Gemm() if isinstance(node.op, MatMul) else node.op
    if not isinstance(gemm, Gemm) or any(at.type_of(n).rank != 2 for n in node.inputs[:2]):
        return None
    a, b, *rest = node.inputs
    left, right = made_by(at, a, Transpose), made_by(at, b, Transpose)
    if left is None and right is None:
        return None
    flags = replace(
        gemm,
        trans_a=gemm.trans_a != (left is not None),
        trans_b=gemm.trans_b != (right is not None),
    )
    a, b = (n.inputs[0] if n else name for n, name in ((left, a), (right, b)))
    return at.emit(flags, a, b, *rest)


def into_einsum(node: Node, at: Rewriter) -> Replacement:
    """A transposed operand is replaced by its source with permuted labels."""
    if not isinstance(node.op, Einsum):
        return None
    terms, result = node.op.terms
    made = [made_by(at, name, Transpose) for name in node.inputs]
    if not any(made):
        return None
    labels, operands = list(terms), list(node.inputs)
    for i, inner in enumerate(made):
        if inner is not None and isinstance(inner.op, Transpose):
            labels[i] = "".join(terms[i][axis] for axis in inverse(inner.op.perm))
            operands[i] = inner.inputs[0]
    return at.emit(Einsum(f"{','.join(labels)}->{result}"), *operands)
