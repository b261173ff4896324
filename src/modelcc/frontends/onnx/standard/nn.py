"""Handlers of convolutions, poolings, normalisations and matrix products."""

from __future__ import annotations

from dataclasses import replace

from modelcc.frontends.kit.equation import contracted
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call, simple, table
from modelcc.frontends.onnx.standard.conversion import computed_in, sums_of_bools
from modelcc.frontends.onnx.standard.window import (
    explicit_pads,
    geometry,
    halves,
    per_axis,
    pooled,
    spatial,
)
from modelcc.ir.index import Index, Range, floordiv, minimum, product
from modelcc.ir.op import equal
from modelcc.ir.types import F32, F64
from modelcc.ops import conv, matmul, norm, pool
from modelcc.ops.arithmetic import Cast, Value, of
from modelcc.ops.broadcast import Expand, Reshape, reshaped
from modelcc.ops.columns import Col2Im
from modelcc.ops.gather_elements import ScatterElements
from modelcc.ops.generate import Full
from modelcc.ops.lp_pool import LpPool
from modelcc.ops.padding import Pad
from modelcc.ops.pool import MaxPoolIndices
from modelcc.ops.reduce import ReduceMean
from modelcc.ops.transcendental import Sqrt
from modelcc.ops.views import part
from modelcc.ops.window import Window


def convolution(call: Call) -> str:
    window = geometry(call, weight_kernel(call))
    return call.emit(conv.Conv(*window.steps, call.attrs.integer("group", 1)), *call.inputs)


def weight_kernel(call: Call, operand: int = 1) -> tuple[int, ...]:
    """Spatial extents of the weights, checked against attribute ``kernel_shape``."""
    extents = call.shape(operand)[2:]
    kernel = tuple(d for d in extents if isinstance(d, int))
    if len(kernel) != len(extents):
        unsupported(f"the extents of its kernel are not known: {call.type(operand)}")
    given = call.attrs.integers("kernel_shape", kernel)
    if given != kernel:
        call.fail(f"kernel_shape {list(given)} differs from that of the weights, {list(kernel)}")
    return kernel


def conv_transpose(call: Call) -> str:
    sizes, kernel = spatial(call), weight_kernel(call)
    rank = len(sizes)
    strides, dilations = per_axis(call, "strides", rank), per_axis(call, "dilations", rank)
    extra = call.attrs.integers("output_padding", (0,) * rank)
    before, after = explicit_pads(call, rank)
    mode = call.attrs.text("auto_pad", "NOTSET")
    full = tuple(
        (n - 1) * s + (k - 1) * d + 1 + o
        for n, s, k, d, o in zip(sizes, strides, kernel, dilations, extra, strict=True)
    )
    for o, s, d in zip(extra, strides, dilations, strict=False):
        if o >= max(s, d):
            call.fail(f"output_padding {o} is not less than its stride {s} or dilation {d}")
    target: tuple[Index, ...] | None = None
    if call.attrs.has("output_shape"):
        target = call.attrs.integers("output_shape")[-rank:]
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        target = tuple(n * s for n, s in zip(sizes, strides, strict=True))
    elif mode == "VALID":
        before, after = (0,) * rank, (0,) * rank
    if target is not None:
        totals = tuple(f - t for f, t in zip(full, target, strict=True))
        if any(isinstance(t, int) and -t >= max(strides) for t in totals):
            call.fail(f"output_shape {list(target)} is larger than what it can make, {list(full)}")
        before, after = halves(totals, mode == "SAME_UPPER")
    op = conv.ConvTranspose(
        strides, before, after, dilations, call.attrs.integer("group", 1), extra
    )
    return call.emit(op, *call.inputs)


def max_pool(call: Call) -> tuple[str, ...]:
    """The maxima and, if read, their indices in the whole tensor."""
    window = pooled(call)
    geometry = (window.kernel, *window.steps, window.ceil_mode)
    values = call.emit(pool.MaxPool(*geometry), call.input(0))
    if not call.want(1):
        return (values,)
    op = MaxPoolIndices(*geometry, column_major=call.attrs.flag("storage_order"))
    return values, call.emit(op, call.input(0))


def max_unpool(call: Call) -> str:
    """Elements scattered to the indices they were taken from, zeros elsewhere."""
    kernel = call.attrs.integers("kernel_shape")
    extents, rank = call.shape(), len(kernel)
    strides = per_axis(call, "strides", rank)
    before, after = explicit_pads(call, rank)
    sizes = (
        (n - 1) * s + k - b - a
        for n, s, k, b, a in zip(extents[2:], strides, kernel, before, after, strict=True)
    )
    shape = (*extents[:2], *sizes)
    zeros = call.emit(Full((product(shape),), 0, call.dtype()))
    call.emitter.require(equal(call.shape(1), extents), call.source, always=True)
    flat = [reshaped(call, call.input(i), (product(call.shape(i)),)) for i in (0, 1)]
    result = call.emit(ScatterElements(0), zeros, flat[1], flat[0])
    result = reshaped(call, result, shape)
    if not call.has(2):
        return result
    wanted = call.indices(2, "output_shape")
    more = tuple(w - s for w, s in zip(wanted, shape, strict=True))
    return call.emit(Pad((0,) * len(shape), more, "constant", 0.0), result)


