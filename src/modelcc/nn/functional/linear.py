"""Linear maps: linear, bilinear and embeddings."""

from __future__ import annotations

from typing import Any

from modelcc.ir.errors import ModelError
from modelcc.nn.functional.values import as_tensor, number, of, reshaped, swapped, where
from modelcc.ops.gather import Gather, OneHot
from modelcc.ops.matmul import Einsum
from modelcc.tensor.custom import stop_gradient
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.promotion import named_type
from modelcc.tensor.tensor import Tensor


def linear(x: Any, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight^T + bias`` for x ``[…, in]``, weight ``[out, in]``, bias ``[out]``."""
    x = as_tensor(x)
    if not x.ndim or (isinstance(x.shape[-1], int) and x.shape[-1] != weight.shape[-1]):
        raise ModelError(f"linear needs {weight.shape[-1]} features in the last axis of x, "
                         f"not {x.type}, for weights {weight.type}", callers_line())  # fmt: skip
    y = x.product(x, swapped(weight, 0, 1))
    return y if bias is None else y + bias


def bilinear(x1: Any, x2: Any, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``y[…, o] = sum x1[…, i] weight[o, i, j] x2[…, j] + bias[o]``."""
    x1, x2 = as_tensor(x1), as_tensor(x2)
    lead = "abcdefgh"[: x1.ndim - 1]
    y = of(Einsum(f"{lead}i,oij,{lead}j->{lead}o"), x1, weight, x2)
    return y if bias is None else y + bias


def embedding(indices: Any, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of ``weight`` ``[count, size]`` by integers of any shape, which are checked.

    The row ``padding_idx`` gets no gradient.
    """
    indices = as_tensor(indices)
    rows = of(Gather(0), weight, indices)
    if padding_idx is None:
        return rows
    padding = reshaped(indices == padding_idx % number(weight.shape[0], "a number of rows"),
                       *indices.shape, 1)  # fmt: skip
    return where(padding, stop_gradient(rows), rows)


def one_hot(indices: Any, num_classes: int, dtype: Any = "i64", dim: int = -1) -> Tensor:
    """1 at the index along a new axis of ``num_classes``, else 0; i64 as in PyTorch."""
    indices = as_tensor(indices)
    axis = dim % (indices.ndim + 1)
    values = Tensor([0, 1], named_type(dtype))
    return of(OneHot(axis, num_classes), indices, values)
