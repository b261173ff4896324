"""Handlers of reshapes and slices: views in PyTorch, separate values here."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.parts import joined, sliced
from modelcc.frontends.kit.slicing import FAR, clamped_range, from_front
from modelcc.frontends.torch.aten import Aten, table
from modelcc.ir.index import Index
from modelcc.ir.types import BOOL, DType
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Expand
from modelcc.ops.comparison import Where
from modelcc.ops.elementwise import BitCast
from modelcc.ops.generate import Full
from modelcc.ops.shape import Transpose
from modelcc.ops.slicing import Unslice
from modelcc.ops.views import reshaped


def view(call: Aten, x: Value, *_: object) -> Value:
    """The elements in row-major order, in the shape that PyTorch has inferred."""
    return reshaped(x, *call.extents())


def retyped(call: Aten, x: Value, dtype: DType) -> Value:
    """Bitcast of the elements to another type of the same width."""
    if dtype.bits != x.type.dtype.bits or BOOL in (dtype, x.type.dtype):
        unsupported(f"a view of {x.type.dtype} as {dtype}")
    return x if dtype == x.type.dtype else of(BitCast(dtype), x)


def permute(call: Aten, x: Value, dims: Sequence[int]) -> Value:
    rank = x.type.rank
    return of(Transpose(tuple(call.axis(d, rank) for d in dims)), x) if rank else x


def transpose(call: Aten, x: Value, dim0: int, dim1: int) -> Value:
    axes = list(range(x.type.rank))
    if not axes:
        return x
    a, b = call.axis(dim0, len(axes)), call.axis(dim1, len(axes))
    axes[a], axes[b] = axes[b], axes[a]
    return of(Transpose(tuple(axes)), x)


def transposed_matrix(call: Aten, x: Value) -> Value:
    return x if x.type.rank < 2 else transpose(call, x, 0, 1)


def expand(call: Aten, x: Value, *_: object) -> Value:
    target = call.extents()
    wide = reshaped(x, *(1,) * (len(target) - x.type.rank), *x.type.shape)
    return expanded(wide, target)


def expanded(x: Value, shape: tuple[Index, ...]) -> Value:
    """``x`` expanded to a shape of at least as many axes."""
    return x if x.type.shape == shape else of(Expand(shape), x)


def concatenated(call: Aten, axis: int, *parts: Value) -> Value:
    """``parts`` concatenated along ``axis``."""
    return Value(call, joined(call, axis, [p.name for p in parts]))


def slice_(
    call: Aten, x: Value, dim: int = 0, start: Index | None = None, end: Index | None = None,
    step: int = 1,
) -> Value:  # fmt: skip
    extents = x.type.shape
    axis = call.axis(dim, len(extents))
    last = FAR if end is None else end
    first, count = clamped_range(
        0 if start is None else start, last, step, extents[axis], call.bounds
    )
    return Value(call, sliced(call, x.name, {axis: (first, count, step)}, extents))


def select(call: Aten, x: Value, dim: int, index: Index) -> Value:
    extents = x.type.shape
    axis = call.axis(dim, len(extents))
    first = _inside(call, index, extents[axis])
    row = Value(call, sliced(call, x.name, {axis: (first, 1, 1)}, extents))
    return reshaped(row, *call.extents())


def _inside(call: Aten, index: Index, extent: Index) -> Index:
    """A nonnegative index, required to be within an axis."""
    first = from_front(index, extent, call.bounds)
    call.emitter.require([(first, ">=", 0), (first, "<", extent)], call.source)
    return first


def concatenate(call: Aten, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Empty vectors among the parts are ignored, whatever the rank of the others."""
    parts = [call.as_value(t) for t in tensors if t.type.shape != (0,)]
    if not parts:
        return call.as_value(tensors[0])
    axis = call.axis(dim, parts[0].type.rank)
    return concatenated(call, axis, *parts)


