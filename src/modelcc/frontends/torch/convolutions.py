"""Handlers of convolutions, their gradients, im2col and col2im."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as cartesian

from modelcc.frontends.kit.errors import number_of
from modelcc.frontends.kit.parts import joined
from modelcc.frontends.torch.aten import Aten, Handler, table
from modelcc.ir.index import Index, product
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.columns import Col2Im
from modelcc.ops.conv import Conv, ConvTranspose
from modelcc.ops.padding import Pad
from modelcc.ops.slicing import Slice
from modelcc.ops.views import reshaped

Numbers = Sequence[int] | int
Pads = tuple[tuple[int, ...], tuple[int, ...]]


def per_axis(call: Aten, given: Numbers, rank: int) -> tuple[int, ...]:
    """One number per spatial axis; a single one applies to all."""
    values = (given,) if isinstance(given, int) else tuple(given)
    return tuple(number_of(v, "window") for v in (values * rank if len(values) == 1 else values))


def convolution(
    call: Aten, x: Value, weight: Value, bias: Value | None, stride: Numbers, padding: Numbers,
    dilation: Numbers, transposed: bool, output_padding: Numbers, groups: int,
) -> Value:  # fmt: skip
    """With a batch axis: the form that all others are lowered to."""
    return call.one(
        _op(call, weight, stride, padding, dilation, transposed, output_padding, groups),
        *(x, weight, bias),
    )


def _op(
    call: Aten, weight: Value, stride: Numbers, padding: Numbers, dilation: Numbers,
    transposed: bool, output_padding: Numbers, groups: int,
) -> Conv | ConvTranspose:  # fmt: skip
    rank = weight.type.rank - 2
    for extent in weight.type.shape[2:]:
        number_of(extent, "kernel")
    steps, spread, pads = (per_axis(call, v, rank) for v in (stride, dilation, padding))
    if transposed:
        extra = per_axis(call, output_padding, rank)
        return ConvTranspose(steps, pads, pads, spread, groups, extra)
    return Conv(steps, pads, pads, spread, groups)


def forward(rank: int) -> Handler:
    """A convolution along ``rank`` axes, with or without a batch axis; padding may be a keyword."""

    def handler(
        call: Aten, x: Value, weight: Value, bias: Value | None = None, stride: Numbers = 1,
        padding: Numbers | str = 0, dilation: Numbers = 1, groups: int = 1,
    ) -> Value:  # fmt: skip
        steps, spread = (per_axis(call, v, rank) for v in (stride, dilation))
        before, after = _pads(call, padding, weight, spread)
        op = Conv(steps, before, after, spread, groups)
        return _batched(call, op, x, weight, bias)

    return handler


def _pads(call: Aten, padding: Numbers | str, weight: Value, dilation: Sequence[int]) -> Pads:
    """``same`` keeps extents; the odd element goes to the end."""
    kernel = [number_of(extent, "kernel") for extent in weight.type.shape[2:]]
    if not isinstance(padding, str):
        pads = per_axis(call, padding, len(kernel))
        return pads, pads
    if call.choice(padding, ("same", "valid"), "padding") == "valid":
        return (0,) * len(kernel), (0,) * len(kernel)
    totals = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    return tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)


def transposed(rank: int) -> Handler:
    """The transpose of a convolution along ``rank`` axes, with or without a batch axis."""

    def handler(
        call: Aten, x: Value, weight: Value, bias: Value | None = None, stride: Numbers = 1,
        padding: Numbers = 0, output_padding: Numbers = 0, groups: int = 1, dilation: Numbers = 1,
    ) -> Value:  # fmt: skip
        op = _op(call, weight, stride, padding, dilation, True, output_padding, groups)
        return _batched(call, op, x, weight, bias)

    return handler


def _batched(
    call: Aten, op: Conv | ConvTranspose, x: Value, weight: Value, bias: Value | None
) -> Value:
    if x.type.rank == weight.type.rank:
        return call.one(op, x, weight, bias)
    y = call.one(op, reshaped(x, 1, *x.type.shape), weight, bias)
    return reshaped(y, *y.type.shape[1:])


def convolution_backward(
    call: Aten, dy: Value, x: Value, weight: Value, bias_sizes: object, stride: Numbers,
    padding: Numbers, dilation: Numbers, transposed: bool, output_padding: Numbers, groups: int,
    output_mask: Sequence[bool],
) -> Sequence[Value | None]:  # fmt: skip
    """Gradients of x, of the weights and of the bias, those in ``output_mask``."""
    op = _op(call, weight, stride, padding, dilation, transposed, output_padding, groups)
    # The third operand only indicates a bias: it is not read.
    found = op.grad(call, [dy.name], [x.name, weight.name, weight.name], ())
    pairs = zip(found, output_mask, strict=True)
    return [Value(call, name) if name and wanted else None for name, wanted in pairs]


def columns_of_image(
    call: Aten, x: Value, kernel: Numbers, dilation: Numbers, padding: Numbers, stride: Numbers
) -> Value:
    """im2col: [N, C * block, columns], all windows of an image in order."""
    sizes, spread, pads, steps = (per_axis(call, v, 2) for v in (kernel, dilation, padding, stride))
    if x.type.rank == 3:
        batched = columns_of_image(
            call, reshaped(x, 1, *x.type.shape), kernel, dilation, padding, stride
        )
        return reshaped(batched, *call.extents())
    batch, channels, *_ = x.type.shape
    room = (0, 0, *pads)
    wide = of(Pad(room, room, "constant", 0), x) if any(pads) else x
    counts = tuple(
        (e + 2 * p - d * (k - 1) - 1) // s + 1
        for e, p, d, k, s in zip(x.type.shape[2:], pads, spread, sizes, steps, strict=True)
    )
    taps = [
        _tap(wide, [t * d for t, d in zip(tap, spread, strict=True)], counts, steps)
        for tap in cartesian(*map(range, sizes))
    ]
    whole = Value(call, joined(call, 2, [tap.name for tap in taps]))
    return reshaped(whole, batch, channels * product(sizes), product(counts))


def _tap(x: Value, start: Sequence[int], counts: Sequence[Index], steps: Sequence[int]) -> Value:
    """One element of every window, [N, C, 1, *columns]."""
    lead = x.type.shape[:2]
    spots = of(Slice((0, 0, *start), (*lead, *counts), (1, 1, *steps)), x)
    return reshaped(spots, *lead, 1, *counts)


def image_of_columns(
    call: Aten, x: Value, output_size: Sequence[Index], kernel: Numbers, dilation: Numbers,
    padding: Numbers, stride: Numbers,
) -> Value:  # fmt: skip
    """col2im: the sum of all windows at their positions."""
    sizes, spread, pads, steps = (per_axis(call, v, 2) for v in (kernel, dilation, padding, stride))
    op = Col2Im(tuple(output_size), sizes, steps, spread, pads, pads)
    if x.type.rank == 2:
        return reshaped(of(op, reshaped(x, 1, *x.type.shape)), *call.extents())
    return of(op, x)


CONVOLUTIONS = table(
    convolution=convolution,
    conv1d=forward(1),
    conv2d=forward(2),
    conv3d=forward(3),
    conv_transpose1d=transposed(1),
    conv_transpose2d=transposed(2),
    conv_transpose3d=transposed(3),
    convolution_backward=convolution_backward,
    im2col=columns_of_image,
    col2im=image_of_columns,
)
