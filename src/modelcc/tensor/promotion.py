"""Type promotion of mixed operands, as in NumPy 2 (NEP 50): Python numbers are weak."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.types import BOOL, DTYPES, F64, I64, DType, dtype_of

Number = bool | int | float
"""A Python number, which takes the type of the other operand."""


@lru_cache(4096)
def promoted(a: DType, b: DType) -> DType:
    """The type that holds the values of both; :class:`ModelError` if there is none."""
    if a == b:
        return a
    try:
        return dtype_of(np.result_type(a.numpy, b.numpy))
    except TypeError as error:
        raise ModelError(f"{a} and {b} have no common type", (), "cast one of them") from error


def with_number(dtype: DType, number: Number) -> DType:
    """The type of a result of a tensor of ``dtype`` and ``number``."""
    if isinstance(number, bool):
        return dtype
    if isinstance(number, int):
        return I64 if dtype == BOOL else dtype
    return dtype if dtype.is_float else F64


def is_complex(value: object) -> bool:
    """Whether ``value`` is a complex number, or an array or tensor of such."""
    kind: object = getattr(getattr(value, "dtype", None), "kind", None)
    return isinstance(value, complex) or kind in ("c", "complex")


def named_type(dtype: Any) -> DType:
    """A :class:`DType` by its name (``f32``), NumPy's dtype or its name; ``TypeError`` if none."""
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str) and dtype in DTYPES:
        return DTYPES[dtype]
    return dtype_of(np.dtype(dtype))
