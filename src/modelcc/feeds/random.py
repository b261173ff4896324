"""Random inputs to run a model on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from math import prod

import numpy as np

from modelcc.ir.assignment import assignments
from modelcc.ir.condition import Condition
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph, Node
from modelcc.ir.index import Bounds, Index, Range, evaluate, split_affine, substitute, symbols
from modelcc.ir.types import MOST_BYTES, Array, TensorType
from modelcc.ops.elementwise import Cast, Equal, Identity
from modelcc.ops.gather import Gather, OneHot
from modelcc.ops.runtime_size import ReadSize
from modelcc.ops.shape import Concat, Expand, Reshape, Transpose
from modelcc.ops.slicing import Slice
from modelcc.passes.graph.assert_sizes import AssertSizes
from modelcc.passes.graph.bound_dimensions import BoundDimensions

MOVING = (Cast, Identity, Concat, Expand, Reshape, Slice, Transpose)
"""Ops whose result contains their operand's numbers, moved or converted."""

HOSTILE = (-(2**63), -(2**31) - 1, -(2**31), 2**31, 2**40, 2**62, 2**63 - 1)
"""Integers that are not valid indices."""

HOSTILE_FLOATS = (float("nan"), float("inf"), float("-inf"), 1e30)

LEADING_EXTENT, INNER_EXTENT = 2, 64
"""Sizes of unbounded named dimensions: small batches, and images and sequences that windows fit
into."""


TRIED = 1 << 12
"""Maximum combinations of sizes that are tried until all constraints are met."""


def nominal_sizes(
    dims: Bounds,
    given: Mapping[str, int],
    shapes: Iterable[Sequence[Index]],
    constraints: Iterable[Condition] = (),
) -> dict[str, int]:
    """A number for every named dimension: as ``given``, else a moderate one within its bounds.

    ``shapes`` are those of the inputs: leading dimensions are taken for batches.  The
    ``constraints`` on these dimensions are met if a solution is found easily.  :class:`ModelError`
    for an unknown ``given`` name.
    """
    unknown = [name for name in given if name not in dims]
    if unknown:
        known = ", ".join(dims) or "none"
        raise ModelError(f"there is no dimension {unknown[0]!r}", (), f"the model has {known}")
    leading = {name for shape in shapes for name in symbols(shape[0] if shape else 0)}
    wanted = {name: LEADING_EXTENT if name in leading else INNER_EXTENT for name in dims}
    sizes = {name: given.get(name, _within(dims[name], wanted[name])) for name in dims}
    due = [c for c in constraints if _mentions(c) and _mentions(c) <= dims.keys()]
    if all(c.holds(sizes) for c in due):
        return sizes
    free = sorted({n for c in due for n in _mentions(c)} - given.keys())
    known = {name: size for name, size in sizes.items() if name not in free}
    wishes = {name: sizes[name] for name in free}
    found = next(filter(None, islice(_meeting(wishes, known, due, dims), TRIED)), None)
    return sizes if found is None else {name: found[name] for name in dims}


def size_constraints(graph: Graph) -> tuple[Bounds, tuple[Condition, ...]]:
    """Bounds of the dimensions of ``graph``, and the constraints that every run asserts."""
    checked = AssertSizes()(BoundDimensions()(graph))
    reads = (node.op for node in checked.nodes if isinstance(node.op, ReadSize))
    dims = {name: known for name, known in checked.dims.items() if name in graph.dims}
    return dims, tuple(c for read in reads for c in read.conditions())


def _mentions(condition: Condition) -> frozenset[str]:
    return symbols(condition.left) | symbols(condition.right)


def _meeting(
    wishes: Mapping[str, int], known: Mapping[str, int], due: Sequence[Condition], dims: Bounds
) -> Iterator[dict[str, int] | None]:
    """``known`` extended by sizes near ``wishes`` that meet the constraints ``due``; None for each
    dead end."""

    def candidates(
        name: str, sizes: Mapping[str, int], later: Iterable[Sequence[Condition]]
    ) -> Iterator[int]:
        return _candidates(name, wishes[name], sizes, later, dims)

    return assignments(tuple(wishes), candidates, due, known)


