"""Choice of tensors with blocked channels, and of the width of zero halos for their readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product as cartesian
from math import prod

from modelcc.ir.index import (
    Bounds,
    Index,
    Sym,
    bounds_of,
    coefficient,
    loop_range,
    product,
    simplify,
    substitute,
    symbols,
)
from modelcc.ir.scalar import WORD_DOTS
from modelcc.ir.scalar_tree import children, index_symbols, reads
from modelcc.ir.tensor import (
    Algorithm,
    Apply,
    Axis,
    Cast,
    Guard,
    Item,
    Kernel,
    Number,
    Read,
    ReadSize,
    Scalar,
    Scatter,
    Stage,
    View,
    item_inputs,
    item_outputs,
)
from modelcc.ir.tensor_ranges import implied_by_range
from modelcc.ir.types import I32, U8, TensorType, row_major

QUAD = 4
"""Bytes that a dot product of bytes processes at once."""

MOST_GROWTH = 6.0
"""Growth of a tensor by its halo that still costs less than guards in the loops of a window."""

MOST_BORDER = 1 / 8
"""Maximum fraction of a reduction's elements read from a halo rather than guarded."""

USES, SUMMANDS = 16, 64
"""Minimum uses of each run-time weight, and minimum products summed, for blocked channels of
results to pay."""

TAPS = 49
"""Maximum taps of a window for a reduction to traverse them for every block of channels."""

COUNTED = 4096
"""Maximum number of index values enumerated."""


@dataclass(frozen=True)
class Border:
    """Elements before and after each dimension, and their value."""

    sides: tuple[tuple[int, int], ...]
    fill: int


def stages_of(items: tuple[Item, ...]) -> list[Stage]:
    """Every stage, in program order."""
    return [s for i in items if isinstance(i, Kernel) for s in i.stages]


def blocked_dims(
    items: tuple[Item, ...],
    types: Mapping[str, TensorType],
    constants: frozenset[str],
    inputs: frozenset[str],
    block: int,
) -> dict[str, int]:
    """Tensor → the dimension whose blocks should be innermost.

    Seeds are contractions with a constant and convolutions by run-time weights, which are
    vectorised along these operands' own axis, and padded windows over ``inputs``, whose vectors
    along rows would end at every border; their readers along that axis follow.  If it is the last
    dimension of a tensor, row-major order already fits, as it does for algorithms, for readers of
    sizes, and for transpositions unless followed by a convolution.
    """
    packed = constants | {t for t, type_ in types.items() if type_.layout is not None}
    convolved = _convolved(items, packed)
    wanted: dict[str, int] = {}
    along: dict[str, int] = {}
    plain = [i for i in items if isinstance(i, Algorithm | Scatter | ReadSize)]
    refused = {t for i in plain for t in (*item_inputs(i), *item_outputs(i))}
    bytes = byte_dims(items, types)
    for stage in stages_of(items):
        type_ = types[stage.output]
        dim = _seed_dim(stage, packed) if stage.reduce else None
        if dim is None:
            dim = _window_dim(stage, inputs)
        if dim is None:
            weak = along if stage.output in convolved else {}
            dim = _followed_dim(stage, {**weak, **wanted}, block)
        if dim is None:
            dim = bytes.get(stage.output)
        if dim is not None and dim == len(stage.write) - 1:
            along[stage.output] = dim
            continue
        known = wanted.get(stage.output)
        first = stage.output not in wanted and stage.output not in refused
        least = min(block, QUAD) if bytes.get(stage.output) == dim else block
        fits = dim is not None and _worth_blocking(dim, type_, least)
        if fits and (first or known == dim) and dim is not None and _aligned(stage, dim, block):
            wanted[stage.output] = dim
        else:
            wanted.pop(stage.output, None)
            refused.add(stage.output)
    return wanted


def blocked_operands(
    items: tuple[Item, ...],
    types: Mapping[str, TensorType],
    names: frozenset[str],
    wanted: Mapping[str, int],
    block: int,
) -> dict[str, int]:
    """Tensors to block that do not follow others, and the dimension to block.

    They are read by reductions with blocked results, along the same channels or, if they are among
    ``names``, which are copied anyway, along a whole block of reduced channels.
    """
    found: dict[str, int] = {}
    made = _made_by_elements(items, types) - wanted.keys()
    for stage in stages_of(items):
        if not stage.reduce or stage.output not in wanted:
            continue
        own = stage.write[wanted[stage.output]]
        summed: set[Index] = {Sym(a.name) for a in stage.reduce if _together(a, stage, block)}
        for read in reads(stage.body):
            for dim, index in enumerate(read.indices[:-1]):
                along = index == own or (index in summed and read.tensor in names)
                fits = read.tensor in names | made
                if fits and along and _worth_blocking(dim, types[read.tensor], block):
                    found.setdefault(read.tensor, dim)
    return found


