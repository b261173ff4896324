"""Callers' arrays: validation, and addresses of their elements."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard, cast

import numpy as np

from modelcc.artifact.manifest import Manifest, TensorSpec
from modelcc.ir.types import Array, NumpyType
from modelcc.runtime.dlpack import NumpyExporter
from modelcc.runtime.errors import InputError

_HEAD = object.__basicsize__
_number = ctypes.c_int64.from_address


def address_of(array: Array) -> int:
    """Address of the first element of an array; ten times as fast as ``array.ctypes.data``.

    The data pointer follows the object's header.  NumPy's ABI guarantees this: compiled extensions
    rely on it through ``PyArray_DATA``.
    """
    return _number(id(array) + _HEAD).value


def with_names(
    arguments: tuple[object, ...], named: Mapping[str, object]
) -> tuple[tuple[object, ...], Mapping[str, object]]:
    """Positional and keyword arguments; a leading dict counts as keywords."""
    if arguments and _is_dict(arguments[0]):
        return arguments[1:], {**arguments[0], **named}
    return arguments, named


def _is_dict(value: object) -> TypeGuard[dict[str, object]]:
    return type(value) is dict


def ordered(
    manifest: Manifest, arguments: Sequence[object], named: Mapping[str, object]
) -> tuple[object, ...]:
    """Arguments in the order of the model's inputs; InputError for missing or unknown ones."""
    names = [spec.name for spec in manifest.inputs]
    signature = f"{manifest.name}({', '.join(names)})"
    if len(arguments) > len(names):
        raise InputError(
            manifest.name, f"{len(names)} inputs", f"{len(arguments)}", f"call {signature}"
        )
    given = dict(zip(names, arguments, strict=False))
    for name, value in named.items():
        if name not in names:
            raise InputError(manifest.name, signature, f"'{name}'", "check the name")
        if name in given:
            raise InputError(f"input '{name}'", "one value", "two", "give it once")
        given[name] = value
    missing = [name for name in names if name not in given]
    if missing:
        listed = ", ".join(f"'{name}'" for name in missing)
        raise InputError(manifest.name, signature, f"no {listed}", "give every input")
    return tuple(given[name] for name in names)


def as_input(spec: TensorSpec, value: object) -> Array:
    """``value`` as an array of the input's element type.

    Accepts NumPy arrays and scalars, and objects with ``__dlpack__``.  InputError for anything
    else and for another element type: nothing is converted silently.
    """
    array = _as_array(spec, value)
    if array.dtype != spec.dtype.numpy:
        raise InputError(
            f"input '{spec.name}'",
            f"{spec.dtype.numpy} elements, {spec}",
            f"{array.dtype}",
            f"convert it, as in x.astype('{spec.dtype.numpy}')",
        )
    return array


def contiguous(spec: TensorSpec, array: Array) -> Array:
    """``array``, which has the input's shape, contiguous and aligned; a copy only if it is not.

    InputError if there is no memory for the copy: elements of a view may share theirs.
    """
    if array.flags.c_contiguous and not address_of(array) % array.itemsize:
        return array
    try:
        return array.copy(order="C")
    except (MemoryError, ValueError) as error:
        raise InputError(
            f"input '{spec.name}'",
            f"an array that fits into memory, {spec}",
            f"a view of shape {list(array.shape)}, which cannot be copied ({error})",
            "give fewer elements",
        ) from error


def _as_array(spec: TensorSpec, value: object) -> Array:
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(cast(Any, value))
    if not hasattr(value, "__dlpack__"):
        raise InputError(
            f"input '{spec.name}'",
            f"a NumPy array or an object with __dlpack__, {spec}",
            type(value).__name__,
            f"use numpy.asarray(x, '{spec.dtype.numpy}')",
        )
    try:
        return _from_dlpack(value, spec.dtype.numpy)
    except Exception as error:  # exporters may raise anything
        raise InputError(
            f"input '{spec.name}'",
            f"an array in this machine's memory, {spec}",
            f"a {type(value).__name__} that does not share its memory ({error})",
            "move it to the CPU and detach it, or convert it to a NumPy array",
        ) from error


def _from_dlpack(value: Any, dtype: NumpyType) -> Array:
    if dtype.isbuiltin == 1:
        return np.from_dlpack(value)
    exporter = NumpyExporter(value, dtype)
    array: Array = np.from_dlpack(cast(Any, exporter))
    return array.view(dtype) if exporter.as_integers else array


def check_output(spec: TensorSpec, shape: tuple[int, ...], value: object) -> Array:
    """An ``out=`` array that results can be written into; InputError if it cannot be used."""
    if not _is_array(value):
        raise _bad_output(spec, shape, type(value).__name__, "give NumPy arrays as out=")
    if value.dtype != spec.dtype.numpy or value.shape != shape:
        given = f"{value.dtype} of shape {list(value.shape)}"
        raise _bad_output(spec, shape, given, "give an array of this type and shape")
    flags = value.flags
    if not (flags.c_contiguous and flags.writeable) or address_of(value) % value.itemsize:
        given = "one that is not contiguous, aligned and writable"
        raise _bad_output(spec, shape, given, "use numpy.empty(shape, dtype)")
    return value


def _is_array(value: object) -> TypeGuard[Array]:
    return isinstance(value, np.ndarray)


def _bad_output(spec: TensorSpec, shape: tuple[int, ...], given: str, remedy: str) -> InputError:
    expected = f"{spec.dtype.numpy} array of shape {list(shape)}"
    return InputError(f"output '{spec.name}'", expected, given, remedy)


def overlap(a: Array, b: Array) -> bool:
    """Whether two contiguous arrays share bytes."""
    start, other = address_of(a), address_of(b)
    return start < other + b.nbytes and other < start + a.nbytes
