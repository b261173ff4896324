"""Functions of each element, and of pairs of elements, under NumPy's names."""

from __future__ import annotations

from typing import Any

from modelcc.ir.types import BOOL, F32
from modelcc.numpy.arrays import asarray
from modelcc.ops.comparison import Where
from modelcc.tensor.operators import is_number
from modelcc.tensor.tensor import Tensor


def where(condition: Any, x: Any, y: Any) -> Tensor:
    """``x`` where ``condition`` holds, else ``y``."""
    yes = asarray(condition).cast(BOOL)
    a, b = both(x, y)
    return yes.result(Where(), yes, a, b)


def both(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Two operands as tensors of one type; numbers of Python take that of the other."""
    if isinstance(x, Tensor) or not is_number(x):
        a = asarray(x)
        return a.alike(y if is_number(y) else asarray(y))
    if is_number(y):
        kind = F32 if isinstance(x, float) or isinstance(y, float) else None
        return asarray(x, kind).alike(asarray(y, kind))
    b, a = asarray(y).alike(x)
    return a, b
