"""The gradient of running products."""

from __future__ import annotations

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.index import Range, Sym
from modelcc.ir.op import Builder, Op
from modelcc.ir.types import TensorType
from modelcc.ops.arithmetic import Add, Mul
from modelcc.ops.control import Loop
from modelcc.ops.generate import Full
from modelcc.ops.slicing import At


def product_gradient(
    build: Builder, before: Op, dy: str, x: str, axis: int, exclusive: bool, reverse: bool
) -> str:
    """Gradient of x, whose running products have gradients ``dy``; elements may be 0.

    That of element k is the product of those before it, which the op ``before`` makes, times
    ``r[k] = dy[k] + x[k + 1] r[k + 1]``, or ``dy[k + 1] + x[k + 1] r[k + 1]`` if exclusive.
    """
    type = build.type_of(x)
    part = TensorType((*type.shape[:axis], *type.shape[axis + 1 :]), type.dtype)
    extent, counter = type.shape[axis], "product.step"
    step = Sym(counter)
    body = GraphBuilder("product", {counter: Range(0, None)})
    carried = body.input("carried", part)
    at = At(axis, step if reverse else extent - 1 - step)
    own, slope = (body.emit(at, body.input(name, type)) for name in ("x", "dy"))
    total = body.emit(Add(), slope, body.emit(Mul(), own, carried) if exclusive else carried)
    after = total if exclusive else body.emit(Mul(), own, total)
    graph = body.build([after, carried if exclusive else total])
    first = build.emit(Full(part.shape, 0, part.dtype))
    loop = Loop(graph, counter, extent, 1, axes=(axis,), backwards=(not reverse,))
    _, rest = build.add(loop, first, x, dy)
    return build.emit(Mul(), build.emit(before, x), rest)
