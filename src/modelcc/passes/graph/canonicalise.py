"""Canonical spellings of equivalent nodes, which other passes rely on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.index import product
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ops.activation import Clip, Relu
from modelcc.ops.differentiation import After, StopGradient
from modelcc.ops.elementwise import (
    Add,
    Cast,
    ClipTensor,
    Identity,
    Max,
    Min,
    Mul,
    Reciprocal,
    Rsqrt,
    Sqrt,
)
from modelcc.ops.matmul import Gemm, MatMul
from modelcc.ops.reduce import ReduceMean, ReduceSum
from modelcc.ops.shape import Concat
from modelcc.passes.graph.products import close, made_by, scalar, times_scalar

ROUNDED = 2e-7
"""Relative error of the f32 nearest to a quotient; n and n-1 differ by more up to n = 5 million."""


@dataclass(frozen=True)
class Canonicalise:
    """No identities, constants on the right, Relu and Clip with numbers, plain Gemm.

    - ``Identity``, ``StopGradient``, a ``Cast`` to the same type, a ``Concat`` of one value, its
      operands without elements, and ``After`` of a constant are removed.
    - ``c + x`` and ``c * x`` become ``x + c`` and ``x * c``.
    - ``ClipTensor``, ``Min`` and ``Max`` with constant scalars become ``Clip``; ``Clip`` at 0
      from below becomes ``Relu``.
    - ``Gemm`` keeps its flags, but alpha, beta and a constant transposed matrix are folded into
      constant operands; without addend and flags it is ``MatMul``.
    - ``Reciprocal(Sqrt(x))`` is ``Rsqrt(x)``; a sum divided by its number of terms is a mean.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xf32>):
          %c = "mcc.constant"() {digest = "c"} : () -> tensor<3xf32>
          %low = "mcc.constant"() {value = dense<0.0> : tensor<f32>}
          %i = "mcc.Identity"(%x)
          %a = "mcc.Add"(%c, %i)
          %y = "mcc.ClipTensor"(%a, %low)
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xf32>):
          %c = "mcc.constant"() {digest = "c"} : () -> tensor<3xf32>
          %a = "mcc.Add"(%x, %c)
          %y = "mcc.Relu"(%a)
          "mcc.return"(%y)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        rules = (
            *(
                no_identity,
                no_empty_parts,
                constant_right,
                clip_of_tensors,
                clip_of_extremum,
                merge_clips,
                relu,
            ),
            *(gemm_factors, gemm_matrix, gemm_without_addend, reciprocal_root, mean),
        )
        return rewrite(graph, rules, self.limit)


def no_identity(node: Node, at: Rewriter) -> Replacement:
    """An op that returns its only operand."""
    if isinstance(node.op, After) and at.constant_value(node.inputs[0]) is not None:
        return node.inputs[0]
    same = isinstance(node.op, Identity | StopGradient | Cast | Concat)
    if not same or len(node.inputs) != 1:
        return None
    (x,) = node.inputs
    return x if at.type_of(x) == at.type_of(node.outputs[0]) else None


def no_empty_parts(node: Node, at: Rewriter) -> Replacement:
    """A concatenation of non-empty operands."""
    if not isinstance(node.op, Concat):
        return None
    kept = [x for x in node.inputs if at.type_of(x).shape[node.op.axis] != 0]
    return at.emit(node.op, *kept) if 0 < len(kept) < len(node.inputs) else None


def constant_right(node: Node, at: Rewriter) -> Replacement:
    """Constants are the second operand of commutative ops."""
    if not isinstance(node.op, Add | Mul | Min | Max):
        return None
    a, b = node.inputs
    swap = at.constant_value(a) is not None and at.constant_value(b) is None
    return at.emit(node.op, b, a) if swap else None


def clip_of_tensors(node: Node, at: Rewriter) -> Replacement:
    """Bounds that are constants become attributes."""
    if not isinstance(node.op, ClipTensor):
        return None
    x, low, high = (*node.inputs, "", "")[:3]
    bounds = [scalar(at, n) if n else None for n in (low, high)]
    if any(name and value is None for name, value in zip((low, high), bounds, strict=True)):
        return None
    return _clip(at, x, bounds[0], bounds[1])


