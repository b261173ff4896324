"""Inputs to run a model on, from NumPy files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from modelcc.feeds.npz import DamagedFileError, read_arrays
from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array, DType, TensorType, dtype_of


def read_feeds(
    items: Sequence[str], types: Mapping[str, TensorType]
) -> tuple[dict[str, Array], list[str]]:
    """Arrays of ``name=file.npy`` items by input name, and the inputs without one.

    ``file.npz`` without a name has several; a single ``file.npy`` is for a single input.
    """
    found: dict[str, Array] = {}
    for item in items:
        for name, array in _arrays(item, types).items():
            if name in found:
                hint = f"inputs are {', '.join(types)}; write NAME=FILE.npy for each"
                raise ModelError(f"input {name!r} is given twice", (), hint)
            found[name] = _checked(name, array, types)
    return found, [name for name in types if name not in found]


def _arrays(item: str, types: Mapping[str, TensorType]) -> dict[str, Array]:
    name, equals, file = item.partition("=")
    if not equals and item.endswith(".npz"):
        return _load_npz(Path(item))
    if not equals:
        return {_only_input(types, item): _load_npy(Path(item))}
    return {name: _load_npy(Path(file))}


def _only_input(types: Mapping[str, TensorType], item: str) -> str:
    if len(types) == 1:
        return next(iter(types))
    hint = f"write NAME={item}; inputs are {', '.join(types) or 'none'}"
    raise ModelError(f"the model has {len(types)} inputs, so {item!r} needs a name", (), hint)


def _checked(name: str, array: Array, types: Mapping[str, TensorType]) -> Array:
    """``array`` in the element type of the input ``name``, checked to fit."""
    if name not in types:
        raise ModelError(f"there is no input {name!r}", (), f"inputs are {', '.join(types)}")
    wanted = types[name]
    array = _named(array, wanted.dtype)
    try:
        given = str(dtype_of(array))
    except TypeError:  # dates, structures …
        given = str(array.dtype)
    if given != str(wanted.dtype) or array.ndim != wanted.rank:
        raise ModelError(f"input {name!r} must be {wanted}, but the file holds {given}"
                         f"{list(array.shape)}")  # fmt: skip
    return array


def _named(array: Array, wanted: DType) -> Array:
    """Elements reinterpreted as ``wanted``, if the file has only their size: it has no name for
    bf16 and the like, which NumPy then reads as bytes."""
    unnamed = array.dtype.kind == "V" and array.dtype.names is None and array.dtype.itemsize > 0
    if unnamed and wanted.numpy.kind == "V" and wanted.numpy.itemsize == array.dtype.itemsize:
        return array.view(wanted.numpy)
    return array


def _load_npy(path: Path) -> Array:
    loaded = read_file(path)
    if isinstance(loaded, dict):
        raise ModelError(f"{path} holds several arrays", (), "give it without a name, as FILE.npz")
    return loaded


def _load_npz(path: Path) -> dict[str, Array]:
    loaded = read_file(path)
    if not isinstance(loaded, dict):
        raise ModelError(f"{path} is not an .npz file")
    return loaded


def read_file(path: Path) -> Array | dict[str, Array]:
    """The array of a file, or those of several by name; :class:`ModelError` if it cannot be
    read."""
    try:
        return read_arrays(path)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    except DamagedFileError as error:
        raise _unreadable(path) from error


def _unreadable(path: Path) -> ModelError:
    with path.open("rb") as file:
        start = file.read(_HEADER)
    hint = "write numbers or texts: numpy.save(file, array.astype('float32')), or astype('U')"
    if start.startswith(b"PK"):
        return ModelError(f"cannot read {path}: it is damaged, or holds Python objects", (), hint)
    if not start.startswith(b"\x93NUMPY"):
        hint = "write it with numpy.save or numpy.savez"
        return ModelError(f"{path} is not a NumPy file", (), hint)
    if b"|O" in start:
        return ModelError(f"{path} holds Python objects, which are not read", (), hint)
    return ModelError(f"{path} is cut off or damaged", (), "write it with numpy.save again")


_HEADER = 1024
"""Bytes of an .npy file that contain its header."""
