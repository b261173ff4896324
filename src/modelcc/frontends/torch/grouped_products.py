"""Handlers of grouped matrix products: groups of rows, each with its own matrix, as in mixtures of
experts."""

from __future__ import annotations

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.torch.aten import Aten, overloads
from modelcc.frontends.torch.searches import before
from modelcc.ir.types import I64, DType
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import Less, Min, where
from modelcc.ops.gather import Gather
from modelcc.ops.generate import Iota
from modelcc.ops.matmul import MatMul
from modelcc.ops.views import cast, reshaped


def grouped_product(
    call: Aten, x: Value, weight: Value, ends: Value | None = None, bias: Value | None = None,
    dtype: DType | None = None,
) -> Value:  # fmt: skip
    """Rows [m, k] by matrices [groups, k, n], where group g of rows is before ``ends[g]``.

    Rows after the last group are 0.  Without ``ends``, a batched product.
    """
    if bias is not None:
        unsupported("a bias of groups")
    if ends is None:
        return call.as_value(of(MatMul(), x, weight))
    if (x.type.rank, weight.type.rank) != (2, 3):
        unsupported(f"groups of a tensor of {x.type.rank} axes by one of {weight.type.rank}")
    rows, size = x.type.shape
    groups, columns = number_of(weight.type.shape[0], "groups"), weight.type.shape[2]
    group = before(call, cast(ends, I64), call.made(Iota((rows,), 0)), right=True)
    own = of(Gather(0), weight, of(Min(), group, group.lift(groups - 1)))
    y = reshaped(of(MatMul(), reshaped(x, rows, 1, size), own), rows, columns)
    there = reshaped(of(Less(), group, group.lift(groups)), rows, 1)
    return call.as_value(where(there, y, 0.0))


GROUPED_PRODUCTS = overloads(
    {"_grouped_mm": grouped_product, "transformers.grouped_mm_fallback": grouped_product}
)
"""PyTorch's own, and the fallback that transformers registers for dtypes that it does not
support."""
