"""The declared type of an input, given without an example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from modelcc.ir.index import Index, Sym
from modelcc.ir.types import TensorType
from modelcc.tensor.lazy import unique
from modelcc.tensor.promotion import named_type


@dataclass(frozen=True)
class Input:
    """The type of an input: extents are numbers, or names of dimensions, and ``f32`` and so on."""

    shape: tuple[int | str, ...]
    dtype: Any = "f32"

    @property
    def type(self) -> TensorType:
        """The type for a graph."""
        extents: tuple[Index, ...] = tuple(Sym(e) if isinstance(e, str) else e for e in self.shape)
        return unique(TensorType(extents, named_type(self.dtype)))

    @property
    def names(self) -> tuple[str, ...]:
        """Its named dimensions."""
        return tuple(e for e in self.shape if isinstance(e, str))