def slice_scatter(
    call: Aten, x: Value, source: Value, dim: int = 0, start: Index | None = None,
    end: Index | None = None, step: int = 1,
) -> Value:  # fmt: skip
    """``x`` with ``source`` in place of a slice of it."""
    extents = x.type.shape
    axis = call.axis(dim, len(extents))
    last = FAR if end is None else end
    first, count = clamped_range(
        0 if start is None else start, last, step, extents[axis], call.bounds
    )
    values = call.as_value(source)
    call.emitter.require([(values.type.shape[axis], "==", count)], call.source)
    return replaced(call, x, values, axis, (first, count, step))


def select_scatter(call: Aten, x: Value, source: Value, dim: int, index: Index) -> Value:
    """``x`` with ``source`` in place of index ``index`` along an axis."""
    extents = x.type.shape
    axis = call.axis(dim, len(extents))
    first = _inside(call, index, extents[axis])
    row = reshaped(call.as_value(source), *extents[:axis], 1, *extents[axis + 1 :])
    return replaced(call, x, row, axis, (first, 1, 1))


def replaced(
    call: Aten, x: Value, source: Value, axis: int, part: tuple[Index, Index, Index]
) -> Value:
    """A contiguous part by concatenation; a strided one by selection."""
    (first, count, step), extents = part, x.type.shape
    if step != 1:
        return _chosen(call, x, source, axis, part)
    rest = extents[axis] - first - count
    before = Value(call, sliced(call, x.name, {axis: (0, first, 1)}, extents))
    after = Value(call, sliced(call, x.name, {axis: (first + count, rest, 1)}, extents))
    parts = [p for p in (before, source, after) if p.type.shape[axis] != 0]
    return concatenated(call, axis, *parts) if parts else x


def _chosen(
    call: Aten, x: Value, source: Value, axis: int, part: tuple[Index, Index, Index]
) -> Value:
    """Selects ``source``, spread to the part's indices, by a mask."""
    (first, count, step), extents = part, x.type.shape
    inside = (*extents[:axis], count, *extents[axis + 1 :])
    places = spread(call.made(Full(inside, True, BOOL)), extents, axis, first, step)
    return of(Where(), places, spread(source, extents, axis, first, step), x)


def copy(call: Aten, x: Value, source: Value, *_: object) -> Value:
    """``source`` in the shape and type of ``x``."""
    return expand(call, call.as_value(source))


def slice_backward(
    call: Aten, dy: Value, sizes: Sequence[Index], dim: int, start: Index, end: Index, step: int
) -> Value:
    """Zeros of ``sizes`` with the gradient of a slice in its place."""
    axis = call.axis(dim, len(sizes))
    first, _ = clamped_range(start, end, step, sizes[axis], call.bounds)
    return spread(dy, tuple(sizes), axis, first, step)


def select_backward(call: Aten, dy: Value, sizes: Sequence[Index], dim: int, index: Index) -> Value:
    axis = call.axis(dim, len(sizes))
    first = _inside(call, index, sizes[axis])
    row = reshaped(dy, *sizes[:axis], 1, *sizes[axis + 1 :])
    return spread(row, tuple(sizes), axis, first, 1)


def spread(x: Value, shape: tuple[Index, ...], axis: int, first: Index, step: Index) -> Value:
    """Zeros of ``shape`` with ``x`` at ``first``, then at stride ``step`` along ``axis``."""
    starts = tuple(first if a == axis else 0 for a in range(len(shape)))
    steps = tuple(step if a == axis else 1 for a in range(len(shape)))
    return of(Unslice(starts, steps, shape), x)


_OF_ONE = MappingProxyType(
    {
        "view": view,
        "_unsafe_view": view,
        "reshape": view,
        "_reshape_alias": view,
        "flatten": view,
        "unsqueeze": view,
        "squeeze": view,
        "view_as": view,
        "permute": permute,
        "transpose": transpose,
        "t": transposed_matrix,
        "numpy_T": transposed_matrix,
        "expand": expand,
        "expand_as": expand,
        "slice": slice_,
        "select": select,
    }
)

VIEWS = table(
    **{"view.dtype": retyped},
    **_OF_ONE,
    **{f"{name}_copy": handler for name, handler in _OF_ONE.items()},
    cat=concatenate,
    slice_scatter=slice_scatter,
    select_scatter=select_scatter,
    slice_backward=slice_backward,
    select_backward=select_backward,
    copy=copy,
)
