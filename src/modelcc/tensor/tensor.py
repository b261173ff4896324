"""Tensors: arrays with lazy operations, of which all pending ones are compiled together."""

from __future__ import annotations

from typing import Any, Self, cast

import numpy as np

from modelcc.frontends.kit.complex_values import part_type
from modelcc.ir.types import C64, Array, DType
from modelcc.ops.generate import Full
from modelcc.tensor.complex_tensor import ComplexTensor
from modelcc.tensor.evaluation import evaluate
from modelcc.tensor.interoperability import TensorInteroperability
from modelcc.tensor.lazy import TRACED
from modelcc.tensor.promotion import named_type, promoted


class Tensor(TensorInteroperability):
    """An immutable array, whose value is computed on demand.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> y = (x @ x + 1).sum(axis=0)
    >>> y
    Tensor([24., 34.], dtype=float32)

    Operations are recorded, and compiled together when a value is needed: by ``print``,
    :meth:`numpy`, ``float``, ``if``, iteration.  Compiled programs are reused for all operations of
    the same structure, shapes and types.  Shapes, broadcasting and types are NumPy's; Python
    numbers and lists become f32, i64 and bool.
    """

    __slots__ = ()

    def __new__(cls, value: Any, dtype: Any = None) -> Self:
        """A copy of ``value``: numbers, nested lists, arrays, anything with ``__dlpack__``.

        Complex numbers make a :class:`~modelcc.tensor.complex_tensor.ComplexTensor`.
        """
        if isinstance(value, Tensor):
            return value if dtype is None else value.astype(dtype)  # pyright: ignore
        wanted = None if dtype is None else named_type(dtype)
        if wanted is not None and wanted.kind == "complex":
            return cls(value).astype(wanted)
        array = _copied(value, wanted)
        if array.dtype.kind == "c":
            return cast("Self", ComplexTensor[Tensor].of_array(Tensor, array))
        return cls.of_array(array)

    def numpy(self) -> Array:
        """The value, read-only; computed if it is pending."""
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
        """The same values as ``dtype``: a name, a NumPy or modelcc type."""
        wanted = named_type(dtype)
        return self.as_complex(wanted) if wanted.kind == "complex" else self.cast(wanted)

    def as_complex(self, dtype: DType = C64) -> Any:
        """The same values as complex numbers of ``dtype`` at least."""
        part = part_type(promoted(self.dtype, dtype))
        return ComplexTensor(self.cast(part), self.result(Full(self.shape, 0, part)))

    @property
    def real(self) -> Self:
        """Itself."""
        return self

    @property
    def imag(self) -> Self:
        """0 everywhere."""
        return self.result(Full(self.shape, 0, self.dtype))

    def conj(self) -> Self:
        """Itself."""
        return self

    conjugate = conj

    def item(self) -> Any:
        """The only element, as a Python number."""
        return self.numpy().item()

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
        elif array.dtype == np.complex128:
            array = array.astype(np.complex64)
    elif hasattr(value, "__array__") or not hasattr(value, "__dlpack__"):
        # Not np.array alone: not every __array__ supports copy.
        array = np.array(np.asarray(value), None if dtype is None else dtype.numpy, order="C")
    else:
        array = np.array(np.from_dlpack(value), None if dtype is None else dtype.numpy, order="C")
    array.flags.writeable = False
    return array
