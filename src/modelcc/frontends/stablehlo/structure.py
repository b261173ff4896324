"""Data movement, creation, type conversion, and sizes as values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.kit.parts import joined
from modelcc.frontends.kit.shapes import is_symbolic
from modelcc.frontends.stablehlo.call import HloCall, index_scalar, table
from modelcc.ir.index import Index, Range, ceildiv, compare, maximum
from modelcc.ir.types import BOOL, DTYPES, F32, I32, I64, DType
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import of
from modelcc.ops.broadcast import Expand, Reshape
from modelcc.ops.generate import Full, Iota
from modelcc.ops.padding import Pad
from modelcc.ops.shape import Transpose
from modelcc.ops.slicing import Slice


def constant(call: HloCall) -> str:
    value = call.attribute("value")
    if isinstance(value, str):
        unsupported(f"its contents are {value[:60]}")
    return call.constant(value, call.result_dtype)


def iota(call: HloCall) -> str:
    return call.emit(_iota(call, call.static_shape()))


def dynamic_iota(call: HloCall) -> str:
    return call.emit(_iota(call, sizes(call, 0)))


def _iota(call: HloCall, shape: Sequence[Index]) -> Iota:
    return Iota(tuple(shape), call.integer("iota_dimension"), 0, 1, call.result_dtype)


def sizes(call: HloCall, operand: int) -> tuple[Index, ...]:
    """A vector operand as extents of the result; static ones of the module take precedence."""
    computed = call.indices(operand, "shape", Range(0, None))
    return call.result_shape(computed)


def convert(call: HloCall) -> str:
    to, own = call.result_dtype, call.dtype()
    if own.is_float and to.is_integer and to.bits >= 8:
        return _whole(call, to)
    return converted(call, call.input(0), to)


def _whole(call: HloCall, to: DType) -> str:
    """Floats to integers as in XLA: truncated, saturated, NaN to 0.  StableHLO leaves the latter
    two open."""
    wide = F32 if call.dtype().bits <= 16 else call.dtype()
    x, (low, high) = call.as_value(converted(call, call.input(0), wide)), integers(to)
    above, below = of(ew.GreaterOrEqual(), x, x.lift(high + 1.0)), of(ew.Less(), x, x.lift(low))
    number = of(ew.Equal(), x, x)
    fits = of(ew.And(), number, of(ew.Not(), of(ew.Or(), above, below)))
    found = of(ew.Cast(to), of(ew.Where(), fits, x, x.lift(0.0)))
    found = of(ew.Where(), above, found.lift(high), found)
    return of(ew.Where(), below, found.lift(low), found).name


def integers(dtype: DType) -> tuple[int, int]:
    """The minimum and the maximum integer of a type."""
    signed = dtype.kind == "int"
    return -(2 ** (dtype.bits - 1)) if signed else 0, 2 ** (dtype.bits - signed) - 1


def converted(call: HloCall, name: str, to: DType) -> str:
    """``name`` as ``to``."""
    return name if call.type_of(name).dtype == to else call.emit(ew.Cast(to), name)


def combinable(dtype: DType) -> DType:
    """A type that ops can combine and order elements in, which holds all of ``dtype``."""
    if dtype.is_float:
        return F32 if dtype.bits < 16 else dtype
    return I32 if dtype == BOOL or dtype.bits < 8 else dtype


def compared(call: HloCall) -> str:
    op = _COMPARISONS[call.attribute("comparison_direction")]
    if call.dtype() == BOOL and not isinstance(op, ew.Equal | ew.NotEqual):
        bytes_ = [call.emit(ew.Cast(I32), name) for name in call.inputs]
        return call.emit(op, *bytes_)
    return call.emit(op, *call.inputs)


_COMPARISONS = {
    "EQ": ew.Equal(), "NE": ew.NotEqual(), "LT": ew.Less(), "LE": ew.LessOrEqual(),
    "GT": ew.Greater(), "GE": ew.GreaterOrEqual(),
}  # fmt: skip


def reshaped(call: HloCall, name: str, shape: Sequence[Index]) -> str:
    """The elements of ``name`` in another shape."""
    return name if call.type_of(name).shape == tuple(shape) else call.emit(
        Reshape(tuple(shape)), name)  # fmt: skip


def transposed(call: HloCall, name: str, axes: Sequence[int]) -> str:
    """``name`` with its axes in another order."""
    return name if list(axes) == list(range(len(axes))) else call.emit(
        Transpose(tuple(axes)), name)  # fmt: skip


def reshape(call: HloCall) -> str:
    if None in call.op.types[0].shape:
        unsupported("the shape of its result is not written down")
    return reshaped(call, call.input(0), call.static_shape())


def dynamic_reshape(call: HloCall) -> str:
    return reshaped(call, call.input(0), sizes(call, 1))


def transpose(call: HloCall) -> str:
    return transposed(call, call.input(0), call.integers("permutation"))


def broadcast_in_dim(call: HloCall) -> str:
    return broadcast(call, call.integers("broadcast_dimensions"), call.static_shape())


def dynamic_broadcast_in_dim(call: HloCall) -> str:
    return broadcast(call, call.integers("broadcast_dimensions"), sizes(call, 1))


def broadcast(call: HloCall, axes: Sequence[int], shape: Sequence[Index]) -> str:
    """Operand 0 with its axis n at ``axes[n]`` of ``shape``, broadcast."""
    name, own = call.input(0), call.shape()
    if any(a > b for a, b in pairwise(axes)):
        order = sorted(range(len(axes)), key=axes.__getitem__)
        name, own = transposed(call, name, order), tuple(own[a] for a in order)
    lined: list[Index] = [1] * len(shape)
    for axis, extent in zip(sorted(axes), own, strict=True):
        lined[axis] = extent
    name = reshaped(call, name, lined)
    return name if tuple(lined) == tuple(shape) else call.emit(Expand(tuple(shape)), name)


def slice_(call: HloCall) -> str:
    starts, steps = call.integers("start_indices"), call.integers("strides")
    limits = call.integers("limit_indices")
    counts = [max(0, -(-(b - a) // s)) for a, b, s in zip(starts, limits, steps, strict=True)]
    return call.emit(Slice(starts, tuple(counts), steps), call.input(0))


def real_dynamic_slice(call: HloCall) -> str:
    """A slice with bounds as operands; a run fails for starts out of bounds."""
    pairs = zip(call.shape(), call.op.types[0].shape, strict=True)
    fit = [Range(0, e - n if isinstance(e, int) and n is not None else None) for e, n in pairs]
    read = call.indices(1, "start", fit)
    starts = tuple(0 if r.hi == 0 else start for start, r in zip(read, fit, strict=True))
    limits = call.indices(2, "limit", Range(0, None))
    steps = call.indices(3, "stride", Range(1, None))
    counts = [
        maximum(0, ceildiv(b - a, s)) if compare(b, ">=", a, call.bounds) is not True
        else ceildiv(b - a, s)
        for a, b, s in zip(starts, limits, steps, strict=True)
    ]  # fmt: skip
    return call.emit(Slice(starts, call.result_shape(counts), steps), call.input(0))


def reverse(call: HloCall) -> str:
    return reversed_along(call, call.input(0), call.integers("dimensions"))


def reversed_along(call: HloCall, name: str, axes: Sequence[int]) -> str:
    """``name`` reversed along ``axes``."""
    shape = call.type_of(name).shape
    if not axes:
        return name
    turned = [a in axes and e != 0 for a, e in enumerate(shape)]
    starts = tuple(e - 1 if turn else 0 for e, turn in zip(shape, turned, strict=True))
    steps = tuple(-1 if turn else 1 for turn in turned)
    return call.emit(Slice(starts, shape, steps), name)


def concatenate(call: HloCall) -> str:
    return joined(call, call.integer("dimension"), call.inputs)


def pad(call: HloCall) -> str:
    low, high = call.integers("edge_padding_low"), call.integers("edge_padding_high")
    return padded(call, call.input(0), call.input(1), low, high, call.integers("interior_padding"))


def dynamic_pad(call: HloCall) -> str:
    low, high = call.indices(2, "low padding"), call.indices(3, "high padding")
    between = [number_of(n, "padding between elements") for n in call.indices(4, "padding")]
    return padded(call, call.input(0), call.input(1), low, high, between)


def padded(
    call: HloCall,
    name: str,
    value: str,
    low: Sequence[Index],
    high: Sequence[Index],
    between: Sequence[int],
) -> str:
    """``name`` padded with ``value``: numbers of elements before, after and between its own."""
    known = call.emitter.contents(value)
    dtype = call.type_of(name).dtype
    if known is not None and not is_symbolic(known):
        return _filled(call, name, known.reshape(-1).tolist()[0], low, high, between)
    own = call.emit(Full(call.type_of(name).shape, True, BOOL))
    mask = _filled(call, own, False, low, high, between)
    zero = False if dtype == BOOL else 0
    return call.emit(ew.Where(), mask, _filled(call, name, zero, low, high, between), value)


def _filled(
    call: HloCall,
    name: str,
    value: float,
    low: Sequence[Index],
    high: Sequence[Index],
    between: Sequence[int],
) -> str:
    for axis, count in enumerate(between):
        if count:
            name = _spread(call, name, value, axis, count)
    if any((*low, *high)):
        name = call.emit(Pad(tuple(low), tuple(high), "constant", value), name)
    return name


def _spread(call: HloCall, name: str, value: float, axis: int, count: int) -> str:
    """With ``count`` elements of ``value`` between neighbours: pads a new axis, and merges it."""
    shape = call.type_of(name).shape
    extent = shape[axis]
    if extent in (0, 1):
        return name
    apart = (*shape[: axis + 1], 1, *shape[axis + 1 :])
    name = reshaped(call, name, apart)
    after = tuple(count if a == axis + 1 else 0 for a in range(len(apart)))
    name = call.emit(Pad((0,) * len(apart), after, "constant", value), name)
    merged = (*shape[:axis], extent * (count + 1), *shape[axis + 1 :])
    name = reshaped(call, name, merged)
    kept = (*shape[:axis], (extent - 1) * (count + 1) + 1, *shape[axis + 1 :])
    return call.emit(Slice((0,) * len(kept), kept, (1,) * len(kept)), name)


def get_dimension_size(call: HloCall) -> str:
    extent = call.shape()[call.integer("dimension")]
    return index_scalar(call.emitter, extent, I32)


def shape_of(call: HloCall) -> str:
    return call.note(call.shape(), I64)


def bitcast_convert(call: HloCall) -> str:
    """Bits as another type; the last axis holds the parts of wider elements."""
    to, own = call.result_dtype, call.dtype()
    given, wanted = _width(own), _width(to)
    if wanted == given:
        return call.input(0) if to == own else call.emit(ew.BitCast(to), call.input(0))
    return _split(call, to, own) if wanted < given else _merged(call, to, own)


def _width(dtype: DType) -> int:
    return 1 if dtype == BOOL else dtype.bits


def _number(dtype: DType) -> DType:
    """The unsigned integer type of the same width."""
    return BOOL if dtype == BOOL else DTYPES[f"u{dtype.bits}"]


def _split(call: HloCall, to: DType, own: DType) -> str:
    """The parts of each element, lowest bits first, along a new axis."""
    width, wide = _width(to), _room(own)
    x = call.as_value(call.emit(ew.Cast(wide), _bits(call, call.input(0), _number(own))))
    parts: list[str] = []
    for number in range(own.bits // width):
        part = x.name
        if number:
            part = call.emit(ew.BitShift(left=False), part, x.lift(number * width).name)
        low = call.emit(ew.BitwiseAnd(), part, x.lift(2**width - 1).name)
        low = call.emit(ew.Cast(_number(to)), low)
        parts.append(reshaped(call, low, (*call.shape(), 1)))
    return _bits(call, joined(call, call.rank(), parts), to)


def _merged(call: HloCall, to: DType, own: DType) -> str:
    """Elements from the parts along the last axis."""
    width, wide = _width(own), _room(to)
    *outer, count = call.shape()
    if count != to.bits // width:
        call.fail(f"{count} elements of {own} do not make one of {to}")
    x = call.emit(ew.Cast(wide), _bits(call, call.input(0), _number(own)))
    total = None
    for number in range(to.bits // width):
        starts = (*(0 for _ in outer), number)
        part = call.emit(Slice(starts, (*outer, 1), (1,) * len(starts)), x)
        moved = call.as_value(reshaped(call, part, outer))
        shifted = call.emit(ew.BitShift(left=True), moved.name, moved.lift(number * width).name)
        total = shifted if total is None else call.emit(ew.BitwiseOr(), total, shifted)
    assert total is not None
    return _bits(call, call.emit(ew.Cast(_number(to)), total), to)


def _room(dtype: DType) -> DType:
    """The type for arithmetic on unsigned integers of this width."""
    return DTYPES[f"u{max(dtype.bits, 8)}"]


def _bits(call: HloCall, name: str, to: DType) -> str:
    return name if call.type_of(name).dtype == to else call.emit(ew.BitCast(to), name)


STRUCTURE = table(
    constant=constant,
    iota=iota,
    dynamic_iota=dynamic_iota,
    convert=convert,
    compare=compared,
    reshape=reshape,
    dynamic_reshape=dynamic_reshape,
    transpose=transpose,
    broadcast_in_dim=broadcast_in_dim,
    dynamic_broadcast_in_dim=dynamic_broadcast_in_dim,
    slice=slice_,
    real_dynamic_slice=real_dynamic_slice,
    reverse=reverse,
    concatenate=concatenate,
    pad=pad,
    dynamic_pad=dynamic_pad,
    get_dimension_size=get_dimension_size,
    bitcast_convert=bitcast_convert,
)

SIZES = table("shape", shape_of=shape_of)
