"""Convolutions and their transposes along one, two or three spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from modelcc.ir.errors import ModelError
from modelcc.nn.functional.values import Numbers, as_tensor, batched, of, per_axis
from modelcc.ops.conv import Conv, ConvTranspose
from modelcc.ops.padding import Pad
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.tensor import Tensor

Padding = Numbers | Literal["same", "valid"]
PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]
"""Padding values: zeros, reflection, the edge, or periodic continuation."""

Pads = tuple[tuple[int, ...], tuple[int, ...]]
"""Before and after each spatial axis."""


def pads(
    padding: Padding, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Pads:
    """Pads of ``padding``; ``same`` keeps extents, with the odd element at the end."""
    if not isinstance(padding, str):
        each = per_axis(padding, len(kernel), "padding")
        return each, each
    if padding == "valid":
        return (0,) * len(kernel), (0,) * len(kernel)
    if padding != "same":
        raise ModelError(f"padding is {padding!r}", callers_line(), "give same, valid or numbers")
    if any(s != 1 for s in stride):
        raise ModelError(f"padding 'same' with strides {list(stride)}", callers_line(),
                         "strides change extents: give numbers")  # fmt: skip
    total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    before = tuple(t // 2 for t in total)
    return before, tuple(t - b for t, b in zip(total, before, strict=True))


def padded(x: Tensor, before: Sequence[int], after: Sequence[int], mode: PaddingMode) -> Tensor:
    """``x`` padded along its last axes according to ``mode``."""
    lead = (0,) * (x.ndim - len(before))
    known = {"reflect": "reflect", "replicate": "edge", "circular": "wrap", "zeros": "constant"}
    return of(Pad((*lead, *before), (*lead, *after), known[mode]), x)  # type: ignore[arg-type]


def convolution(
    rank: int,
    x: Any,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: Padding = 0,
    dilation: Numbers = 1,
    groups: int = 1,
    padding_mode: PaddingMode = "zeros",
) -> Tensor:
    """x ``[N, C, *S]`` or ``[C, *S]`` by weight ``[O, C/groups, *K]`` and bias ``[O]``."""
    x = as_tensor(x)
    strides, dilations = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
    before, after = pads(padding, _kernel(weight, rank), strides, dilations)
    if padding_mode != "zeros":
        x, before, after = padded(x, before, after, padding_mode), (0,) * rank, (0,) * rank
    return batched(Conv(strides, before, after, dilations, groups), x, rank, weight, bias)


def transposed_convolution(
    rank: int,
    x: Any,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    output_padding: Numbers = 0,
    groups: int = 1,
    dilation: Numbers = 1,
) -> Tensor:
    """x ``[N, C, *S]`` or ``[C, *S]`` by weight ``[C, O/groups, *K]`` and bias ``[O]``."""
    cropped = per_axis(padding, rank, "padding")
    more = per_axis(output_padding, rank, "output_padding")
    strides, dilations = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
    _kernel(weight, rank)
    op = ConvTranspose(strides, cropped, cropped, dilations, groups, more)
    return batched(op, as_tensor(x), rank, weight, bias)


def _kernel(weight: Tensor, rank: int) -> tuple[int, ...]:
    if weight.ndim != rank + 2:
        raise ModelError(f"weights {weight.type} of a convolution with {rank} spatial axes",
                         callers_line())  # fmt: skip
    return weight.type.static_shape()[2:]


conv1d, conv2d, conv3d = (partial(convolution, rank) for rank in (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = (
    partial(transposed_convolution, rank) for rank in (1, 2, 3)
)
