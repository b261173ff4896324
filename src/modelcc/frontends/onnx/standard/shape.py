"""Handlers of shapes, data movement and constants."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.parts import joined, sliced, taken_apart
from modelcc.frontends.kit.slicing import clamped_range
from modelcc.frontends.kit.stretching import common_shape
from modelcc.frontends.kit.vectors import BEYOND, operand, vector_of
from modelcc.frontends.onnx.call import Call, table
from modelcc.frontends.onnx.standard import runtime_shape
from modelcc.frontends.onnx.standard.padding import pad
from modelcc.frontends.onnx.standard.tiles import tile
from modelcc.ir.index import Index, Range, ceildiv, compare, floordiv, product, simplify, total
from modelcc.ir.types import I64, dtype_of
from modelcc.ops import shape as sh
from modelcc.ops.broadcast import reshaped, shape_text


def constant(call: Call) -> str:
    attrs = call.attrs
    given = [n for n in attrs.names() if n.startswith(("value", "sparse_value"))]
    if len(given) != 1:
        call.fail(f"Constant needs exactly one value attribute but has {len(given)}")
    match given[0]:
        case "value":
            array = attrs.tensor("value")
        case "sparse_value":
            array = attrs.sparse("sparse_value")
        case "value_float":
            array = np.array(attrs.number("value_float"), np.float32)
        case "value_floats":
            array = np.array(attrs.numbers("value_floats"), np.float32)
        case "value_int":
            array = np.array(attrs.integer("value_int"), np.int64)
        case "value_ints":
            array = np.array(attrs.integers("value_ints"), np.int64)
        case "value_string":
            array = np.array(attrs.text("value_string"), object)
        case _:
            array = np.array(attrs.texts("value_strings"), object)
    return call.emitter.note(array, dtype_of(array))


def shape(call: Call) -> str:
    extents = call.shape()
    rank = len(extents)
    start = _position(call.attrs.integer("start", 0), rank)
    end = _position(call.attrs.integer("end", rank), rank)
    return call.note(extents[start:end], I64)


def _position(value: int, rank: int) -> int:
    return min(max(value + rank if value < 0 else value, 0), rank)


def size(call: Call) -> str:
    (element,) = (product(call.shape()),)
    vector = call.note((element,), I64)
    return call.emit(sh.Reshape(()), vector)


def reshape(call: Call) -> str:
    """The target is an attribute before opset 5, then an operand."""
    if call.opset >= 5 and call.known(1) is None:
        return runtime_shape.reshape(call)
    if call.opset >= 5 and call.rank(1) > 1:
        call.fail(f"its shape must be a vector, not {call.type(1)}")
    target: tuple[Index, ...]
    target = call.attrs.integers("shape") if call.opset < 5 else call.indices(1, "shape")
    keep_zeros = call.attrs.flag("allowzero")
    return reshaped(call, call.input(0), resolved(call, target, keep_zeros))


def resolved(call: Call, target: tuple[Index, ...], keep_zeros: bool) -> tuple[Index, ...]:
    """A Reshape target with 0 (copy) and -1 (infer) resolved."""
    source = call.shape()
    if not keep_zeros and any(t == 0 and i >= len(source) for i, t in enumerate(target)):
        call.fail(f"shape {list(target)} copies dimensions that the operand does not have")
    dims = [source[i] if t == 0 and not keep_zeros else t for i, t in enumerate(target)]
    if dims.count(-1) > 1:
        call.fail(f"shape {list(target)} has more than one -1")
    if -1 in dims:
        dims[dims.index(-1)] = _inferred(call, source, [d for d in dims if d != -1])
    before, after = product(source), product(dims)
    if compare(before, "!=", after, call.bounds):
        old, new = shape_text(source), shape_text(dims)
        call.fail(f"cannot reshape {old} into {new}: {before} elements against {after}")
    return tuple(dims)


def _inferred(call: Call, source: tuple[Index, ...], rest: list[Index]) -> Index:
    total, known = product(source), product(rest)
    if known == 0:
        return 0
    inferred = simplify(floordiv(total, known), call.bounds)
    if isinstance(inferred, int) and inferred * known != total and isinstance(total, int):
        call.fail(f"{total} elements do not divide into {shape_text(rest)}")
    return inferred


def flatten(call: Call) -> str:
    extents = call.shape()
    axis = call.attrs.integer("axis", 1)
    if not -len(extents) <= axis <= len(extents):
        call.fail(f"axis {axis} does not exist in a tensor of rank {len(extents)}")
    axis += len(extents) if axis < 0 else 0
    return reshaped(call, call.input(0), (product(extents[:axis]), product(extents[axis:])))


def squeeze(call: Call) -> str:
    if call.opset >= 13 and call.has(1) and call.known(1) is None:
        return runtime_shape.squeeze(call)
    extents, axes = call.shape(), call.axes(1, 13, repeated=True)
    if axes is None:
        axes = tuple(i for i, d in enumerate(extents) if d == 1)
        # The rank of the result must be known: a symbolic extent is not 1, else the run fails.
        named = [d for d in dict.fromkeys(extents) if not isinstance(d, int)]
        call.emitter.require([(d, "!=", 1) for d in named], call.source, always=True)
    for a in axes:
        if compare(extents[a], "!=", 1, call.bounds):
            call.fail(f"cannot squeeze dimension {a} of extent {extents[a]}")
    value = call.input(0)
    for a in axes:
        value = call.sized(value, a, 1)
    kept = tuple(d for i, d in enumerate(extents) if i not in axes)
    return reshaped(call, value, kept)


def unsqueeze(call: Call) -> str:
    if call.opset >= 13 and call.known(1) is None:
        return runtime_shape.unsqueeze(call)
    count = len(call.attrs.integers("axes")) if call.opset < 13 else len(call.integers(1, "axes"))
    axes = call.axes(1, 13, call.rank() + count) or ()
    extents = list(call.shape())
    for a in sorted(axes):
        extents.insert(a, 1)
    return reshaped(call, call.input(0), tuple(extents))


def transpose(call: Call) -> str:
    rank = call.rank()
    perm = call.attrs.integers("perm", tuple(reversed(range(rank))))
    if sorted(perm) != list(range(rank)):
        call.fail(f"perm {list(perm)} is no permutation of {rank} axes")
    return (
        call.input(0)
        if perm == tuple(range(rank))
        else call.emit(sh.Transpose(perm), call.input(0))
    )


def expand(call: Call) -> str:
    if call.known(1) is None:
        return runtime_shape.expand(call)
    wanted = call.indices(1, "shape")
    target = common_shape((call.shape(), wanted), call.bounds)
    pairs = zip(wanted, target[len(target) - len(wanted) :], strict=True)
    call.emitter.require([((e - 1) * (e - t), "==", 0) for e, t in pairs], call.source, always=True)
    return call.input(0) if target == call.shape() else call.emit(sh.Expand(target), call.input(0))


def concat(call: Call) -> str:
    axis = call.axis(1 if call.opset < 4 else None)
    return joined(call, axis, call.inputs)


def slice_(call: Call) -> str:
    """Bounds are attributes before opset 10, then operands."""
    rank = call.rank()
    if call.opset >= 10 and any(call.has(i) and call.known(i) is None for i in range(1, 5)):
        return runtime_shape.slice_(call)
    if call.opset < 10:
        starts: tuple[Index, ...] = call.attrs.integers("starts")
        ends: tuple[Index, ...] = call.attrs.integers("ends")
        axes = call.attrs.integers("axes", tuple(range(len(starts))))
        steps = (1,) * len(starts)
    else:
        starts, ends = call.indices(1, "starts"), call.indices(2, "ends")
        axes = call.integers(3, "axes") if call.has(3) else tuple(range(len(starts)))
        steps = call.integers(4, "steps") if call.has(4) else (1,) * len(starts)
    if any(compare(p, "<", 0, call.bounds) is None for p in (*starts, *ends)):
        return runtime_shape.slice_(call)  # its sign is known at run time
    if not len(starts) == len(ends) == len(axes) == len(steps):
        call.fail("starts, ends, axes and steps have different lengths")
    if 0 in steps:
        call.fail("a step is 0")
    extents = call.shape()
    ranges: dict[int, tuple[Index, Index, int]] = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        a = call.normal(axis, rank)
        if a in ranges:
            call.fail(f"axes {list(axes)} name an axis twice")
        first, count = clamped_range(start, end, step, extents[a], call.bounds)
        ranges[a] = (first, count, step)
    return sliced(call, call.input(0), ranges, extents)


def split(call: Call) -> tuple[str, ...]:
    axis = call.axis(0)
    extents = call.shape()
    sizes = _split_sizes(call, extents[axis])
    if len(sizes) != len(call.wanted):
        call.fail(f"it splits into {len(sizes)} parts but has {len(call.wanted)} outputs")
    whole = total(sizes)
    if compare(whole, "!=", extents[axis], call.bounds):
        call.fail(f"the parts have {whole} elements in all, but dimension {axis} {extents[axis]}")
    call.emitter.require([(whole, "==", extents[axis])], call.source)
    return tuple(taken_apart(call, call.input(0), axis, sizes))


def _split_sizes(call: Call, extent: Index) -> tuple[Index, ...]:
    if call.opset < 13 and call.attrs.has("split"):
        return call.attrs.integers("split")
    if call.opset >= 18 and call.has(1) and call.attrs.has("num_outputs"):
        call.fail("it has both sizes of its parts and num_outputs")
    if (call.opset >= 13 or call.opset < 2) and call.has(1):
        return call.indices(1, "split", Range(0, extent))
    count = len(call.wanted)
    if call.opset >= 18:
        count = call.attrs.integer("num_outputs", count)
    part = ceildiv(extent, count)
    if isinstance(extent, int) and call.opset < 18 and extent % count:
        call.fail(f"a dimension of {extent} does not split into {count} equal parts")
    return (*(part,) * (count - 1), simplify(extent - part * (count - 1), call.bounds))


def constant_of_shape(call: Call) -> str:
    target = call.indices(0, "shape", Range(0, None))
    fill = call.attrs.tensor("value") if call.attrs.has("value") else np.zeros(1, np.float32)
    if fill.size != 1:
        call.fail(f"value must have one element but has {fill.size}")
    return call.emit(sh.Full(target, fill.reshape(-1)[0].item(), dtype_of(fill)))


def eye_like(call: Call) -> str:
    dtype = call.attrs.dtype("dtype", call.dtype())
    k = min(max(call.attrs.integer("k", 0), -BEYOND), BEYOND)
    return call.emit(sh.EyeLike(dtype, k), call.input(0))


def trilu(call: Call) -> str:
    k: Index = 0
    if call.has(1):
        k = _diagonal(call)
    return call.emit(sh.Trilu(call.attrs.flag("upper", True), k), call.input(0))


def _diagonal(call: Call) -> Index:
    """Operand 1; one that the model computes is brought to the matrix's corners, so that its
    distance from any element is as small as the matrix."""
    k, label = operand(call, 1), call.labels[1] or "k"
    if call.known(1) is None and call.type().rank >= 2:
        rows, columns = call.type().shape[-2:]
        k = k.clipped(vector_of(call, (-rows,)), vector_of(call, (columns,)))
    else:
        k = k.bounded()
    (found,) = k.read(label, Range(-BEYOND, BEYOND))
    return found


def range_(call: Call) -> str:
    """A vector ``start, start + delta, …``; its length must be known, its values need not."""
    dtype = call.dtype()
    if any(call.known(i) is None for i in range(3)):
        return runtime_shape.range_(call)
    if dtype.is_float:
        bounds = [float(call.array(i, w).reshape(())) for i, w in enumerate(_RANGE)]
        if bounds[2] == 0:
            call.fail("delta is 0")
        steps = np.ceil((bounds[1] - bounds[0]) / bounds[2])
        if not np.isfinite(steps):
            call.fail(f"from {bounds[0]} to {bounds[1]} by {bounds[2]} is no number of elements")
        places = np.arange(max(0, int(steps)))
        return call.constant((bounds[0] + places * bounds[2]).astype(dtype.numpy))
    start, limit = call.index(0, "start"), call.index(1, "limit")
    (step,) = call.integers(2, "delta")
    if step == 0:
        call.fail("delta is 0")
    first, last = (start, limit) if step > 0 else (limit, start)
    count = simplify(ceildiv(last - first, abs(step)), call.bounds)
    if compare(count, "<=", 0, call.bounds):
        count = 0
    return iota(call, count, start, step)


_RANGE = ("start", "limit", "delta")


def iota(call: Call, count: Index, start: Index, step: int) -> str:
    dtype = call.dtype()
    return call.emit(sh.Iota((count,), 0, start, step, dtype))


def depth_to_space(call: Call) -> str:
    n, c, h, w = _image(call)
    b = call.attrs.integer("blocksize")
    if isinstance(c, int) and c % (b * b):
        call.fail(f"{c} channels do not divide into blocks of {b} by {b}")
    if call.attrs.text("mode", "DCR") == "DCR":
        split, perm = (n, b, b, floordiv(c, b * b), h, w), (0, 3, 4, 1, 5, 2)
    else:
        split, perm = (n, floordiv(c, b * b), b, b, h, w), (0, 1, 4, 2, 5, 3)
    blocks = call.emit(sh.Transpose(perm), call.emit(sh.Reshape(split), call.input(0)))
    return call.emit(sh.Reshape((n, floordiv(c, b * b), h * b, w * b)), blocks)


def space_to_depth(call: Call) -> str:
    n, c, h, w = _image(call)
    b = call.attrs.integer("blocksize")
    if any(isinstance(e, int) and e % b for e in (h, w)):
        call.fail(f"images of {h} by {w} do not divide into blocks of {b} by {b}")
    rows, columns = floordiv(h, b), floordiv(w, b)
    split = call.emit(sh.Reshape((n, c, rows, b, columns, b)), call.input(0))
    crd = call.attrs.text("mode", "DCR") == "CRD"
    blocks = call.emit(sh.Transpose((0, 1, 3, 5, 2, 4) if crd else (0, 3, 5, 1, 2, 4)), split)
    return call.emit(sh.Reshape((n, c * b * b, rows, columns)), blocks)


def _image(call: Call) -> tuple[Index, Index, Index, Index]:
    if call.rank() != 4:
        call.fail(f"expected a tensor of rank 4 (NCHW), not {call.type()}")
    n, c, h, w = call.shape()
    return n, c, h, w


SHAPE = table(
    Constant=constant,
    Shape=shape,
    Size=size,
    Reshape=reshape,
    Flatten=flatten,
    Squeeze=squeeze,
    Unsqueeze=unsqueeze,
    Transpose=transpose,
    Expand=expand,
    Concat=concat,
    Slice=slice_,
    Split=split,
    Tile=tile,
    Pad=pad,
    ConstantOfShape=constant_of_shape,
    EyeLike=eye_like,
    Trilu=trilu,
    Range=range_,
    DepthToSpace=depth_to_space,
    SpaceToDepth=space_to_depth,
)
