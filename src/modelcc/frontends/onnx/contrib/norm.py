"""Handlers of onnxruntime's normalisations and embeddings (com.microsoft)."""

from __future__ import annotations

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call, Handler, table
from modelcc.ir.op import Op
from modelcc.ir.types import I32
from modelcc.ops.accumulate import accumulator
from modelcc.ops.activation import Silu
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.elementwise import Cast, Equal, Reciprocal, Sqrt
from modelcc.ops.gather import Gather
from modelcc.ops.norm import GroupNorm, LayerNorm, RMSNorm
from modelcc.ops.quant import DequantizeLinear
from modelcc.ops.reduce import ReduceMean, ReduceSum
from modelcc.ops.shape import Full, Iota, Reshape, Transpose
from modelcc.ops.views import cast


def simplified(call: Call) -> tuple[str, ...]:
    """Normalisation by the root mean square."""
    axis, epsilon = call.axis(-1), call.attrs.number("epsilon", 1e-5)
    result = of(RMSNorm(axis, epsilon), call.value(0), call.value(1)).name
    return (result, _deviation(call, call.value(0), axis, epsilon)) if call.want(1) else (result,)


def _deviation(call: Call, x: Value, axis: int, epsilon: float) -> str:
    """``1 / sqrt(mean of x^2 + epsilon)``."""
    wide = cast(x, accumulator(x.type.dtype))
    axes = tuple(range(axis, x.type.rank))
    return of(Reciprocal(), of(Sqrt(), of(ReduceMean(axes, True), wide * wide) + epsilon)).name


def skip(centred: bool) -> Handler:
    """The norm of ``x + skip + bias``; results: that, statistics, the sum."""

    def handler(call: Call) -> tuple[str, ...]:
        bias = 4 if centred else 3
        total = call.value(0) + call.value(1)
        if call.has(bias):
            total = total + call.value(bias)
        axis, epsilon = call.rank() - 1, call.attrs.number("epsilon", 1e-12 if centred else 1e-5)
        op: Op = LayerNorm(axis, epsilon) if centred else RMSNorm(axis, epsilon)
        parameters = [call.input(i) for i in ((2, 3) if centred else (2,)) if call.has(i)]
        result = call.emit(op, total.name, *parameters)
        if call.want(1) or call.want(2):
            unsupported("its second and third output, the statistics")
        return (result, "", "", total.name)

    return handler


def embeddings(call: Call) -> tuple[str, ...]:
    """The norm of the sum of embeddings of words, positions and segments, and lengths."""
    length = call.shape()[1]
    words = of(Gather(0), call.value(2), call.value(0))
    places = call.given(8) or call.made(Iota((1, length), 1, 0, 1, I32))
    total = words + of(Gather(0), call.value(3), places)
    if call.has(1) and call.has(4):
        total = total + of(Gather(0), call.value(4), call.value(1))
    norm = LayerNorm(2, call.attrs.number("epsilon", 1e-12))
    result = of(norm, total, call.value(5), call.value(6)).name
    return (result, _lengths(call), total.name) if call.wanted[1:] else (result, _lengths(call))


def _lengths(call: Call) -> str:
    """How many tokens of each row the mask lets through; zeros without a mask."""
    batch = call.shape()[0]
    if not call.has(7):
        return call.emit(Full((batch,), 0, I32))
    ones = of(Equal(), call.value(7), call.value(7).lift(1))
    return of(ReduceSum((1,), False), of(Cast(I32), ones)).name


def group_norm(call: Call) -> str:
    """GroupNorm of channels last or first, then silu if ``activation``."""
    last = call.attrs.flag("channels_last", True)
    rank = call.rank()
    x = call.value(0)
    if last:
        x = of(Transpose((0, rank - 1, *range(1, rank - 1))), x)
    op = GroupNorm(call.attrs.integer("groups"), call.attrs.number("epsilon", 1e-5))
    parameters = [cast(call.value(i), x.type.dtype) for i in (1, 2)]
    result = of(op, x, *parameters)
    if call.attrs.integer("activation", 0):
        result = of(Silu(), result)
    return (of(Transpose((0, *range(2, rank), 1)), result) if last else result).name


def skip_group_norm(call: Call) -> tuple[str, str]:
    """GroupNorm of ``x + skip + bias``, channels last; results: that, and the sum.

    A skip may have one number for each channel of an image.
    """
    if not call.attrs.flag("channels_last", True):
        unsupported("channels first (channels_last=0)")
    x, skip = call.value(0), call.value(3)
    if skip.type.rank == 2:
        batch, channels = skip.type.shape
        skip = of(Reshape((batch, *(1,) * (x.type.rank - 2), channels)), skip)
    total = x + skip
    if call.has(4):
        total = total + call.value(4)
    normed = group_norm(call.with_inputs((total.name, *call.inputs[1:3])))
    return normed, total.name


def quantised_embeddings(call: Call) -> tuple[str, ...]:
    """Embeddings of words, positions and segments whose tables are quantised."""
    tables = [
        call.emit(DequantizeLinear(0), call.input(i), call.input(scale), call.input(scale + 5))
        if call.has(i)
        else ""
        for i, scale in ((2, 8), (3, 9), (4, 10), (5, 11), (6, 12))
    ]
    return embeddings(call.with_inputs((*call.inputs[:2], *tables, call.input(7))))


CONTRIB_NORM = table(
    SimplifiedLayerNormalization=simplified,
    SkipLayerNormalization=skip(centred=True),
    SkipSimplifiedLayerNormalization=skip(centred=False),
    EmbedLayerNormalization=embeddings,
    GroupNorm=group_norm,
    SkipGroupNorm=skip_group_norm,
    QEmbedLayerNormalization=quantised_embeddings,
)
