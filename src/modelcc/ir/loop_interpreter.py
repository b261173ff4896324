"""Reference interpreter of the loop level: its functions on NumPy arrays.

A function is compiled to Python source (:mod:`modelcc.ir.loop_source`), which calls what is
defined here.  Reads and writes outside of a buffer raise ``IndexError``; local buffers start with
NaN or the largest integer, so that reading what was never written shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from modelcc.ir.index import evaluate
from modelcc.ir.loop import Function
from modelcc.ir.loop_source import python_function
from modelcc.ir.scalar import FUNCTIONS
from modelcc.ir.types import Array, NumpyType, dtype_of

Kernel = Callable[[Sequence[Array], Sequence[int]], None]
Lanes = Array
"""Lanes of a vector, or a NumPy scalar, which has the same methods."""


def compile_loops(function: Function) -> Kernel:
    """A callable that takes the arrays of the buffer parameters, then the sizes, and runs
    ``function``; arrays of mutable parameters are changed in place.

    The callable raises ``ValueError`` if an array does not fit its parameter and ``IndexError``
    if the function accesses memory outside of a buffer, :class:`OutOfBoundError` if a check fails.
    """
    source = python_function(function)
    scope: dict[str, object] = {**_PRIMITIVES, **source.constants}
    exec(compile(source.text, f"<loop function {function.name}>", "exec"), scope)
    run = scope["run"]
    assert callable(run)

    def kernel(arrays: Sequence[Array], sizes: Sequence[int]) -> None:
        flat = _checked(function, arrays, dict(zip(function.sizes, sizes, strict=True)))
        with np.errstate(all="ignore"):
            run(*flat, *sizes)

    return kernel


def interpret_loops(function: Function, arrays: Sequence[Array], sizes: Sequence[int]) -> None:
    """Run ``function`` once; see :func:`compile_loops`."""
    compile_loops(function)(arrays, sizes)


def _checked(function: Function, arrays: Sequence[Array], sizes: Mapping[str, int]) -> list[Array]:
    flat: list[Array] = []
    for parameter, array in zip(function.parameters, arrays, strict=True):
        buffer = parameter.buffer
        size = evaluate(buffer.size, sizes)
        wrong = dtype_of(array) != buffer.dtype or array.size < size
        if wrong or not array.flags.c_contiguous:
            raise ValueError(
                f"@{function.name}: %{buffer.name} needs a contiguous array of {size} "
                f"{buffer.dtype}, but got {array.dtype}{list(array.shape)}"
            )
        view = array.reshape(-1)[:size]
        if not parameter.mutable:
            view = view.view()
            view.flags.writeable = False
        flat.append(view)
    return flat


# --- memory


def _load(buffer: Array, offset: int, lanes: int, stride: int, active: int | None) -> Lanes:
    if lanes == 1:
        if active is not None and active < 1:
            return buffer.dtype.type(0)
        _check(buffer, offset, offset)
        return buffer[offset]
    if stride == 1:
        count = lanes if active is None else min(max(active, 0), lanes)
        _check(buffer, offset, offset + count - 1)
        result = buffer[offset : offset + count].copy()
        return result if count == lanes else np.pad(result, (0, lanes - count))
    return _lanes(buffer, offset + stride * np.arange(lanes), active)


def _gather(buffer: Array, offset: int, offsets: Lanes, active: int | None) -> Lanes:
    if np.ndim(offsets) == 0:
        return _load(buffer, offset + int(offsets), 1, 1, active)
    return _lanes(buffer, offset + offsets.astype(np.int64), active)


def _lanes(buffer: Array, where: Array, active: int | None) -> Array:
    count = len(where) if active is None else min(max(active, 0), len(where))
    result = np.zeros(len(where), buffer.dtype)
    if count:
        _check(buffer, int(where[:count].min()), int(where[:count].max()))
        result[:count] = buffer[where[:count]]
    return result


def _store(buffer: Array, offset: int, value: Lanes, stride: int, active: int | None) -> None:
    if np.ndim(value) == 0:
        if active is None or active > 0:
            _check(buffer, offset, offset)
            buffer[offset] = value
        return
    if stride == 1:
        count = len(value) if active is None else min(max(active, 0), len(value))
        _check(buffer, offset, offset + count - 1)
        buffer[offset : offset + count] = value[:count]
        return
    _write(buffer, offset + stride * np.arange(len(value)), value, active)


def _scatter(buffer: Array, offset: int, offsets: Lanes, value: Lanes, active: int | None) -> None:
    if np.ndim(value) == 0:
        _store(buffer, offset + int(offsets), value, 1, active)
    else:
        _write(buffer, offset + offsets.astype(np.int64), value, active)


def _write(buffer: Array, where: Array, value: Array, active: int | None) -> None:
    count = len(where) if active is None else min(max(active, 0), len(where))
    if count:
        _check(buffer, int(where[:count].min()), int(where[:count].max()))
        buffer[where[:count]] = value[:count]


class OutOfBoundError(IndexError):
    """An index that a :class:`~modelcc.ir.loop.Check` has found outside of its bound."""

    def __init__(self, value: int, extent: int, number: int) -> None:
        super().__init__(f"index {value} is outside of 0 … {extent - 1}")
        self.value = value
        self.number = number


def _ranges(count: int) -> list[tuple[int, int]]:
    """Halves of 0 … ``count - 1``, the later one first: threads come in no order."""
    return [(count // 2, count), (0, count // 2)]


def _check_index(value: Lanes, extent: int, number: int, active: int | None) -> None:
    for one in np.atleast_1d(value)[: None if active is None else max(active, 0)].tolist():
        if not 0 <= one < extent:
            raise OutOfBoundError(one, extent, number)


def _check(buffer: Array, low: int, high: int) -> None:
    if low <= high and (low < 0 or high >= len(buffer)):
        raise IndexError(
            f"access to elements {low} to {high} of a buffer of {len(buffer)} {buffer.dtype}"
        )


def _undefined(size: int, dtype: NumpyType) -> Array:
    if np.issubdtype(dtype, np.integer):
        return np.full(size, np.iinfo(dtype).max, dtype)
    return np.full(size, np.nan, np.float64).astype(dtype)


# --- arithmetic


def _maximum(a: Lanes, b: Lanes) -> Lanes:
    """``a > b ? a : b``, which differs from ``np.maximum`` for NaN."""
    return np.where(a > b, a, b)[()]


def _minimum(a: Lanes, b: Lanes) -> Lanes:
    return np.where(a < b, a, b)[()]


def _shuffle(a: Array, b: Array, places: Sequence[int]) -> Lanes:
    found = np.concatenate((a, b))[list(places)]
    return found if len(places) > 1 else found[0]


def _reduced(function: Callable[..., Lanes]) -> Callable[[Array], Lanes]:
    def fold(value: Array) -> Lanes:
        result = value[0]
        for lane in value[1:]:
            result = function(result, lane)
        return result

    return fold


def _like_operand(function: Callable[..., Lanes]) -> Callable[..., Lanes]:
    """The NumPy function with the dtype of its first operand."""
    return lambda *args: np.asarray(function(*args)).astype(args[0].dtype)[()]


_CALLS: dict[str, Callable[..., Lanes]] = {
    name: f.numpy if f.result == "bool" else _like_operand(f.numpy) for name, f in FUNCTIONS.items()
} | {"max": _maximum, "min": _minimum}

_PRIMITIVES: Mapping[str, Callable[..., object]] = {
    "load": _load,
    "gather": _gather,
    "store": _store,
    "scatter": _scatter,
    "check": _check_index,
    "ranges": _ranges,
    "undefined": _undefined,
    "maximum": _maximum,
    "minimum": _minimum,
    "shuffle": _shuffle,
    "where": np.where,
    "full": np.full,
    "int64": np.int64,
    "bool_": np.bool_,
    **{f"call_{name}": call for name, call in _CALLS.items()},
    **{f"reduce_{name}": _reduced(call) for name, call in _CALLS.items()},
}