def clip_of_extremum(node: Node, at: Rewriter) -> Replacement:
    """The maximum or minimum with a number."""
    if not isinstance(node.op, Min | Max) or len(node.inputs) != 2:
        return None
    x, bound = node.inputs
    value = scalar(at, bound)
    if value is None or at.type_of(x) != at.type_of(node.outputs[0]):
        return None
    return _clip(at, x, *((value, None) if isinstance(node.op, Max) else (None, value)))


def _clip(at: Rewriter, x: str, low: float | None, high: float | None) -> Replacement:
    if not at.type_of(x).dtype.is_float or any(v is not None and np.isnan(v) for v in (low, high)):
        return None
    return at.emit(Clip(low, high), x)


def merge_clips(node: Node, at: Rewriter) -> Replacement:
    """A clip of a clip or of a Relu whose bounds do not cross, or one that bounds nothing."""
    if not isinstance(node.op, Clip):
        return None
    (x,) = node.inputs
    if node.op == Clip(None, None):
        return x
    inner = made_by(at, x, Clip, Relu)
    if inner is None:
        return None
    before = inner.op if isinstance(inner.op, Clip) else Clip(0.0, None)
    low = _tighter(before.low, node.op.low, max)
    high = _tighter(before.high, node.op.high, min)
    if low is not None and high is not None and low > high:
        return None
    return at.emit(Clip(low, high), inner.inputs[0])


def _tighter(
    a: float | None, b: float | None, pick: Callable[[list[float]], float]
) -> float | None:
    values = [v for v in (a, b) if v is not None]
    return pick(values) if values else None


def relu(node: Node, at: Rewriter) -> Replacement:
    """A clip at 0 from below only."""
    return at.emit(Relu(), node.inputs[0]) if node.op == Clip(0.0, None) else None


def reciprocal_root(node: Node, at: Rewriter) -> Replacement:
    """``1 / sqrt(x)`` in one op."""
    root = made_by(at, node.inputs[0], Sqrt) if isinstance(node.op, Reciprocal) else None
    return at.emit(Rsqrt(), root.inputs[0]) if root is not None else None


def gemm_factors(node: Node, at: Rewriter) -> Replacement:
    """alpha goes into a constant matrix, beta into a constant addend."""
    op = node.op
    if not isinstance(op, Gemm):
        return None
    a, b, *rest = node.inputs
    c = rest[0] if rest else ""
    matrix, addend = at.constant_value(b), at.constant_value(c)
    if op.alpha != 1.0 and matrix is not None:
        scaled = at.constant(matrix * matrix.dtype.type(op.alpha))
        return at.emit(replace(op, alpha=1.0), a, scaled, *rest)
    if op.beta != 1.0 and addend is not None:
        scaled = at.constant(addend * addend.dtype.type(op.beta))
        return at.emit(replace(op, beta=1.0), a, b, scaled)
    return at.emit(replace(op, beta=1.0), a, b) if op.beta != 1.0 and not c else None


def gemm_matrix(node: Node, at: Rewriter) -> Replacement:
    """A constant second matrix is transposed at compile time."""
    if not isinstance(node.op, Gemm) or not node.op.trans_b:
        return None
    a, b, *rest = node.inputs
    matrix = at.constant_value(b)
    if matrix is None:
        return None
    turned = at.constant(np.ascontiguousarray(matrix.T))
    return at.emit(replace(node.op, trans_b=False), a, turned, *rest)


def gemm_without_addend(node: Node, at: Rewriter) -> Replacement:
    """Just a product of matrices."""
    plain = node.op == Gemm() and not any(node.inputs[2:])
    return at.emit(MatMul(), *node.inputs[:2]) if plain else None


def mean(node: Node, at: Rewriter) -> Replacement:
    """A sum divided by the number of its terms."""
    scaled = times_scalar(at, node)
    total = made_by(at, scaled[1], ReduceSum) if scaled is not None else None
    if total is None or scaled is None or not isinstance(total.op, ReduceSum):
        return None
    shape = at.type_of(total.inputs[0]).shape
    count = product(shape[axis] for axis in total.op.axes)
    is_mean = isinstance(count, int) and count > 0 and close(scaled[0] * count, 1.0, ROUNDED)
    if not is_mean or not at.type_of(total.inputs[0]).dtype.is_float:
        return None
    return at.emit(ReduceMean(total.op.axes, total.op.keepdims), total.inputs[0])