def _candidates(
    name: str, wish: int, known: Mapping[str, int], due: Iterable[Sequence[Condition]], dims: Bounds
) -> Iterator[int]:
    """Candidate sizes within bounds: the preferred one, solutions of constraints with one unknown,
    then others, those near ``wish`` first."""
    if wish == _within(dims[name], wish) and wish >= 0:
        yield wish
    others = _other_candidates(name, wish, known, chain.from_iterable(due))
    yield from (n for n in others if n != wish and n >= 0 and n == _within(dims[name], n))


def _other_candidates(
    name: str, wish: int, known: Mapping[str, int], due: Iterable[Condition]
) -> Iterable[int]:
    """Solutions of constraints with one unknown, then numbers that occur elsewhere."""
    solved: list[int] = []
    near = {1, 2, 3, *(1 << n for n in range(2, 12)), *known.values()}
    for condition in due:
        left, right = (substitute(e, known) for e in (condition.left, condition.right))
        near |= {abs(e) for e in (left, right) if isinstance(e, int)}
        split = split_affine(left - right, (name,))
        if split is None or not isinstance(split[1], int):
            continue
        factor = split[0][name]
        if isinstance(factor, int) and factor:
            solved += [-split[1] // factor, -(split[1] // factor)]
    ordered = sorted(near, key=lambda size: (abs(size - wish), size))
    return dict.fromkeys((*solved, *ordered))


def _within(bounds: Range, wanted: int) -> int:
    least = bounds.lo if isinstance(bounds.lo, int) else 1
    most = bounds.hi if isinstance(bounds.hi, int) else max(least, wanted)
    return min(max(least, wanted), most)


def random_feeds(
    types: Mapping[str, TensorType],
    sizes: Mapping[str, int],
    seed: int = 0,
    limits: Mapping[str, int] | None = None,
    hostile: bool = False,
) -> dict[str, Array]:
    """Normal floats, integers below ``limits`` (2 if there is none), for each input.

    ``hostile`` ones contain some numbers that are invalid as indices or sizes.
    """
    generator = np.random.default_rng(seed)
    below = limits or {}
    found = {n: _random(t, sizes, below.get(n, 2), generator) for n, t in types.items()}
    if hostile:
        for name, array in found.items():
            found[name] = _spoilt(array, below.get(name, 2), generator)
    return found


def _spoilt(array: Array, limit: int, generator: np.random.Generator) -> Array:
    """``array`` with one element in eight, and at least one, out of range."""
    if array.dtype.kind not in "iuf" or not array.size:
        return array
    if array.dtype.kind == "f":
        values = np.array(HOSTILE_FLOATS, array.dtype)
    else:
        own = np.iinfo(array.dtype)
        near = (limit, -limit - 1, -1)
        values = np.array([v for v in (*near, *HOSTILE) if own.min <= v <= own.max], array.dtype)
    if not values.size:  # all values of this narrow type are in range
        return array
    result = array.copy()
    places = generator.choice(array.size, max(1, array.size // 8), replace=False)
    result.reshape(-1)[places] = generator.choice(values, len(places))
    return result


def _random(
    type: TensorType, sizes: Mapping[str, int], below: int, generator: np.random.Generator
) -> Array:
    shape = tuple(evaluate(extent, sizes) for extent in type.shape)
    if prod(extent or 1 for extent in shape) > MOST_BYTES // 8:
        raise ModelError(f"no array has the shape {list(shape)}", (), "give smaller sizes")
    if type.dtype.kind == "string":
        return np.full(shape, "text", dtype=object)
    if type.dtype.is_float or type.dtype.kind == "complex":
        return generator.standard_normal(shape).astype(type.dtype.numpy)
    return generator.integers(0, below, shape).astype(type.dtype.numpy)


def index_limits(graph: Graph) -> dict[str, int]:
    """For integer inputs that index a table or are compared with its indices, the table's extent.

    Inputs are traced through ops that only move or cast them.
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
            if constant is None or not graph.types[value].dtype.is_integer:
                return None
            return max(2, int(constant.data.max(initial=0)) + 1)
        case _:
            return None
