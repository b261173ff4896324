"""Activations of floats, fused into operators or their own."""

from __future__ import annotations

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.tflite.call import TfliteCall
from modelcc.frontends.tflite.requantization import FLOAT_BOUNDS
from modelcc.ops import elementwise as ew
from modelcc.ops.activation import Clip, Relu
from modelcc.ops.arithmetic import Value, of


def activated(call: TfliteCall, x: Value) -> Value:
    """``x`` with the activation that is fused into the operator."""
    return applied(call.word("fused_activation_function", "NONE"), x)


def applied(name: str, x: Value) -> Value:
    """An activation by its name in the schema."""
    match name:
        case "NONE":
            return x
        case "RELU":
            return of(Relu(), x)
        case "TANH":
            return of(ew.Tanh(), x)
        case _ if name in FLOAT_BOUNDS:
            return of(Clip(*FLOAT_BOUNDS[name]), x)
        case _:
            unsupported(f"the fused activation {name}")
