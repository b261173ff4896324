"""Interoperability with other arrays: NumPy's protocols, DLPack, pickles and copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Self

import numpy as np

from modelcc.ir.types import Array
from modelcc.tensor.indexing import TensorIndexing


class ArrayProtocols:
    """NumPy's protocols and Python values, for classes with contents."""

    __slots__ = ()
    __array_priority__ = 1000.0

    def contents(self) -> Array:
        """The value; computed if it is pending."""
        raise NotImplementedError

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        return self.contents().tolist()

    def __bool__(self) -> bool:
        return bool(self.contents())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self.contents()
        return np.array(array, dtype, copy=True if copy else None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """A tensor if there is a tensor version of the function, else a NumPy array."""
        found = _function(ufunc) if method == "__call__" and not options else None
        if found is not None:
            return found(*inputs)
        outs = options.get("out", ())
        if any(isinstance(out, ArrayProtocols) for out in outs):
            return NotImplemented  # tensors are immutable
        return getattr(ufunc, method)(*map(_arrays, inputs), **options)

    def __array_function__(
        self, function: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """A tensor if there is a tensor version of the function, else a NumPy array."""
        found = _function(function)
        if found is not None:
            return found(*args, **kwargs)
        return function(*map(_arrays, args), **{k: _arrays(v) for k, v in kwargs.items()})

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (np.array(self.contents()),)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def copy(self) -> Self:
        """Itself, as it is immutable."""
        return self


class TensorInteroperability(ArrayProtocols, TensorIndexing):
    """Protocols of tensors."""

    __slots__ = ()

    def __dlpack__(self, **options: Any) -> Any:
        """Shares memory with consumers that support read-only arrays, others get a copy."""
        array = self.contents()
        if (options.get("max_version") or (0, 0))[0] < 1:
            array = array.copy()
        return array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def _function(function: Any) -> Callable[..., Any] | None:
    """The tensor function of the same name as a NumPy one."""
    module: str = getattr(function, "__module__", None) or "numpy"
    if module not in ("numpy", "numpy.linalg", "numpy.fft"):
        return None
    return getattr(import_module(f"modelcc.{module}"), function.__name__, None)


def _arrays(value: Any) -> Any:
    """Tensors in ``value`` as arrays."""
    if isinstance(value, ArrayProtocols):
        return value.contents()
    if isinstance(value, list | tuple):
        items: Any = value  # pyright: ignore[reportUnknownVariableType]
        return type(items)(_arrays(item) for item in items)
    return value
