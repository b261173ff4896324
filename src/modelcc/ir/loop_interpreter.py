"""Reference interpreter of the loop level: its functions on NumPy arrays.

A function is compiled to Python source (:mod:`modelcc.ir.loop_source`), which calls the functions
defined here.  Reads and writes outside of a buffer raise ``IndexError``; local buffers are filled
with NaN or the largest integer initially, which exposes uses of uninitialised elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from types import MappingProxyType

import numpy as np

from modelcc.ir.index import evaluate
from modelcc.ir.loop import Function
from modelcc.ir.loop_groups import Watch
from modelcc.ir.loop_memory import Lanes, gather, load, part, scatter, store, undefined
from modelcc.ir.loop_source import Source, python_function
from modelcc.ir.scalar import FUNCTIONS
from modelcc.ir.types import Array, dtype_of

Kernel = Callable[[Sequence[Array], Sequence[int]], None]

GroupOrder = Callable[..., Iterable[tuple[int, ...]]]
"""From the extents of the grid loops, outermost first, the order in which groups run."""


def in_turn(*extents: int) -> Iterable[tuple[int, ...]]:
    """Groups by their indices, the last ones varying fastest."""
    return product(*map(range, extents))


def compile_loops(function: Function, groups: GroupOrder = in_turn) -> Kernel:
    """A callable that takes the arrays of the buffer parameters, then the sizes, and runs
    ``function``; arrays of mutable parameters are changed in place.

    The callable raises ``ValueError`` if an array does not fit its parameter and ``IndexError``
    if the function accesses memory outside of a buffer, :class:`OutOfBoundError` if a check fails.
    ``groups`` run one after the other, their threads from barrier to barrier; :mod:`loop_groups
    <modelcc.ir.loop_groups>` raises its errors for races and divergence.
    """
    run = _defined(python_function(function), function.name, {"groups": groups})

    def kernel(arrays: Sequence[Array], sizes: Sequence[int]) -> None:
        flat = _checked(function, arrays, dict(zip(function.sizes, sizes, strict=True)))
        with np.errstate(all="ignore"):
            run(*flat, *sizes)

    return kernel


def _defined(
    source: Source, name: str, given: Mapping[str, Callable[..., object]] = MappingProxyType({})
) -> Callable[..., object]:
    """The function that ``source`` defines, with ``given`` as globals."""
    scope: dict[str, object] = {
        own: _defined(value, own) if isinstance(value, Source) else value
        for own, value in source.constants.items()
    }
    scope |= {**_PRIMITIVES, **given}
    exec(compile(source.text, f"<loop function {name}>", "exec"), scope)
    run = scope["run"]
    assert callable(run)
    return run


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


class OutOfBoundError(IndexError):
    """An index that a :class:`~modelcc.ir.loop.Check` has found outside of its bound."""

    def __init__(self, value: int, extent: int, number: int) -> None:
        super().__init__(f"index {value} is outside of 0 … {extent - 1}")
        self.value = value
        self.number = number


def _ranges(count: int) -> list[tuple[int, int]]:
    """Halves of 0 … ``count - 1``, the later one first: the order of threads is unspecified."""
    return [(count // 2, count), (0, count // 2)]


def _check_index(value: Lanes, extent: int, number: int, active: int | None) -> None:
    for one in np.atleast_1d(value)[: None if active is None else max(active, 0)].tolist():
        if not 0 <= one < extent:
            raise OutOfBoundError(one, extent, number)


# --- arithmetic


def _maximum(a: Lanes, b: Lanes) -> Lanes:
    """``a > b ? a : b``, which differs from ``np.maximum`` for NaN."""
    greater = a > b
    return np.where(greater, a, b) if greater.ndim else a if greater else b


def _minimum(a: Lanes, b: Lanes) -> Lanes:
    less = a < b
    return np.where(less, a, b) if less.ndim else a if less else b


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
    "load": load,
    "gather": gather,
    "store": store,
    "scatter": scatter,
    "part": part,
    "watching": Watch,
    "check": _check_index,
    "ranges": _ranges,
    "undefined": undefined,
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
