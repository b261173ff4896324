"""Operators in the standard's domain that no operator set contains.

onnxruntime registers them there: some were experimental in the first operator sets, others are
emitted by its optimizer.
"""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.parts import sliced
from modelcc.frontends.onnx.call import Call, simple, table
from modelcc.frontends.onnx.contrib.norm import simplified
from modelcc.frontends.onnx.standard.elementwise import ELEMENTWISE
from modelcc.frontends.onnx.standard.nn import NN, normalised_over
from modelcc.ops.activation import Affine, ScaledTanh, Softplus
from modelcc.ops.arithmetic import of


def scaled_tanh(call: Call) -> str:
    """``alpha * tanh(beta * x)``."""
    attrs = call.attrs
    return call.emit(ScaledTanh(attrs.number("alpha"), attrs.number("beta")), call.input(0))


def parametric_softplus(call: Call) -> str:
    """``alpha * log(1 + exp(beta * x))``."""
    x = call.value(0) * call.attrs.number("beta")
    return (of(Softplus(), x) * call.attrs.number("alpha")).name


def image_scaler(call: Call) -> str:
    """``scale * x``, plus a number for each channel."""
    if call.rank() != 4:
        call.fail(f"expected images (NCHW), not {call.type()}")
    bias = np.array(call.attrs.numbers("bias", ()), np.float64).reshape(-1, 1, 1)
    if bias.size and call.shape()[1] != bias.size:
        call.fail(f"bias has {bias.size} numbers for {call.shape()[1]} channels")
    scaled = call.value(0) * call.attrs.number("scale", 1.0)
    if not bias.size:
        return scaled.name
    return (scaled + call.literal(bias, call.dtype())).name


def crop(call: Call) -> str:
    """Images cropped by ``border``: left, top, right, bottom; or to the extents ``scale`` from
    it."""
    border, extents = call.attrs.integers("border"), call.shape()
    if call.rank() != 4 or len(border) != 4 or min(border) < 0:
        call.fail(f"border {list(border)} is no left, top, right and bottom of {call.type()}")
    left, top, right, bottom = border
    counts = (extents[2] - top - bottom, extents[3] - left - right)
    if call.attrs.has("scale"):
        height, width = call.attrs.integers("scale")
        counts = (height, width)
    ranges = {2: (top, counts[0], 1), 3: (left, counts[1], 1)}
    return sliced(call, call.input(0), ranges, extents)


def mean_variance(call: Call) -> str:
    """Each channel, or all ``across_channels``, centred and divided by its standard deviation."""
    across = call.attrs.flag("across_channels")
    axes = tuple(a for a in range(call.rank()) if a != 1 or across)
    return normalised_over(call, axes, call.attrs.flag("normalize_variance", True))


UNOFFICIAL = table(
    Affine=simple(Affine, alpha=1.0, beta=0.0),
    Crop=crop,
    ImageScaler=image_scaler,
    LayerNormalization=NN["LayerNormalization"],
    MeanVarianceNormalization=mean_variance,
    ParametricSoftplus=parametric_softplus,
    ScaledTanh=scaled_tanh,
    SimplifiedLayerNormalization=simplified,
    ThresholdedRelu=ELEMENTWISE["ThresholdedRelu"],
)
"""Used if the model's operator set has no operator of that name."""
