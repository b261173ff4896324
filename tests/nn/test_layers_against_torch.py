"""Every layer beside PyTorch's of the same name, settings and parameters, in f64."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from modelcc import nn
from modelcc.ir.types import Array

torch: Any = pytest.importorskip("torch")
against: Any = pytest.importorskip("tests.nn.against_torch")
normal = against.normal

Case = tuple[str, tuple[Any, ...], dict[str, Any], tuple[Array, ...]]


def case(name: str, *args: Any, inputs: tuple[Array, ...], **kwargs: Any) -> Case:
    return name, args, kwargs, inputs


CONVOLUTIONS = [
    case("Conv1d", 4, 6, 3, inputs=(normal(2, 4, 9),)),
    case("Conv1d", 4, 6, 4, padding="same", dilation=2, inputs=(normal(2, 4, 9),)),
    case("Conv2d", 3, 4, 3, padding=1, inputs=(normal(2, 3, 6, 5),)),
    case("Conv2d", 3, 4, (3, 2), stride=(2, 1), padding=(1, 0), inputs=(normal(2, 3, 7, 6),)),
    case("Conv2d", 4, 6, 3, groups=2, dilation=2, bias=False, inputs=(normal(2, 4, 8, 7),)),
    case("Conv2d", 3, 4, 3, padding="same", inputs=(normal(2, 3, 6, 5),)),
    case("Conv2d", 3, 4, 3, padding="valid", inputs=(normal(3, 6, 5),)),
    case("Conv2d", 3, 4, 3, padding=2, padding_mode="reflect", inputs=(normal(2, 3, 6, 5),)),
    case("Conv2d", 3, 4, 3, padding=2, padding_mode="replicate", inputs=(normal(2, 3, 6, 5),)),
    case("Conv2d", 3, 4, 3, padding=2, padding_mode="circular", inputs=(normal(2, 3, 6, 5),)),
    case("Conv3d", 2, 3, 2, padding=1, inputs=(normal(2, 2, 4, 3, 4),)),
    case("ConvTranspose1d", 4, 6, 3, stride=2, output_padding=1, inputs=(normal(2, 4, 5),)),
    case("ConvTranspose2d", 4, 6, 3, stride=2, padding=1, groups=2, inputs=(normal(2, 4, 4, 5),)),
    case("ConvTranspose2d", 3, 4, 2, dilation=2, bias=False, inputs=(normal(3, 4, 5),)),
    case("ConvTranspose3d", 2, 3, 2, stride=2, inputs=(normal(1, 2, 3, 2, 3),)),
]

LINEAR = [
    case("Linear", 5, 3, inputs=(normal(4, 5),)),
    case("Linear", 5, 3, bias=False, inputs=(normal(2, 4, 5),)),
    case("Linear", 5, 3, inputs=(normal(5),)),
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
    case("InstanceNorm2d", 3, inputs=(normal(3, 5, 4),)),
    case("InstanceNorm3d", 3, inputs=(normal(2, 3, 2, 3, 2),)),
]

POOLING = [
    case("MaxPool1d", 3, inputs=(normal(2, 3, 9),)),
    case("MaxPool2d", 2, inputs=(normal(2, 3, 6, 5),)),
    case("MaxPool2d", 3, 2, 1, ceil_mode=True, inputs=(normal(2, 3, 6, 5),)),
    case("MaxPool2d", (2, 3), dilation=2, inputs=(normal(3, 6, 8),)),
    case("MaxPool3d", 2, inputs=(normal(1, 2, 4, 4, 2),)),
    case("AvgPool1d", 3, 2, 1, inputs=(normal(2, 3, 9),)),
    case("AvgPool2d", 2, inputs=(normal(2, 3, 6, 5),)),
    case("AvgPool2d", 3, 2, 1, count_include_pad=False, inputs=(normal(2, 3, 6, 5),)),
    case("AvgPool2d", 3, 2, 1, ceil_mode=True, divisor_override=5, inputs=(normal(2, 3, 6, 5),)),
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
    case("Flatten", 0, 1, inputs=(normal(2, 3, 4),)),
    case("Unflatten", 1, (2, 3), inputs=(normal(2, 6, 4),)),
    case("Dropout", 0.0, inputs=(normal(2, 6, 4),)),
]


HIDDEN = np.triu(np.ones((4, 4), bool), 1)
PADDED = np.array([[False, False, True, True], [False, False, False, True]])

RECURRENT = [
    case("RNN", 3, 4, inputs=(normal(5, 2, 3),)),
    case("RNN", 3, 4, 2, "relu", inputs=(normal(5, 2, 3), normal(2, 2, 4))),
    case("RNN", 3, 4, bidirectional=True, batch_first=True, inputs=(normal(2, 5, 3),)),
    case("LSTM", 3, 4, inputs=(normal(5, 2, 3),)),
    case("LSTM", 3, 4, 2, bidirectional=True, inputs=(normal(5, 2, 3),)),
    case("LSTM", 3, 4, bias=False, batch_first=True, inputs=(normal(2, 5, 3),)),
    case("LSTM", 3, 4, inputs=(normal(5, 3),)),
    case("GRU", 3, 4, inputs=(normal(5, 2, 3), normal(1, 2, 4))),
    case("GRU", 3, 4, 2, bidirectional=True, batch_first=True, inputs=(normal(2, 5, 3),)),
    case("GRU", 3, 4, batch_first=True, inputs=(normal(5, 3), normal(1, 4))),
]

ATTENTION = [
    case("MultiheadAttention", 6, 2, inputs=(normal(4, 2, 6),) * 3),
    case("MultiheadAttention", 6, 3, batch_first=True, bias=False, inputs=(normal(2, 4, 6),) * 3),
    case("MultiheadAttention", 6, 2, inputs=(normal(3, 6), normal(4, 6), normal(4, 6))),
    case(
        "MultiheadAttention", 6, 2, kdim=3, vdim=5, batch_first=True,
        inputs=(normal(2, 3, 6), normal(2, 4, 3), normal(2, 4, 5)),
    ),
    case("MultiheadAttention", 6, 2, inputs=(*(normal(4, 2, 6),) * 3, PADDED)),
    case(
        "MultiheadAttention", 6, 2, add_bias_kv=True, add_zero_attn=True,
        inputs=(*(normal(4, 2, 6),) * 3, PADDED),
    ),
    case("TransformerEncoderLayer", 6, 2, 8, 0.0, inputs=(normal(4, 2, 6),)),
    case(
        "TransformerEncoderLayer", 6, 2, 8, 0.0, "gelu", norm_first=True, batch_first=True,
        inputs=(normal(2, 4, 6), HIDDEN, PADDED),
    ),
    case("TransformerDecoderLayer", 6, 2, 8, 0.0, inputs=(normal(4, 2, 6), normal(3, 2, 6))),
    case(
        "TransformerDecoderLayer", 6, 2, 8, 0.0, norm_first=True, batch_first=True, bias=False,
        inputs=(normal(2, 4, 6), normal(2, 3, 6), HIDDEN),
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


def label(case: Case) -> str:
    name, args, kwargs, inputs = case
    parts = [*map(str, args), *(f"{k}={v}" for k, v in kwargs.items())]
    return f"{name}({', '.join(parts)}) of {'x'.join(map(str, inputs[0].shape))}"


@pytest.mark.parametrize(
    "case",
    [
        *(*CONVOLUTIONS, *LINEAR, *NORMS, *POOLING, *ACTIVATIONS, *SHAPING),
        *(*RECURRENT, *ATTENTION, *RESIZING),
    ],
    ids=label,
)
def test_layers_and_their_gradients(case: Case) -> None:
    name, args, kwargs, inputs = case
    ours, theirs = getattr(nn, name)(*args, **kwargs), getattr(torch.nn, name)(*args, **kwargs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of copies that PyTorch makes, and of masks of two kinds
        # PyTorch has 1 / 6 in f32 there.
        tolerance = 1e-7 if name == "Hardsigmoid" else against.TOLERANCE
        against.check_layer(ours, theirs, *inputs, tolerance=tolerance)


def test_every_layer_of_these_families_is_compared() -> None:
    compared = {c[0] for c in (*CONVOLUTIONS, *LINEAR, *NORMS, *POOLING, *ACTIVATIONS, *RESIZING)}
    compared |= {c[0] for c in (*SHAPING, *RECURRENT, *ATTENTION)}
    layers = {n for n in nn.__all__ if isinstance(getattr(nn, n), type)} & set(dir(torch.nn))
    alike = {"ConstantPad2d", "ConstantPad3d", "ZeroPad1d", "ZeroPad3d", "ReflectionPad1d",
             "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "CircularPad1d",
             "CircularPad3d"}  # fmt: skip
    elsewhere = {"Module", "ModuleList", "ModuleDict", "Sequential", "Parameter", "Buffer",
                 "TransformerEncoder", "TransformerDecoder", "Dropout1d", "Dropout2d",
                 "Dropout3d"}  # fmt: skip
    losses = {n for n in layers if n.endswith("Loss")} | {"CosineSimilarity", "PairwiseDistance"}
    assert layers - compared - alike - elsewhere - losses == set()


EVALUATED: list[Case] = [c for c in NORMS if "BatchNorm" in c[0] or "track" in str(c[2])]


@pytest.mark.parametrize("case", EVALUATED, ids=label)
def test_running_statistics_in_use(case: Case) -> None:
    name, args, kwargs, inputs = case
    make: Callable[[Any], Any] = lambda package: getattr(package, name)(*args, **kwargs)  # noqa: E731
    ours, theirs = make(nn), make(torch.nn)
    if kwargs.get("track_running_stats", True):
        theirs.running_mean.uniform_(-1, 1)
        theirs.running_var.uniform_(0.5, 2)
    against.check_layer(ours.eval(), theirs.eval(), *inputs)
