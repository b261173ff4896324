"""Inputs to run a model on: random ones, or arrays from files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from modelcc.ir.graph import Graph
from modelcc.ir.index import Bounds, Index, evaluate, symbols
from modelcc.ir.op import ModelError
from modelcc.ir.types import Array, TensorType, dtype_of
from modelcc.ops.gather import Gather

DEFAULT_EXTENT = 2
"""Size given to a named dimension that is not bound, if its bounds allow."""


def nominal_sizes(dims: Bounds, given: Mapping[str, int]) -> dict[str, int]:
    """A number for every named dimension: as ``given``, else a small one within its bounds."""
    unknown = [name for name in given if name not in dims]
    if unknown:
        known = ", ".join(dims) or "none"
        raise ModelError(f"there is no dimension {unknown[0]!r}", (), f"the model has {known}")
    return {name: given.get(name, _nominal(dims, name)) for name in dims}


def _nominal(dims: Bounds, name: str) -> int:
    low, high = dims[name].lo, dims[name].hi
    least = low if isinstance(low, int) else 1
    most = high if isinstance(high, int) else max(least, DEFAULT_EXTENT)
    return min(max(least, DEFAULT_EXTENT), most)


def random_feeds(
    types: Mapping[str, TensorType],
    sizes: Mapping[str, int],
    seed: int = 0,
    limits: Mapping[str, int] | None = None,
) -> dict[str, Array]:
    """Normal floats, integers below ``limits`` (2 where that has none), for each input."""
    generator = np.random.default_rng(seed)
    below = limits or {}
    return {n: _random(t, sizes, below.get(n, 2), generator) for n, t in types.items()}


def _random(
    type: TensorType, sizes: Mapping[str, int], below: int, generator: np.random.Generator
) -> Array:
    shape = tuple(evaluate(extent, sizes) for extent in type.shape)
    if type.dtype.kind == "string":
        return np.full(shape, "text", dtype=object)
    if type.dtype.is_float or type.dtype.kind == "complex":
        return generator.standard_normal(shape).astype(type.dtype.numpy)
    return generator.integers(0, below, shape).astype(type.dtype.numpy)


def index_limits(graph: Graph) -> dict[str, int]:
    """For integer inputs that index a table (token numbers), the number of its rows."""
    limits: dict[str, int] = {}
    for node in graph.nodes:
        if isinstance(node.op, Gather) and node.inputs[1] in graph.inputs:
            rows: Index = graph.types[node.inputs[0]].shape[node.op.axis]
            if not symbols(rows):
                name = node.inputs[1]
                limits[name] = min(int(evaluate(rows, {})), limits.get(name, 1 << 62))
    return limits


def read_feeds(
    items: Sequence[str], types: Mapping[str, TensorType]
) -> tuple[dict[str, Array], list[str]]:
    """Arrays of ``name=file.npy`` items by input name, and the inputs that none is for.

    ``file.npz`` without a name gives several; a lone ``file.npy`` is for a lone input.
    """
    found: dict[str, Array] = {}
    for item in items:
        name, equals, file = item.partition("=")
        if not equals and item.endswith(".npz"):
            found |= _load_npz(Path(item))
        elif not equals:
            found[_only_input(types, item)] = _load_npy(Path(item))
        else:
            found[name] = _load_npy(Path(file))
    for name, array in found.items():
        _check_feed(name, array, types)
    return found, [name for name in types if name not in found]


def _only_input(types: Mapping[str, TensorType], item: str) -> str:
    if len(types) == 1:
        return next(iter(types))
    hint = f"write NAME={item}; inputs are {', '.join(types) or 'none'}"
    raise ModelError(f"the model has {len(types)} inputs, so {item!r} needs a name", (), hint)


def _check_feed(name: str, array: Array, types: Mapping[str, TensorType]) -> None:
    if name not in types:
        raise ModelError(f"there is no input {name!r}", (), f"inputs are {', '.join(types)}")
    wanted, given = types[name], dtype_of(array)
    if given != wanted.dtype or array.ndim != wanted.rank:
        raise ModelError(f"input {name!r} must be {wanted}, but the file holds {given}"
                         f"{list(array.shape)}")  # fmt: skip


def _load_npy(path: Path) -> Array:
    loaded = _load(path)
    if isinstance(loaded, np.ndarray):
        return loaded
    raise ModelError(f"{path} holds several arrays", (), "give it without a name, as FILE.npz")


def _load_npz(path: Path) -> dict[str, Array]:
    loaded = _load(path)
    if isinstance(loaded, np.ndarray):
        raise ModelError(f"{path} is not an .npz file")
    return loaded


def _load(path: Path) -> Array | dict[str, Array]:
    try:
        loaded: Any = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return cast(Array, loaded)
        return {name: loaded[name] for name in loaded.files}
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        hint = "write it with numpy.save"
        raise ModelError(f"{path} is not a NumPy file: {error}", (), hint) from error
