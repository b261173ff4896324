"""Multiplications of an operator."""

from __future__ import annotations

import math

from modelcc.subsets.limits import kernel
from modelcc.subsets.view import OperatorView, shape_of


def multiplications(view: OperatorView) -> int:
    """Products that are summed up, of convolutions and matrices; 0 of others."""
    result = math.prod(abs(size) for size in shape_of(view.outputs[0])) if view.outputs else 0
    match view.name:
        case "CONV_2D":
            return result * math.prod(shape_of(view.input(1))[1:])
        case "DEPTHWISE_CONV_2D":
            return result * math.prod(kernel(view))
        case "FULLY_CONNECTED" | "BATCH_MATMUL":
            return result * math.prod(shape_of(view.input(0))[-1:])
        case "TRANSPOSE_CONV":
            own = math.prod(abs(size) for size in shape_of(view.data))
            return own * math.prod(kernel(view)) * math.prod(shape_of(view.outputs[0])[-1:])
        case _:
            return 0