def col_to_im(call: Call) -> str:
    image = call.indices(1, "image_shape", Range(1, None))
    block = call.indices(2, "block_shape", Range(1, None))
    rank = len(image)
    op = Col2Im(
        image,
        block,
        per_axis(call, "strides", rank),
        per_axis(call, "dilations", rank),
        *explicit_pads(call, rank),
    )
    return call.emit(op, call.input(0))


def average_pool(call: Call) -> str:
    """Means of windows.

    As in PyTorch and onnxruntime, elements of the last window of ``ceil_mode`` beyond the padding
    are not counted, and windows that begin in the trailing padding are dropped; the standard's
    evaluator shifts all windows to the left by half of what the last one lacks.  Without
    ``ceil_mode`` the standard has no window larger than its padded input: onnxruntime divides its
    sum by the window size before opset 19, then by the elements that are not beyond.
    """
    padding = call.attrs.flag("count_include_pad")
    window = pooled(call, inside=padding and call.opset >= 19)
    op = pool.AveragePool(window.kernel, *window.steps, window.ceil_mode, padding)
    return call.emit(op, call.input(0))


def average_of_whole_windows(call: Call) -> str:
    """Means of windows, all of the full window size if padding is included."""
    if not call.attrs.flag("count_include_pad"):
        return average_pool(call)
    found, sizes = pooled(call), spatial(call)
    places = Window(found.kernel, *found.steps, found.ceil_mode)
    whole = replace(found, after=places.fitted_after(sizes, places.extents(sizes)))
    op = pool.AveragePool(whole.kernel, *whole.steps, count_include_pad=True)
    return call.emit(op, call.input(0))


def lp_pool(call: Call) -> str:
    window = pooled(call)
    rest = window.ceil_mode, call.attrs.integer("p", 2)
    return call.emit(LpPool(window.kernel, *window.steps, *rest), call.input(0))


def batch_norm(call: Call) -> tuple[str, ...]:
    """With running statistics, or in training from opset 14 on with those of the batch, which
    update the running ones."""
    if not call.attrs.flag("spatial", True):
        unsupported("statistics for each position (spatial=0)")
    op = norm.BatchNorm(call.attrs.number("epsilon", 1e-5))
    if call.opset >= 14 and call.attrs.flag("training_mode"):
        return _batch_norm_in_training(call, op)
    if any(call.want(i) for i in range(1, 5)):
        unsupported("batch normalisation in training mode; export the model for inference")
    if call.rank() == 1:  # of one channel
        column = reshaped(call, call.input(0), (*call.shape(), 1))
        return (reshaped(call, call.emit(op, column, *call.inputs[1:]), call.shape()),)
    return (call.emit(op, *call.inputs),)


def _batch_norm_in_training(call: Call, op: norm.BatchNorm) -> tuple[str, ...]:
    x, scale, bias = (call.value(i) for i in range(3))
    axes = (0, *range(2, call.rank()))
    mean = of(ReduceMean(axes, True), x)
    centred = x - mean
    variance = of(ReduceMean(axes, False), centred * centred)
    flat = Value(call.emitter, reshaped(call, mean.name, variance.type.shape))
    found = [of(Cast(call.dtype(i)), s) for i, s in ((3, flat), (4, variance))]
    result = of(op, x, scale, bias, *found)
    momentum = call.attrs.number("momentum", 0.9)
    running = (call.value(i) for i in (3, 4))
    moved = [r * momentum + s * (1.0 - momentum) for r, s in zip(running, found, strict=True)]
    return (result.name, *(m.name for m in moved))


def layer_norm(call: Call) -> str:
    if call.want(1) or call.want(2):
        unsupported("its second and third output, the statistics")
    op = norm.LayerNorm(call.axis(-1), call.attrs.number("epsilon", 1e-5))
    return call.emit(op, *call.inputs)


def rms_norm(call: Call) -> str:
    """The result has the dtype of the scale, which may differ from that of the operand."""
    op = norm.RMSNorm(call.axis(-1), call.attrs.number("epsilon", 1e-5))
    to = call.dtype(1)
    if call.dtype() == to:
        return call.emit(op, *call.inputs)
    wide = F64 if F64 in (call.dtype(), to) else F32
    return call.emit(Cast(to), call.emit(op, *(call.emit(Cast(wide), n) for n in call.inputs)))