def _together(axis: Axis, stage: Stage, block: int) -> bool:
    """Whether a whole block of the reduced ``axis`` is read before the next tap.

    With many taps, as in a gradient of weights, the other operand's elements would be far apart.
    """
    taps = product(a.extent for a in stage.reduce if a != axis)
    few = not isinstance(taps, int) or taps <= TAPS
    return isinstance(axis.extent, int) and axis.extent >= block and few


def _made_by_elements(items: tuple[Item, ...], types: Mapping[str, TensorType]) -> frozenset[str]:
    """Tensors of rows that one kernel computes elementwise, and only kernels read."""
    kernels = [item for item in items if isinstance(item, Kernel)]
    others = [item for item in items if not isinstance(item, Kernel)]
    fixed = {t for item in others for t in (*item_inputs(item), *item_outputs(item))}
    stages = [k.stages[0] for k in kernels if len(k.stages) == 1 and not k.stages[0].reduce]
    return frozenset(
        s.output
        for s in stages
        if s.write == tuple(Sym(a.name) for a in s.axes)
        and types[s.output].layout is None
        and s.output not in fixed
    )


def _convolved(items: tuple[Item, ...], constants: frozenset[str]) -> frozenset[str]:
    """Tensors that convolutions read, directly or through elementwise stages."""
    found: set[str] = set()
    for item in reversed(items):
        if isinstance(item, View):
            found |= {item.input} if item.output in found else set()
            continue
        for stage in reversed(stages_of((item,))):
            if _is_convolution(stage, constants) if stage.reduce else stage.output in found:
                found.update(r.tensor for r in reads(stage.body))
    return frozenset(found)


def _is_convolution(stage: Stage, constants: frozenset[str]) -> bool:
    dim = _seed_dim(stage, constants)
    return dim is not None and dim != len(stage.write) - 1


def byte_dims(items: tuple[Item, ...], types: Mapping[str, TensorType]) -> dict[str, int]:
    """Tensor of bytes, or of words of two integers → the dimension that contractions reduce, if it
    is not the last.

    Dot products of bytes take groups of four neighbours along it.
    """
    found: dict[str, int] = {}
    for stage in stages_of(items):
        pair = _product(stage) if stage.body.dtype == I32 else None
        for read in pair or ():
            for axis in stage.reduce:
                along = [d for d, i in enumerate(read.indices) if i == Sym(axis.name)]
                inner = len(read.indices) - 1
                small = types[read.tensor].dtype == U8 or _multiplies_words(stage)
                plain = types[read.tensor].layout is None
                if small and plain and along and along[0] != inner:
                    found.setdefault(read.tensor, along[0])
    return found


def _worth_blocking(dim: int, type_: TensorType, block: int) -> bool:
    extent = type_.shape[dim]
    inner = type_.shape[dim + 1 :]
    return isinstance(extent, int) and extent * 2 >= block and any(d != 1 for d in inner)


def _aligned(stage: Stage, dim: int, block: int) -> bool:
    """Whether the part of the output that the stage writes starts at a whole block, or is copied
    from whole blocks."""
    start = substitute(stage.write[dim], {a.name: 0 for a in stage.axes})
    if not isinstance(start, int):
        return False
    return start % block == 0 or (not stage.reduce and _from_whole_blocks(stage, dim, block))


def _from_whole_blocks(stage: Stage, dim: int, block: int) -> bool:
    """Whether all reads along dimension ``dim`` of the output start at a whole block."""
    moving = symbols(stage.write[dim])
    indices = [i for r in reads(stage.body) for i in r.indices if symbols(i) & moving]
    starts = [substitute(i, {n: 0 for n in symbols(i)}) for i in indices]
    return all(isinstance(start, int) and start % block == 0 for start in starts)


def _seed_dim(stage: Stage, constants: frozenset[str]) -> int | None:
    """The output dimension along which only (or also) the constant operand of a product moves, or
    the run-time weights of a convolution."""
    pair = _product(stage)
    if pair is None:
        return None
    fixed = [r for r in pair if r.tensor in constants]
    weights = fixed[0] if len(fixed) == 1 else None if fixed else _weights(stage, pair)
    if weights is None:
        return None
    moved = index_symbols(weights)
    candidates = [d for d, i in enumerate(stage.write) if symbols(i) & moved]
    return candidates[-1] if candidates else None


