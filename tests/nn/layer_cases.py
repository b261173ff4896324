"""Layers with settings and inputs: what every test of all layers goes through."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from modelcc import nn
from modelcc.ir.types import Array

Batch = int | None | tuple[int | None, ...]


@dataclass(frozen=True)
class Case:
    """A layer by name; ``batch`` is the axis of its inputs that may have any extent.

    It is one for each where they differ, and None where there is none.
    """

    name: str
    args: tuple[Any, ...]
    inputs: tuple[Array, ...]
    batch: Batch = 0
    kwargs: dict[str, Any] = field(default_factory=dict[str, Any])

    def layer(self, package: Any = nn) -> Any:
        """The layer of modelcc, or of PyTorch."""
        return getattr(package, self.name)(*self.args, **self.kwargs)

    @property
    def batches(self) -> tuple[int | None, ...]:
        """The axis of the batch of each input."""
        return self.batch if isinstance(self.batch, tuple) else (self.batch,) * len(self.inputs)

    def __str__(self) -> str:
        parts = [*map(str, self.args), *(f"{k}={v}" for k, v in self.kwargs.items())]
        return f"{self.name}({', '.join(parts)}) of {'x'.join(map(str, self.inputs[0].shape))}"


def case(name: str, *args: Any, inputs: tuple[Array, ...], batch: Batch = 0, **kwargs: Any) -> Case:
    return Case(name, args, inputs, batch, kwargs)


def normal(*shape: int, seed: int = 0) -> Array:
    """Numbers of f64."""
    return np.random.default_rng((seed, *shape)).normal(size=shape)


CONVOLUTIONS = [
    case("Conv1d", 4, 6, 3, inputs=(normal(2, 4, 9),)),
    case("Conv1d", 4, 6, 4, padding="same", dilation=2, inputs=(normal(2, 4, 9),)),
    case("Conv2d", 3, 4, 3, padding=1, inputs=(normal(2, 3, 6, 5),)),
    case("Conv2d", 3, 4, (3, 2), stride=(2, 1), padding=(1, 0), inputs=(normal(2, 3, 7, 6),)),
    case("Conv2d", 4, 6, 3, groups=2, dilation=2, bias=False, inputs=(normal(2, 4, 8, 7),)),
    case("Conv2d", 3, 4, 3, padding="same", inputs=(normal(2, 3, 6, 5),)),
    case("Conv2d", 3, 4, 3, padding="valid", batch=None, inputs=(normal(3, 6, 5),)),
    case("Conv2d", 3, 4, 3, padding=2, padding_mode="reflect", inputs=(normal(2, 3, 6, 5),)),
    case("Conv2d", 3, 4, 3, padding=2, padding_mode="replicate", inputs=(normal(2, 3, 6, 5),)),
    case("Conv2d", 3, 4, 3, padding=2, padding_mode="circular", inputs=(normal(2, 3, 6, 5),)),
    case("Conv3d", 2, 3, 2, padding=1, inputs=(normal(2, 2, 4, 3, 4),)),
    case("ConvTranspose1d", 4, 6, 3, stride=2, output_padding=1, inputs=(normal(2, 4, 5),)),
    case("ConvTranspose2d", 4, 6, 3, stride=2, padding=1, groups=2, inputs=(normal(2, 4, 4, 5),)),
    case("ConvTranspose2d", 3, 4, 2, dilation=2, bias=False, batch=None, inputs=(normal(3, 4, 5),)),
    case("ConvTranspose3d", 2, 3, 2, stride=2, inputs=(normal(1, 2, 3, 2, 3),)),
]

LINEAR = [
    case("Linear", 5, 3, inputs=(normal(4, 5),)),
    case("Linear", 5, 3, bias=False, inputs=(normal(2, 4, 5),)),
    case("Linear", 5, 3, batch=None, inputs=(normal(5),)),
    case("Bilinear", 3, 4, 5, inputs=(normal(2, 6, 3), normal(2, 6, 4))),
    case("Embedding", 7, 4, inputs=(np.array([[1, 2, 6], [0, 2, 2]]),)),
    case("Embedding", 7, 4, padding_idx=2, inputs=(np.array([[1, 2, 6], [0, 2, 2]]),)),
    case("Identity", inputs=(normal(2, 3),)),
]

NORMS = [
    case("BatchNorm1d", 4, inputs=(normal(6, 4),)),
    case("BatchNorm1d", 4, momentum=None, inputs=(normal(3, 4, 5),)),
    case("BatchNorm2d", 3, inputs=(normal(2, 3, 4, 5),)),
    case("BatchNorm2d", 3, affine=False, inputs=(normal(2, 3, 4, 5),)),
    case("BatchNorm2d", 3, track_running_stats=False, eps=1e-3, inputs=(normal(2, 3, 4, 5),)),
    case("BatchNorm3d", 3, momentum=0.3, inputs=(normal(2, 3, 2, 3, 2),)),
    case("LayerNorm", 6, inputs=(normal(2, 3, 6),)),
    case("LayerNorm", (3, 6), bias=False, eps=1e-3, inputs=(normal(2, 3, 6),)),
    case("LayerNorm", 6, elementwise_affine=False, inputs=(normal(2, 6),)),
    case("RMSNorm", 6, inputs=(normal(2, 3, 6),)),
    case("RMSNorm", (3, 6), eps=1e-3, elementwise_affine=False, inputs=(normal(2, 3, 6),)),
    case("GroupNorm", 2, 6, inputs=(normal(2, 6, 4, 3),)),
    case("GroupNorm", 3, 6, affine=False, inputs=(normal(2, 6, 4),)),
    case("InstanceNorm1d", 3, inputs=(normal(2, 3, 5),)),
    case("InstanceNorm2d", 3, affine=True, inputs=(normal(2, 3, 5, 4),)),
    case("InstanceNorm2d", 3, track_running_stats=True, inputs=(normal(2, 3, 5, 4),)),
    case("InstanceNorm2d", 3, batch=None, inputs=(normal(3, 5, 4),)),
    case("InstanceNorm3d", 3, inputs=(normal(2, 3, 2, 3, 2),)),
]

POOLING = [
    case("MaxPool1d", 3, inputs=(normal(2, 3, 9),)),
    case("MaxPool2d", 2, inputs=(normal(2, 3, 6, 5),)),
    case("MaxPool2d", 3, 2, 1, ceil_mode=True, inputs=(normal(2, 3, 6, 5),)),
    case("MaxPool2d", (2, 3), dilation=2, batch=None, inputs=(normal(3, 6, 8),)),
    case("MaxPool3d", 2, inputs=(normal(1, 2, 4, 4, 2),)),
    case("AvgPool1d", 3, 2, 1, inputs=(normal(2, 3, 9),)),
    case("AvgPool2d", 2, inputs=(normal(2, 3, 6, 5),)),
    case("AvgPool2d", 3, 2, 1, count_include_pad=False, inputs=(normal(2, 3, 6, 5),)),
    case("AvgPool2d", 3, 2, 1, ceil_mode=True, divisor_override=5, inputs=(normal(2, 3, 6, 5),)),
    case("AvgPool2d", (4, 2), (3, 2), ceil_mode=True, inputs=(normal(2, 3, 2, 5),)),
    case("AvgPool3d", 2, inputs=(normal(1, 2, 4, 4, 2),)),
    case("LPPool1d", 2, 3, inputs=(normal(2, 3, 9) + 3,)),
    case("LPPool2d", 3, 2, inputs=(np.abs(normal(2, 3, 6, 5)) + 1,)),
    case("LPPool3d", 2, 2, inputs=(normal(1, 2, 4, 4, 2) + 3,)),
    case("AdaptiveAvgPool1d", 3, inputs=(normal(2, 3, 9),)),
    case("AdaptiveAvgPool1d", 4, inputs=(normal(2, 3, 9),)),
    case("AdaptiveAvgPool2d", 1, inputs=(normal(2, 3, 6, 5),)),
    case("AdaptiveAvgPool2d", (4, None), inputs=(normal(2, 3, 6, 5),)),
    case("AdaptiveAvgPool3d", (2, 1, 2), inputs=(normal(1, 2, 4, 3, 5),)),
    case("AdaptiveMaxPool1d", 4, inputs=(normal(2, 3, 9),)),
    case("AdaptiveMaxPool2d", 1, inputs=(normal(2, 3, 6, 5),)),
    case("AdaptiveMaxPool2d", (3, 4), inputs=(normal(2, 3, 6, 5),)),
    case("AdaptiveMaxPool3d", 2, inputs=(normal(1, 2, 4, 3, 5),)),
]

SPREAD = np.linspace(-7.03, 7.05, 24).reshape(2, 4, 3)

ACTIVATIONS = [
    *(
        case(name, inputs=(SPREAD,))
        for name in (
            *("ReLU", "ReLU6", "LeakyReLU", "ELU", "CELU", "SELU", "GELU", "SiLU", "Mish"),
            *("Softplus", "Softsign", "Sigmoid", "Tanh", "LogSigmoid", "Hardsigmoid"),
            *("Hardswish", "Hardtanh", "Hardshrink", "Softshrink", "Tanhshrink", "PReLU"),
        )
    ),
    case("LeakyReLU", 0.2, inputs=(SPREAD,)),
    case("ELU", 0.5, inputs=(SPREAD,)),
    case("CELU", 0.5, inputs=(SPREAD,)),
    case("GELU", approximate="tanh", inputs=(SPREAD,)),
    case("Softplus", 2.0, 5.0, inputs=(SPREAD,)),
    case("Hardtanh", -2.0, 0.5, inputs=(SPREAD,)),
    case("Hardshrink", 2.0, inputs=(SPREAD,)),
    case("Softshrink", 2.0, inputs=(SPREAD,)),
    case("Threshold", 0.1, 20.0, inputs=(SPREAD,)),
    case("PReLU", 4, inputs=(SPREAD,)),
    case("GLU", 1, inputs=(SPREAD,)),
    case("Softmax", 1, inputs=(SPREAD,)),
    case("LogSoftmax", -1, inputs=(SPREAD,)),
    case("Softmin", 0, inputs=(SPREAD,)),
    case("Softmax2d", inputs=(normal(2, 3, 4, 2),)),
]

SHAPING = [
    case("Flatten", inputs=(normal(2, 3, 4),)),
    case("Flatten", 0, 1, batch=None, inputs=(normal(2, 3, 4),)),
    case("Unflatten", 1, (2, 3), inputs=(normal(2, 6, 4),)),
    case("Dropout", 0.0, inputs=(normal(2, 6, 4),)),
]


HIDDEN = np.triu(np.ones((4, 4), bool), 1)
PADDED = np.array([[False, False, True, True], [False, False, False, True]])

RECURRENT = [
    case("RNN", 3, 4, batch=1, inputs=(normal(5, 2, 3),)),
    case("RNN", 3, 4, 2, "relu", batch=1, inputs=(normal(5, 2, 3), normal(2, 2, 4))),
    case("RNN", 3, 4, bidirectional=True, batch_first=True, inputs=(normal(2, 5, 3),)),
    case("LSTM", 3, 4, batch=1, inputs=(normal(5, 2, 3),)),
    case("LSTM", 3, 4, 2, bidirectional=True, batch=1, inputs=(normal(5, 2, 3),)),
    case("LSTM", 3, 4, bias=False, batch_first=True, inputs=(normal(2, 5, 3),)),
    case("LSTM", 3, 4, batch=None, inputs=(normal(5, 3),)),
    case("GRU", 3, 4, batch=1, inputs=(normal(5, 2, 3), normal(1, 2, 4))),
    case("GRU", 3, 4, 2, bidirectional=True, batch_first=True, inputs=(normal(2, 5, 3),)),
    case("GRU", 3, 4, batch_first=True, batch=None, inputs=(normal(5, 3), normal(1, 4))),
]

ATTENTION = [
    case("MultiheadAttention", 6, 2, batch=1, inputs=(normal(4, 2, 6),) * 3),
    case("MultiheadAttention", 6, 3, batch_first=True, bias=False, inputs=(normal(2, 4, 6),) * 3),
    case("MultiheadAttention", 6, 2, batch=None, inputs=(normal(3, 6), normal(4, 6), normal(4, 6))),
    case(
        "MultiheadAttention", 6, 2, kdim=3, vdim=5, batch_first=True,
        inputs=(normal(2, 3, 6), normal(2, 4, 3), normal(2, 4, 5)),
    ),
    case("MultiheadAttention", 6, 2, batch=(1, 1, 1, 0), inputs=(*(normal(4, 2, 6),) * 3, PADDED)),
    case(
        "MultiheadAttention", 6, 2, add_bias_kv=True, add_zero_attn=True,
        batch=(1, 1, 1, 0), inputs=(*(normal(4, 2, 6),) * 3, PADDED),
    ),
    case("TransformerEncoderLayer", 6, 2, 8, 0.0, batch=1, inputs=(normal(4, 2, 6),)),
    case(
        "TransformerEncoderLayer", 6, 2, 8, 0.0, "gelu", norm_first=True, batch_first=True,
        batch=(0, None, 0), inputs=(normal(2, 4, 6), HIDDEN, PADDED),
    ),
    case(
        "TransformerDecoderLayer", 6, 2, 8, 0.0,
        batch=1, inputs=(normal(4, 2, 6), normal(3, 2, 6)),
    ),
    case(
        "TransformerDecoderLayer", 6, 2, 8, 0.0, norm_first=True, batch_first=True, bias=False,
        batch=(0, 0, None), inputs=(normal(2, 4, 6), normal(2, 3, 6), HIDDEN),
    ),
]  # fmt: skip

IMAGE = normal(2, 3, 4, 5)

RESIZING = [
    *(
        case("Upsample", scale_factor=2, mode=mode, inputs=(IMAGE,))
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area")
    ),
    case("Upsample", scale_factor=(1.5, 2.5), mode="bilinear", inputs=(IMAGE,)),
    case("Upsample", scale_factor=1.7, inputs=(IMAGE,)),
    case("Upsample", (7, 3), mode="bilinear", align_corners=True, inputs=(IMAGE,)),
    case("Upsample", (7, 3), mode="bicubic", align_corners=True, inputs=(IMAGE,)),
    case("Upsample", (7, 3), inputs=(IMAGE,)),
    case("Upsample", 7, mode="linear", inputs=(normal(2, 3, 5),)),
    case("Upsample", scale_factor=2, mode="trilinear", inputs=(normal(1, 2, 2, 3, 2),)),
    case("PixelShuffle", 2, inputs=(normal(2, 8, 3, 2),)),
    case("PixelUnshuffle", 2, inputs=(normal(2, 2, 4, 6),)),
    case("ZeroPad2d", (1, 2, 0, 1), inputs=(IMAGE,)),
    case("ConstantPad1d", 2, 3.5, inputs=(normal(2, 3, 4),)),
    case("ReflectionPad2d", 2, inputs=(IMAGE,)),
    case("ReplicationPad3d", 1, inputs=(normal(1, 2, 2, 3, 2),)),
    case("CircularPad2d", (1, 2, 2, 1), inputs=(IMAGE,)),
]

CASES = [
    *(*CONVOLUTIONS, *LINEAR, *NORMS, *POOLING, *ACTIVATIONS, *SHAPING),
    *(*RECURRENT, *ATTENTION, *RESIZING),
]
