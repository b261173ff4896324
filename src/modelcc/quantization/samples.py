"""Calibration data: from NumPy files, arrays, or iterables of feeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np

from modelcc import checks
from modelcc.feeds.files import read_file
from modelcc.ir.dimensions import bind_dimensions
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.types import Array, TensorType, dtype_of

Feeds: TypeAlias = Mapping[str, Array]
Calibration: TypeAlias = "str | PathLike[str] | Array | Mapping[str, Any] | Iterable[Any]"
"""A ``.npz`` or ``.npy`` file or a folder of such, arrays by input, an array for a lone input, or
an iterable of feeds: arrays by input, tuples in order, or arrays for a lone input."""

HINT = "give samples along the first axis, numpy.savez('data.npz', INPUT=array)"


def calibration_feeds(
    given: Calibration, graph: Graph, batch: Callable[[Feeds], int]
) -> tuple[Feeds, ...]:
    """Feeds of single runs, each with ``batch`` times the samples of a run of one sample, if the
    model's batch extent is dynamic.

    :class:`ModelError` names the input whose arrays do not fit, are empty or not finite.
    """
    pieces = tuple(_pieces(given, graph))
    if not pieces:
        raise ModelError("there are no samples to calibrate on", (), HINT)
    most = batch(next(_runs(pieces[0], graph, 1)))
    return tuple(feeds for one in pieces for feeds in _runs(one, graph, most))


def _pieces(given: Calibration, graph: Graph) -> Iterator[dict[str, Array]]:
    """Arrays by input, each with one or more samples."""
    if isinstance(given, str | PathLike):
        path = checks.file_path("calibration", cast(Any, given))
        for file in _files(path):
            yield _of_file(file, graph)
    elif isinstance(given, np.ndarray | Mapping):
        yield _by_name(given, graph)
    else:
        if not isinstance(cast(object, given), Iterable):
            what = f"calibration must be files, arrays or feeds, not {checks.shown(given)}"
            raise ModelError(what, (), HINT)
        yield from (_by_name(one, graph) for one in given)


def _files(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(p for p in path.iterdir() if p.suffix in (".npy", ".npz"))
    if not found:
        raise ModelError(f"there are no .npy or .npz files in {path}", (), HINT)
    return found


def _of_file(path: Path, graph: Graph) -> dict[str, Array]:
    try:
        return _by_name(read_file(path), graph)
    except ModelError as error:
        raise error if str(path) in error.message else error.at(str(path)) from None


def _by_name(given: Any, graph: Graph) -> dict[str, Array]:
    if isinstance(given, Mapping):
        arrays = {str(n): np.asarray(a) for n, a in cast("Mapping[Any, Any]", given).items()}
    elif isinstance(given, tuple | list):
        items = [np.asarray(a) for a in cast("list[Any]", given)]
        arrays = dict(zip(graph.inputs, items, strict=False))
        if len(items) != len(graph.inputs):
            what = f"a sample has {len(items)} arrays for {len(graph.inputs)} inputs"
            raise ModelError(what, (), f"inputs are {', '.join(graph.inputs)}")
    else:
        if len(graph.inputs) != 1:
            hint = f"give arrays by name: {', '.join(graph.inputs)}"
            raise ModelError(f"one array for a model of {len(graph.inputs)} inputs", (), hint)
        arrays = {graph.inputs[0]: np.asarray(given)}
    unknown = [name for name in arrays if name not in graph.inputs]
    missing = [name for name in graph.inputs if name not in arrays]
    if unknown or missing:
        lacking = f"the calibration data has nothing for input {(missing or [''])[0]!r}"
        what = f"calibration data for {unknown[0]!r}, which is no input" if unknown else lacking
        raise ModelError(what, (), f"inputs are {', '.join(graph.inputs)}")
    return {name: _checked(name, arrays[name], graph.types[name]) for name in graph.inputs}


def _checked(name: str, array: Array, type: TensorType) -> Array:
    try:
        found = str(dtype_of(array))
    except TypeError:
        found = str(array.dtype)
    if found != str(type.dtype) or array.ndim not in (type.rank, type.rank + 1):
        what = f"input {name!r} must be {type}, but the calibration data is "
        raise ModelError(f"{what}{found}{list(array.shape)}", (), HINT)
    if not array.size:
        raise ModelError(f"the calibration data of input {name!r} is empty: {list(array.shape)}")
    if type.dtype.is_float:
        wrong = np.flatnonzero(~np.isfinite(array.astype(np.float64, copy=False)).reshape(-1))
        if wrong.size:
            at = [int(i) for i in np.unravel_index(int(wrong[0]), array.shape)]
            what = f"the calibration data of input {name!r} is {array[tuple(at)]} at {at}"
            raise ModelError(what, (), "give finite numbers")
    return array


def _runs(arrays: Mapping[str, Array], graph: Graph, batch: int) -> Iterator[Feeds]:
    """Feeds of single runs."""
    split = {name: _split(array, graph.types[name], batch) for name, array in arrays.items()}
    counts = {name: len(parts) for name, parts in split.items() if len(parts) > 1}
    count = max(counts.values(), default=1)
    odd = next((name for name, n in counts.items() if n != count), None)
    if odd is not None:
        most = next(name for name, n in counts.items() if n == count)
        runs = f"{count} runs of input {most!r} and {counts[odd]} of {odd!r}"
        hint = "give as many samples of each"
        raise ModelError(f"the calibration data has {runs}", (), hint)
    for n in range(count):
        feeds = {name: parts[n if len(parts) > 1 else 0] for name, parts in split.items()}
        shapes = ((name, graph.types[name], a.shape) for name, a in feeds.items())
        bind_dimensions(shapes, graph.dims)
        yield feeds


def _split(array: Array, type: TensorType, batch: int) -> list[Array]:
    """An array of samples, or of whole inputs, split into parts that fit an input."""
    if array.ndim == type.rank + 1:
        return list(array)
    first = type.shape[0] if type.rank else 1
    if not type.rank or first == len(array):
        return [array]
    size = first if isinstance(first, int) else min(batch, len(array))
    if len(array) < size:
        return [array]  # it does not fit, which binding reports
    # The last part is full, too, and may share samples with the one before.
    starts = (min(start, len(array) - size) for start in range(0, len(array), size))
    return [np.ascontiguousarray(array[start : start + size]) for start in starts]