def _weights(stage: Stage, pair: tuple[Read, Read]) -> Read | None:
    """The one of two run-time operands that the other one is convolved with.

    It moves along a single axis of the result, which is not the innermost; the other one is an
    image, of which the reduction reads windows or the pixels of planes, with enough reuse.
    """
    summed = {a.name for a in stage.reduce}
    inner = next((a.name for a in reversed(stage.axes) if a.extent != 1), "")
    for image, weights in (pair, pair[::-1]):
        seen, moved = index_symbols(image), index_symbols(weights)
        outputs = [a for a in stage.axes if a.name in moved]
        windows = any(len(symbols(i)) > 1 and symbols(i) & summed for i in image.indices)
        if len(outputs) != 1 or outputs[0].name in seen or inner not in seen - moved:
            continue
        uses = product(a.extent for a in stage.axes if a.name not in moved)
        summands = product(a.extent for a in stage.reduce)
        if (windows or len(stage.write) > 3) and _least(uses, USES) and _least(summands, SUMMANDS):
            return weights
    return None


def _least(count: Index, least: int) -> bool:
    """Whether ``count`` is at least ``least``, or symbolic."""
    return not isinstance(count, int) or count >= least


def _window_dim(stage: Stage, inputs: frozenset[str]) -> int | None:
    """The last dimension along which a window, guarded along rows of one of ``inputs``, does not
    move."""
    if not stage.reduce or not isinstance(stage.body, Guard):
        return None
    match stage.body.inside:
        case Read(tensor=tensor, indices=indices) if tensor in inputs:
            inner = symbols(indices[-1])
        case _:
            return None
    slides = inner & {a.name for a in stage.axes} and inner & {a.name for a in stage.reduce}
    guarded = any(inner & symbols(c.left - c.right) for c in stage.body.conditions)
    if not slides or not guarded or len(indices) != len(stage.write):
        return None
    names = {Sym(a.name) for a in stage.axes}
    same = [d for d, i in enumerate(indices) if i in names and stage.write[d] == i]
    return same[-1] if same else None


def _product(stage: Stage) -> tuple[Read, Read] | None:
    """The two reads of a sum of products, guards and conversions aside."""
    body = _unguarded(stage.body)
    products = isinstance(body, Apply) and body.function in ("mul", *WORD_DOTS)
    if stage.combine != "sum" or not isinstance(body, Apply) or not products:
        return None
    parts = [_unguarded(a) for a in body.args]
    match parts:
        case [Read() as a, Read() as b]:
            return a, b
        case _:
            return None


def _multiplies_words(stage: Stage) -> bool:
    return isinstance(stage.body, Apply) and stage.body.function in WORD_DOTS


def _unguarded(scalar: Scalar) -> Scalar:
    match scalar:
        case Guard(inside=inner) | Cast(value=inner):
            return _unguarded(inner)
        case _:
            return scalar


def _followed_dim(stage: Stage, wanted: Mapping[str, int], block: int) -> int | None:
    for read in reads(stage.body):
        dim = wanted.get(read.tensor)
        if dim is None:
            continue
        index = read.indices[dim]
        for axis in stage.axes:
            shift = substitute(index, {axis.name: 0})
            if coefficient(index, axis.name) != 1 or not isinstance(shift, int):
                continue
            target = _written_dim(stage, axis.name)
            if shift % block == 0 and target is not None:
                return target
    return None


def _written_dim(stage: Stage, axis: str) -> int | None:
    found = [d for d, i in enumerate(stage.write) if axis in symbols(i)]
    return found[0] if len(found) == 1 else None


def halos(
    items: tuple[Item, ...], types: Mapping[str, TensorType], dims: Bounds, widest: int
) -> dict[str, Border]:
    """Tensor → border that makes its readers' guards superfluous, and its fill value.

    Left to guards are borders that make the tensor more than ``MOST_GROWTH`` times as large; for
    symbolic shapes, those wider than ``widest`` elements; and those with another fill value than
    that of the first reader.
    """
    wanted: dict[str, Border] = {}
    for stage in stages_of(items):
        ranges = {**dims, **{a.name: loop_range(a.extent) for a in (*stage.axes, *stage.reduce)}}
        for read, fill in _guarded(stage.body, types, ranges):
            need = _overhang(read, types[read.tensor], ranges)
            need = need and _worth_reading(need, read, stage, types[read.tensor])
            if need is None or not _affordable(types[read.tensor], need, widest):
                continue
            old = wanted.get(read.tensor, Border(tuple((0, 0) for _ in need), fill))
            if old.fill == fill:
                sides = zip(old.sides, need, strict=True)
                both = tuple((max(a, c), max(b, d)) for (a, b), (c, d) in sides)
                wanted[read.tensor] = Border(both, fill)
    return {t: h for t, h in wanted.items() if any(b or a for b, a in h.sides)}


