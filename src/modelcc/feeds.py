"""Inputs to run a model on: random ones, or arrays from files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.index import Bounds, Index, Range, evaluate, symbols
from modelcc.ir.op import ModelError
from modelcc.ir.types import Array, TensorType, dtype_of
from modelcc.ops.elementwise import Cast, Equal, Identity
from modelcc.ops.gather import Gather, OneHot
from modelcc.ops.shape import Concat, Expand, Reshape, Transpose
from modelcc.ops.slicing import Slice

MOVING = (Cast, Identity, Concat, Expand, Reshape, Slice, Transpose)
"""Ops whose result holds their operand's numbers, elsewhere or in another type."""

LEADING_EXTENT, INNER_EXTENT = 2, 64
"""Sizes given to named dimensions that are not bound: small batches, and pictures and sequences
that windows fit into."""


def nominal_sizes(
    dims: Bounds, given: Mapping[str, int], shapes: Iterable[Sequence[Index]]
) -> dict[str, int]:
    """A number for every named dimension: as ``given``, else a modest one within its bounds.

    ``shapes`` are those of the inputs: dimensions that lead one are taken for batches.
    :class:`ModelError` for a ``given`` name that is none.
    """
    unknown = [name for name in given if name not in dims]
    if unknown:
        known = ", ".join(dims) or "none"
        raise ModelError(f"there is no dimension {unknown[0]!r}", (), f"the model has {known}")
    leading = {name for shape in shapes for name in symbols(shape[0] if shape else 0)}
    wanted = {name: LEADING_EXTENT if name in leading else INNER_EXTENT for name in dims}
    return {name: given.get(name, _within(dims[name], wanted[name])) for name in dims}


def _within(bounds: Range, wanted: int) -> int:
    least = bounds.lo if isinstance(bounds.lo, int) else 1
    most = bounds.hi if isinstance(bounds.hi, int) else max(least, wanted)
    return min(max(least, wanted), most)


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
    """For integer inputs that index a table or are compared with its numbers, how many there are.

    Inputs are followed through ops that only move or cast them.
    """
    readers = graph.consumers()
    found = {name: _index_limit(graph, readers, name) for name in graph.inputs}
    return {name: limit for name, limit in found.items() if limit is not None}


def _index_limit(graph: Graph, readers: Mapping[str, Sequence[Node]], name: str) -> int | None:
    limits: list[int] = []
    pending, seen = [name], {name}
    while pending:
        value = pending.pop()
        for node in readers.get(value, ()):
            limit = _limit_of_use(graph, node, value)
            if limit is not None:
                limits.append(limit)
            if isinstance(node.op, MOVING):
                pending += [n for n in node.outputs if n not in seen]
                seen.update(node.outputs)
    return min(limits, default=None)


def _limit_of_use(graph: Graph, node: Node, value: str) -> int | None:
    match node.op:
        case Gather(axis) if node.inputs[1] == value:
            rows = graph.types[node.inputs[0]].shape[axis]
            return rows if isinstance(rows, int) else None
        case OneHot() if node.inputs[0] == value:
            return node.op.depth if isinstance(node.op.depth, int) else None
        case Equal():
            other = next((n for n in node.inputs if n != value), value)
            constant = graph.constants.get(other)
            return None if constant is None else max(2, int(constant.data.max(initial=0)) + 1)
        case _:
            return None


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
