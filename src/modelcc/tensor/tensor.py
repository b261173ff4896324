"""Tensors: arrays whose operations are compiled, all that is pending at once."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from modelcc.ir.types import Array, DType
from modelcc.tensor.evaluation import evaluate
from modelcc.tensor.interoperability import TensorInteroperability
from modelcc.tensor.lazy import TRACED
from modelcc.tensor.promotion import named_type


class Tensor(TensorInteroperability):
    """An immutable array, whose value is computed when somebody looks at it.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> y = (x @ x + 1).sum(axis=0)
    >>> y
    Tensor([18., 24.], dtype=float32)

    Operations are recorded, and compiled together when a value is wanted: by ``print``,
    :meth:`numpy`, ``float``, ``if``, iteration.  What was compiled serves all operations of the
    same structure, shapes and types.  Shapes, broadcasting and types are NumPy's; numbers and
    lists of Python become f32, i64 and bool.
    """

    __slots__ = ()

    def __new__(cls, value: Any, dtype: Any = None) -> Self:
        """A copy of ``value``: numbers, nested lists, arrays, anything with ``__dlpack__``."""
        if isinstance(value, Tensor):
            return value if dtype is None else value.astype(dtype)  # pyright: ignore
        array = _copied(value, None if dtype is None else named_type(dtype))
        return cls.of_array(array)

    def numpy(self) -> Array:
        """The value, which cannot be written to; computed if it is pending."""
        if self.held is None:
            evaluate((self,))
        assert self.held is not None
        self.held.flags.writeable = False
        return self.held

    contents = numpy

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type.dtype

    def astype(self, dtype: Any) -> Self:
        """The same values as ``dtype``: a name, a type of NumPy or of modelcc."""
        return self.cast(named_type(dtype))

    def item(self) -> Any:
        """The only element, as a number of Python."""
        return self.numpy().item()

    def tolist(self) -> Any:
        """Nested lists of numbers of Python."""
        return self.numpy().tolist()

    def __bool__(self) -> bool:
        return bool(self.numpy())

    def __int__(self) -> int:
        return int(self.numpy())

    def __float__(self) -> float:
        return float(self.numpy())

    def __index__(self) -> int:
        return self.numpy().__index__()

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("a tensor without axes has no length")
        return self.shape[0]

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __setitem__(self, subscript: Any, value: Any) -> None:
        raise TypeError("tensors do not change: write x = x.at[...].set(value)")

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __repr__(self) -> str:
        if self.phase == TRACED and self.held is None:
            return f"Tensor({self.type}, traced)"
        text = np.array2string(self.numpy(), separator=", ", prefix="Tensor(")
        return f"Tensor({text}, dtype={self.type.dtype.numpy})"


def _copied(value: Any, dtype: DType | None) -> Array:
    if dtype is None and not hasattr(value, "dtype"):
        array = np.array(value)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
    elif hasattr(value, "__array__") or not hasattr(value, "__dlpack__"):
        # Not np.array alone: not every __array__ knows of copies.
        array = np.array(np.asarray(value), None if dtype is None else dtype.numpy, order="C")
    else:
        array = np.array(np.from_dlpack(value), None if dtype is None else dtype.numpy, order="C")
    array.flags.writeable = False
    return array
