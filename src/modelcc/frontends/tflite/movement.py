"""Data movement: reshape, transpose, concatenation and splitting."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.kit.parts import joined, taken_apart
from modelcc.frontends.tflite.call import QUANTIZED, Handlers, TfliteCall
from modelcc.frontends.tflite.complex_numbers import of_each_part
from modelcc.frontends.tflite.module import TfliteQuantization
from modelcc.ir.index import Index, floordiv, product
from modelcc.ir.types import F32, U8
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Expand, Reshape
from modelcc.ops.quant import limits
from modelcc.ops.shape import Tile, Transpose
from modelcc.ops.views import permuted, reshaped


def reshape(call: TfliteCall) -> str:
    """RESHAPE to a shape in an operand, or else in an option; -1 is inferred."""
    if call.has(1) and call.rank(1) == 1:
        given = call.indices(1, "shape")
    else:
        given = call.tuple("new_shape") or ()
    return call.emit(Reshape(_completed(call, given)), call.input(0))


def _completed(call: TfliteCall, given: tuple[Index, ...]) -> tuple[Index, ...]:
    open_ = [n for n, extent in enumerate(given) if extent == -1]
    if len(open_) > 1:
        call.fail(f"the shape {given} leaves more than one extent open")
    rest = product(extent for extent in given if extent != -1)
    if not open_ or rest == 0:
        return given
    missing = floordiv(product(call.shape()), rest)
    return tuple(missing if n in open_ else extent for n, extent in enumerate(given))


def expand_dims(call: TfliteCall) -> str:
    """EXPAND_DIMS."""
    (axis,) = call.integers(1, "axis")
    place = call.normal(axis, call.rank() + 1)
    shape = call.shape()
    return call.emit(Reshape((*shape[:place], 1, *shape[place:])), call.input(0))


def squeeze(call: TfliteCall) -> str:
    """SQUEEZE of the axes in the options, or of all of extent 1."""
    shape, given = call.shape(), call.tuple("squeeze_dims") or ()
    axes = [call.normal(axis, call.rank()) for axis in given]
    axes = axes or [axis for axis, extent in enumerate(shape) if extent == 1]
    kept = tuple(extent for axis, extent in enumerate(shape) if axis not in axes)
    return call.emit(Reshape(kept), call.input(0))


def transpose(call: TfliteCall) -> str:
    """TRANSPOSE."""
    perm = tuple(call.normal(axis, call.rank()) for axis in call.integers(1, "permutation"))
    if sorted(perm) != list(range(call.rank())):
        call.fail(f"{perm} is no permutation of the axes of {call.type()}")
    return call.emit(Transpose(perm), call.input(0))


def concatenation(call: TfliteCall) -> str:
    """CONCATENATION; u8 operands with other scales than the result's are requantized."""
    axis = call.normal(call.integer("axis"), call.rank())
    if call.word("fused_activation_function", "NONE") != "NONE":
        unsupported("a fused activation")
    parts = [_alike(call, n) for n in range(len(call.inputs))]
    return joined(call, axis, parts)


def _alike(call: TfliteCall, i: int) -> str:
    """Operand ``i`` requantized to the result's scale."""
    if not call.is_quantized or call.dtype(i) not in QUANTIZED:
        return call.inputs[i]
    x, y = call.single(i), call.result()
    if (x.scale, x.zero) == (y.scale, y.zero):
        return call.inputs[i]
    if call.dtype(i) != U8:
        call.fail(f"{call.labels[i]!r} has another scale or zero point than the result")
    return _in_floats(call.value(i), x, y).name


def _in_floats(x: Value, own: TfliteQuantization, y: TfliteQuantization) -> Value:
    """As in TFLite's u8 kernel: ``round(x * scale + bias) + zero``."""
    inverse = np.float32(1) / np.float32(y.scale)
    scale = np.float32(own.scale) * inverse
    bias = np.float32(-own.zero) * scale
    real = of(ew.Cast(F32), x) * float(scale) + float(bias)
    size = of(ew.Floor(), of(ew.Abs(), real) + 0.5) * of(ew.Sign(), real)
    bounds = limits(U8)
    whole = of(ew.Cast(F32), size) + float(y.zero)
    clipped = of(ew.Min(), of(ew.Max(), whole, whole.lift(bounds[0])), whole.lift(bounds[1]))
    return of(ew.Cast(U8), clipped)