def mean_variance_normalization(call: Call) -> str:
    """Centred, and divided by the deviation, over axes."""
    given = call.attrs.integers("axes", (0, 2, 3))
    return normalised_over(call, tuple(sorted(call.normal(a, call.rank()) for a in given)))


def normalised_over(call: Call, axes: tuple[int, ...], divided: bool = True) -> str:
    """Operand 0 centred over ``axes``, then ``divided`` by its deviation."""
    x = call.value(0)
    centred = x - of(ReduceMean(axes, True), x)
    if not divided:
        return centred.name
    deviation = of(Sqrt(), of(ReduceMean(axes, True), centred * centred))
    return (centred / (deviation + 1e-9)).name


def center_crop_pad(call: Call) -> str:
    """The centre of an operand where it is larger than requested, zero-padded elsewhere."""
    rank = call.rank()
    given = call.attrs.integers("axes", tuple(range(rank)))
    sizes = call.indices(1, "shape", Range(0, None))
    if len(sizes) != len(given):
        call.fail(f"there are {len(sizes)} sizes for {len(given)} axes")
    result = call.value(0)
    for axis, size in zip((call.normal(a, rank) for a in given), sizes, strict=True):
        extent = result.type.shape[axis]
        kept = minimum(extent, size)
        start = floordiv(extent - kept, 2)
        result = part(result, axis, start, kept)
        before = floordiv(size - kept, 2)
        ahead = tuple(before if a == axis else 0 for a in range(rank))
        behind = tuple(size - kept - before if a == axis else 0 for a in range(rank))
        result = of(Pad(ahead, behind, "constant", 0), result)
    return result.name


def group_norm(call: Call) -> str:
    """Parameters are per channel from opset 21 on, before per group."""
    groups = call.attrs.integer("num_groups")
    parameters = [call.value(i) for i in (1, 2)]
    channels = call.shape()[1] if call.rank() > 1 else 0
    if call.opset < 21 and call.shape(1) != (channels,):
        whole = (groups, floordiv(channels, groups))
        columns = [of(Expand(whole), of(Reshape((groups, 1)), p)) for p in parameters]
        parameters = [of(Reshape((channels,)), c) for c in columns]
    op = norm.GroupNorm(groups, call.attrs.number("epsilon", 1e-5))
    return of(op, call.value(0), *parameters).name


def lp_normalization(call: Call) -> str:
    op = norm.LpNormalization(call.axis(-1), call.attrs.integer("p", 2))
    return call.emit(op, call.input(0))


def gemm(call: Call) -> str:
    """Integers are computed in floats if factors are fractions."""
    attrs, dtype = call.attrs, call.dtype()
    alpha, beta = attrs.number("alpha", 1.0), attrs.number("beta", 1.0)
    op = matmul.Gemm(alpha, beta, attrs.flag("transA"), attrs.flag("transB"))
    inputs = (*call.inputs[:2], *(_addend(call, op) if call.has(2) else ()))
    if not dtype.is_integer or (alpha.is_integer() and beta.is_integer()):
        return call.emit(op, *inputs)
    wide = (call.emit(Cast(F64), name) for name in inputs)
    return call.emit(Cast(dtype), call.emit(op, *wide))


def _addend(call: Call, op: matmul.Gemm) -> tuple[str]:
    """The third operand; symbolic extents are 1 or those of the product."""
    (product_,) = op.infer(call.type(0), call.type(1))
    shape = product_.shape[max(0, 2 - call.rank(2)) :]
    fits = call.rank(2) <= 2
    return (call.emitter.stretched(call.input(2), shape, call.source) if fits else call.input(2),)


def einsum(call: Call) -> str:
    return contracted(call, call.attrs.text("equation"), call.inputs)


NN = table(
    Conv=convolution,
    ConvTranspose=conv_transpose,
    MaxPool=max_pool,
    MaxUnpool=max_unpool,
    Col2Im=computed_in(sums_of_bools, col_to_im),
    AveragePool=average_pool,
    LpPool=lp_pool,
    BatchNormalization=batch_norm,
    LayerNormalization=layer_norm,
    RMSNormalization=rms_norm,
    MeanVarianceNormalization=mean_variance_normalization,
    CenterCropPad=center_crop_pad,
    InstanceNormalization=simple(norm.InstanceNorm, epsilon=1e-5),
    GroupNormalization=group_norm,
    LpNormalization=lp_normalization,
    LRN=simple(norm.LRN, size=1, alpha=1e-4, beta=0.75, bias=1.0),
    MatMul=simple(matmul.MatMul),
    Gemm=gemm,
    Einsum=einsum,
)
