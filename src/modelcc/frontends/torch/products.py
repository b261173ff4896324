"""Handlers of products of vectors and matrices."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.frontends.kit.equation import contracted
from modelcc.frontends.torch.aten import Aten, Number, table
from modelcc.ir import index as indices
from modelcc.ir.index import Index
from modelcc.ops.arithmetic import Add, Value, of
from modelcc.ops.matmul import Einsum, Gemm, MatMul
from modelcc.ops.shape import Transpose
from modelcc.ops.views import reshaped


def product(call: Aten, a: Value, b: Value, *_: object) -> Value:
    """A product as ``numpy.matmul`` has it."""
    return call.as_value(of(MatMul(), a, b))


def linear(call: Aten, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """``x @ weight.T + bias``: one Gemm of matrices, else a product and a sum."""
    if x.type.rank == weight.type.rank == 2 and (bias is None or bias.type.rank <= 1):
        return call.one(Gemm(trans_b=True), x, weight, *([] if bias is None else [bias]))
    turned = of(Transpose((1, 0)), weight) if weight.type.rank == 2 else weight
    y = of(MatMul(), x, turned)
    return y if bias is None else of(Add(), y, bias)


def add_matrices(
    call: Aten, c: Value, a: Value, b: Value, beta: Number = 1, alpha: Number = 1
) -> Value:
    """``beta * c + alpha * a @ b``; c is ignored if beta is 0, even NaN."""
    addend = [c] if beta != 0 else []
    (target,) = Gemm().infer(a.type, b.type)
    stretched = [
        call.emitter.stretched(x.name, target.shape[2 - x.type.rank :], call.source) for x in addend
    ]
    return Value(call, call.emit(Gemm(float(alpha), float(beta)), a.name, b.name, *stretched))


def add_product(
    call: Aten, c: Value, a: Value, b: Value, beta: Number = 1, alpha: Number = 1
) -> Value:
    """``beta * c + alpha * a @ b`` of batches of matrices, or a matrix and a vector."""
    return _added(call, c, of(MatMul(), a, b), beta, alpha)


def add_sum_of_products(
    call: Aten, c: Value, a: Value, b: Value, beta: Number = 1, alpha: Number = 1
) -> Value:
    """``beta * c + alpha * (the sum of a @ b over the batch)``."""
    return _added(call, c, of(Einsum("bij,bjk->ik"), a, b), beta, alpha)


def add_outer(
    call: Aten, c: Value, a: Value, b: Value, beta: Number = 1, alpha: Number = 1
) -> Value:
    """``beta * c + alpha * a b^T`` of vectors."""
    return _added(call, c, outer(call, a, b), beta, alpha)


def _added(call: Aten, c: Value, total: Value, beta: Number, alpha: Number) -> Value:
    scaled = call.as_value(total if alpha == 1 else total * alpha)
    if beta == 0:
        return scaled
    addend = call.as_value(c)
    return of(Add(), scaled, addend if beta == 1 else addend * beta)


def outer(call: Aten, a: Value, b: Value) -> Value:
    """``a b^T`` of vectors."""
    return call.as_value(reshaped(a, a.type.shape[0], 1)) * call.as_value(b)


def einsum(call: Aten, equation: str, operands: Sequence[Value], path: object = None) -> Value:
    return call.as_value(Value(call, contracted(call, equation, [x.name for x in operands])))


def bilinear(call: Aten, x: Value, y: Value, weight: Value, bias: Value | None = None) -> Value:
    """``sum over i, j of x[n, i] * weight[o, i, j] * y[n, j]``, with any leading axes."""
    rows, pairs = (reshaped(v, *_matrix(v)) for v in (x, y))
    total = of(Einsum("noj,nj->no"), of(Einsum("ni,oij->noj"), rows, weight), pairs)
    whole = reshaped(total, *call.extents())
    return whole if bias is None else of(Add(), whole, bias)


def _matrix(x: Value) -> tuple[Index, Index]:
    return indices.product(x.type.shape[:-1]), x.type.shape[-1]


PRODUCTS = table(
    bilinear=bilinear,
    mm=product,
    bmm=product,
    matmul=product,
    linalg_matmul=product,
    mv=product,
    dot=product,
    vdot=product,
    linear=linear,
    addmm=add_matrices,
    addmv=add_product,
    baddbmm=add_product,
    addbmm=add_sum_of_products,
    addr=add_outer,
    outer=outer,
    ger=outer,
    einsum=einsum,
)