def pack(call: TfliteCall) -> str:
    """PACK: operands stacked along a new axis."""
    axis = call.normal(call.integer("axis"), call.rank() + 1)
    shape = call.shape()
    wide = Reshape((*shape[:axis], 1, *shape[axis:]))
    return joined(call, axis, [call.emit(wide, name) for name in call.inputs])


def unpack(call: TfliteCall) -> tuple[str, ...]:
    """UNPACK: slices along an axis, without it."""
    axis = call.normal(call.integer("axis"), call.rank())
    shape = call.shape()
    narrow = Reshape((*shape[:axis], *shape[axis + 1 :]))
    if shape[axis] != len(call.results):
        call.fail(f"{call.type()} has no {len(call.results)} slices along axis {axis}")
    parts = taken_apart(call, call.input(0), axis, (1,) * len(call.results))
    return tuple(call.emit(narrow, part) for part in parts)


def split(call: TfliteCall) -> tuple[str, ...]:
    """SPLIT into equal parts along an axis, the first operand."""
    (given,) = call.integers(0, "axis")
    axis, count = call.normal(given, call.rank(1)), len(call.results)
    extent = number_of(call.shape(1)[axis], "extent")
    if extent % count:
        call.fail(f"{extent} elements do not divide into {count} parts")
    return tuple(taken_apart(call, call.input(1), axis, (extent // count,) * count))


def split_v(call: TfliteCall) -> tuple[str, ...]:
    """SPLIT_V into parts of given sizes, of which -1 is inferred."""
    sizes = list(call.integers(1, "sizes"))
    (given,) = call.integers(2, "axis")
    axis = call.normal(given, call.rank())
    extent = call.shape()[axis]
    if -1 in sizes:
        place = sizes.index(-1)
        sizes[place] = number_of(extent - sum(s for s in sizes if s != -1), "extent")
    if extent != sum(sizes) or min(sizes, default=0) < 0:
        call.fail(f"{sizes} elements are not those of {call.type()} along axis {axis}")
    return tuple(taken_apart(call, call.input(0), axis, sizes))


def tile(call: TfliteCall) -> str:
    """TILE."""
    return call.emit(Tile(call.indices(1, "multiples")), call.input(0))


def broadcast_to(call: TfliteCall) -> str:
    """BROADCAST_TO."""
    return call.emit(Expand(call.indices(1, "shape")), call.input(0))


def space_to_depth(call: TfliteCall) -> str:
    """SPACE_TO_DEPTH: blocks of pixels as channels, in row-major order."""
    n, h, w, c = call.shape()
    size = _block(call)
    split_ = reshaped(call.value(0), n, floordiv(h, size), size, floordiv(w, size), size, c)
    moved = permuted(split_, 0, 1, 3, 2, 4, 5)
    return reshaped(moved, n, floordiv(h, size), floordiv(w, size), c * size * size).name


def depth_to_space(call: TfliteCall) -> str:
    """DEPTH_TO_SPACE: channels as blocks of pixels, in row-major order."""
    n, h, w, c = call.shape()
    size = _block(call)
    inner = floordiv(c, size * size)
    moved = permuted(reshaped(call.value(0), n, h, w, size, size, inner), 0, 1, 3, 2, 4, 5)
    return reshaped(moved, n, h * size, w * size, inner).name


def _block(call: TfliteCall) -> int:
    size = call.integer("block_size", 0)
    if call.rank() != 4 or size < 1:
        call.fail(f"it takes blocks of {size} pixels of {call.type()}")
    return size


def shape(call: TfliteCall) -> str:
    """SHAPE."""
    return call.note(call.shape(), call.result_dtype)


def rank(call: TfliteCall) -> str:
    """RANK."""
    return call.constant(np.asarray(call.rank()), call.result_dtype)


MOVEMENT: Handlers = {
    "RESHAPE": of_each_part(reshape),
    "EXPAND_DIMS": of_each_part(expand_dims),
    "SQUEEZE": of_each_part(squeeze),
    "TRANSPOSE": of_each_part(transpose),
    "CONCATENATION": concatenation,
    "PACK": pack,
    "UNPACK": unpack,
    "SPLIT": split,
    "SPLIT_V": split_v,
    "TILE": tile,
    "BROADCAST_TO": broadcast_to,
    "SPACE_TO_DEPTH": space_to_depth,
    "DEPTH_TO_SPACE": depth_to_space,
    "SHAPE": shape,
    "RANK": rank,
}
