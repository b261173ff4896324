"""Tensors from users' data (numbers, lists, arrays), and constant tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Expr, Index, ceildiv, product
from modelcc.ir.types import F32, I64, Array, DType
from modelcc.ops.generate import EyeLike, Indices, Iota
from modelcc.tensor.axes import extents_of
from modelcc.tensor.complex_tensor import ComplexTensor
from modelcc.tensor.lazy import apply, callers_line
from modelcc.tensor.promotion import Number, is_complex, named_type
from modelcc.tensor.tensor import Tensor

Shape = Index | Sequence[Index]
"""Extents: one, or several."""

SMALL = 4096
"""Elements up to which constant tensors are stored as arrays; larger ones are computed by
programs."""


def asarray(a: Any, dtype: Any = None) -> Tensor:
    """``a`` as a tensor; tensors are returned unchanged.  Lists may contain tensors.

    Complex numbers are a :class:`~modelcc.tensor.complex_tensor.ComplexTensor`, which has the same
    methods where meaningful, and rejects others.
    """
    given: Any = a
    if isinstance(given, Tensor | ComplexTensor):
        found = cast(Tensor, given)
        return found if dtype is None else found.astype(dtype)
    if isinstance(a, Expr):
        (size,) = apply(Tensor, Indices((a,), ()), ())
        return asarray(size, dtype)
    if isinstance(a, list | tuple):
        items = cast("Sequence[Any]", a)
        if _holds_tensors(items):
            parts = [asarray(part).expand_dims(0) for part in items]
            return asarray(parts[0].concatenated(parts[1:]), dtype)
    return Tensor(a, dtype)


def array(a: Any, dtype: Any = None) -> Tensor:
    """As :func:`asarray`; tensors are immutable, so none needs to be copied."""
    return asarray(a, dtype)


def _holds_tensors(items: Sequence[Any]) -> bool:
    return any(
        isinstance(item, Tensor | ComplexTensor | Expr)
        or (isinstance(item, list | tuple) and _holds_tensors(cast("Sequence[Any]", item)))
        for item in items
    )


def of_array(value: Array) -> Tensor:
    """A tensor of an array that is not mutated any more."""
    value.flags.writeable = False
    return Tensor.of_array(value)


def full(shape: Shape, fill_value: Any, dtype: Any = None) -> Tensor:
    """``fill_value``, a number or a tensor, broadcast to ``shape``."""
    extents = extents_of(shape)
    size = product(extents)
    value = asarray(fill_value, dtype)
    held = None if is_complex(value) else value.held
    if held is not None and isinstance(size, int) and size <= SMALL:
        numbers = [e for e in extents if isinstance(e, int)]
        return of_array(np.array(np.broadcast_to(held, numbers)))
    return value.broadcast_to(extents) if extents else value


def zeros(shape: Shape, dtype: Any = None) -> Tensor:
    """0 everywhere, f32 by default."""
    return full(shape, 0, F32 if dtype is None else dtype)


def ones(shape: Shape, dtype: Any = None) -> Tensor:
    """1 everywhere, f32 by default."""
    return full(shape, 1, F32 if dtype is None else dtype)


def empty(shape: Shape, dtype: Any = None) -> Tensor:
    """As :func:`zeros`: tensors cannot be written to."""
    return zeros(shape, dtype)


def _like(a: Any, shape: Shape | None, dtype: Any) -> tuple[Shape, Any]:
    x = asarray(a)
    return x.shape if shape is None else shape, x.dtype if dtype is None else dtype


def full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Shape | None = None) -> Tensor:
    """``fill_value`` in the shape and type of ``a``."""
    extents, kind = _like(a, shape, dtype)
    return full(extents, fill_value, kind)


def zeros_like(a: Any, dtype: Any = None, shape: Shape | None = None) -> Tensor:
    """0 in the shape and type of ``a``."""
    return full_like(a, 0, dtype, shape)


def ones_like(a: Any, dtype: Any = None, shape: Shape | None = None) -> Tensor:
    """1 in the shape and type of ``a``."""
    return full_like(a, 1, dtype, shape)


def empty_like(a: Any, dtype: Any = None, shape: Shape | None = None) -> Tensor:
    """As :func:`zeros_like`."""
    return zeros_like(a, dtype, shape)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Tensor:
    """``start``, ``start + step`` … below ``stop``; with one argument from 0.

    The dtype is i64, f32 if an argument is a float; arguments may be named extents.
    """
    low, high = (0, start) if stop is None else (start, stop)
    given = (low, high, step)
    if any(isinstance(v, Expr) for v in given):
        return _symbolic_range(low, high, step, dtype)
    made: Array = cast(Any, np.arange)(*given)
    plain = all(isinstance(v, int | float) for v in given)
    own: Any = F32 if plain and made.dtype.kind == "f" else made.dtype
    kind = named_type(own if dtype is None else dtype)
    if made.size <= SMALL or not all(isinstance(v, int) for v in given):
        return of_array(made.astype(kind.numpy))
    return _iota(made.size, low, step, kind)


def _symbolic_range(low: Index, high: Index, step: Index, dtype: Any) -> Tensor:
    if not isinstance(step, int) or step <= 0:
        raise ModelError(f"arange of a named extent by steps of {step}", callers_line(),
                         "use a step of 1 or more, and flip")  # fmt: skip
    kind = I64 if dtype is None else named_type(dtype)
    return _iota(ceildiv(high - low, step), low, step, kind)


def _iota(count: Index, start: Index, step: int, dtype: DType) -> Tensor:
    whole = dtype if dtype.is_integer else I64
    (made,) = apply(Tensor, Iota((count,), 0, start, step, whole), ())
    return made.cast(dtype)


def linspace(
    start: Number, stop: Number, num: int = 50, endpoint: bool = True, dtype: Any = None
) -> Tensor:
    """``num`` evenly spaced numbers from ``start`` to ``stop``."""
    kind = F32 if dtype is None else named_type(dtype)
    return of_array(np.linspace(start, stop, num, endpoint).astype(kind.numpy))


def logspace(
    start: Number, stop: Number, num: int = 50, endpoint: bool = True, base: float = 10.0
) -> Tensor:
    """``base`` to the power of :func:`linspace`."""
    return of_array(np.logspace(start, stop, num, endpoint, base).astype(np.float32))


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Tensor:  # noqa: N803
    """1 on diagonal ``k`` of an ``N`` by ``M`` matrix, else 0."""
    kind = F32 if dtype is None else named_type(dtype)
    columns = N if M is None else M
    size = product((N, columns))
    if isinstance(size, int) and size <= SMALL:
        return of_array(np.eye(N, columns, k, kind.numpy))
    frame = zeros((N, columns), kind)
    return frame.result(EyeLike(kind, k), frame)


def identity(n: int, dtype: Any = None) -> Tensor:
    """The identity matrix."""
    return eye(n, dtype=dtype)


def meshgrid(*xi: Any, indexing: str = "xy") -> list[Tensor]:
    """Each vector along its own axis, broadcast along those of the others.

    With ``indexing="xy"`` the first two axes are exchanged.
    """
    if indexing not in ("xy", "ij"):
        raise ModelError(f"indexing {indexing!r} of meshgrid", callers_line(), "'xy' or 'ij'")
    given = [asarray(x).ravel() for x in xi]
    order = list(range(len(given)))
    if indexing == "xy" and len(given) > 1:
        order[:2] = 1, 0
    shape = [0] * len(given)
    for k, x in enumerate(given):
        shape[order[k]] = x.shape[0]
    made: list[Tensor] = []
    for k, x in enumerate(given):
        place = [1] * len(given)
        place[order[k]] = x.shape[0]
        made.append(x.reshape(place).broadcast_to(shape))
    return made


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Tensor:  # noqa: N803
    """1 at and below diagonal ``k``, else 0."""
    return ones((N, N if M is None else M), dtype).tril(k)
