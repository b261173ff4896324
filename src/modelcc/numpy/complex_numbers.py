"""Complex numbers and their parts, under NumPy's names."""

from __future__ import annotations

import math
from typing import Any

from modelcc.numpy.arrays import asarray
from modelcc.numpy.pairs import where
from modelcc.tensor.promotion import is_complex
from modelcc.tensor.tensor import Tensor


def real(val: Any) -> Tensor:
    """The real part; real tensors unchanged."""
    return asarray(val).real


def imag(val: Any) -> Tensor:
    """The imaginary part; 0 for real tensors."""
    return asarray(val).imag


def conj(x: Any) -> Tensor:
    """The complex conjugate."""
    return asarray(x).conj()


conjugate = conj


def angle(z: Any, deg: bool = False) -> Tensor:
    """The angle from the real axis, in [-pi, pi], in radians or degrees."""
    x: Any = asarray(z)
    if is_complex(x):
        found: Tensor = x.angle()
    else:
        x = x.floats()
        found = where(x < 0, x.of_number(math.pi, x.dtype), 0.0)
    return found * (180 / math.pi) if deg else found


def iscomplex(x: Any) -> Tensor:
    """Where the imaginary part is not 0."""
    return asarray(x).imag != 0


def isreal(x: Any) -> Tensor:
    """Where the imaginary part is 0."""
    return asarray(x).imag == 0


def iscomplexobj(x: Any) -> bool:
    """Whether the dtype is complex."""
    return is_complex(asarray(x))


def isrealobj(x: Any) -> bool:
    """Whether the dtype is real."""
    return not iscomplexobj(x)