def _worth_reading(
    need: tuple[tuple[int, int], ...], read: Read, stage: Stage, type_: TensorType
) -> tuple[tuple[int, int], ...]:
    """``need`` without the planes if too much of a sum of products would be read from the border.

    A guard is uniform over a plane, but not over tiles of points of rows and columns.
    """
    moving = [d for d, i in enumerate(read.indices) if symbols(i) and type_.shape[d] != 1]
    planes = moving[:-2] if _product(stage) is not None else []
    spared = {
        d
        for d in planes
        if any(need[d]) and _outside(read.indices[d], d, stage, type_) > MOST_BORDER
    }
    return tuple((0, 0) if d in spared else sides for d, sides in enumerate(need))


def _outside(index: Index, dim: int, stage: Stage, type_: TensorType) -> float:
    """The fraction of the values of ``index`` that lie outside of ``dim``; 0 if unknown."""
    extent = type_.shape[dim]
    axes = [a for a in (*stage.axes, *stage.reduce) if a.name in symbols(index)]
    ranges = [range(a.extent) for a in axes if isinstance(a.extent, int)]
    if not isinstance(extent, int) or len(ranges) != len(axes) or prod(map(len, ranges)) > COUNTED:
        return 0.0
    names = [a.name for a in axes]
    values = [substitute(index, dict(zip(names, at, strict=True))) for at in cartesian(*ranges)]
    outside = sum(not (isinstance(v, int) and 0 <= v < extent) for v in values)
    return outside / max(1, len(values))


def _affordable(type_: TensorType, border: Sequence[tuple[int, int]], widest: int) -> bool:
    if not type_.is_static:
        return max(max(sides) for sides in border) <= widest
    growth = 1.0
    for extent, (before, after) in zip(type_.static_shape(), border, strict=True):
        growth *= (extent + before + after) / max(1, extent)
    return growth <= MOST_GROWTH


def _guarded(
    scalar: Scalar, types: Mapping[str, TensorType], ranges: Bounds
) -> list[tuple[Read, int]]:
    """Reads replaced by a small integer outside of their tensor, and that integer."""
    match scalar:
        case Guard(conditions=conditions, inside=Read() as read, outside=Number(value=value)) if (
            value == 0 or (read.dtype in (U8, I32) and isinstance(value, int))
        ):
            outside = implied_by_range(conditions, read, types[read.tensor].shape, ranges)
            return [(read, int(value))] if outside else []
        case _:
            return [r for child in children(scalar) for r in _guarded(child, types, ranges)]


def _overhang(read: Read, type_: TensorType, ranges: Bounds) -> tuple[tuple[int, int], ...] | None:
    """How far the read exceeds the tensor, per dimension."""
    result: list[tuple[int, int]] = []
    for index, extent in zip(read.indices, type_.shape, strict=True):
        low = bounds_of(index, ranges).lo
        high = bounds_of(simplify(index - (extent - 1), ranges), ranges).hi
        if low is None or high is None:
            return None
        result.append((max(0, -low), max(0, high)))
    return tuple(result)


def view_indices(view: View, types: Mapping[str, TensorType], dims: Bounds) -> Stage:
    """The stage equivalent to a view: every element read at its row-major position."""
    target, source = types[view.output], types[view.input]
    axes = tuple(Axis(f"v{n}", e) for n, e in enumerate(target.shape))
    point: tuple[Index, ...] = tuple(Sym(a.name) for a in axes)
    ranges = {**dims, **{a.name: loop_range(a.extent) for a in axes}}
    flat = row_major(target.rank).offset(point, target.shape)
    indices: list[Index] = []
    stride: Index = 1
    for dim in reversed(range(source.rank)):
        extent = source.shape[dim]
        index = flat // stride
        indices.append(simplify(index if dim == 0 else index % extent, ranges))
        stride = stride * extent
    body = Read(view.input, tuple(reversed(indices)), source.dtype)
    return Stage(view.output, axes, point, body)
