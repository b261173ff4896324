"""Short spellings of operand types for ``samples``."""

from __future__ import annotations

from modelcc.ir.index import Index, Sym
from modelcc.ir.types import F32, DType, TensorType


def tensor(*shape: Index | str, dtype: DType = F32) -> TensorType:
    """A row-major tensor type; strings name symbolic extents."""
    return TensorType(tuple(Sym(d) if isinstance(d, str) else d for d in shape), dtype)
