"""ONNX nodes of the domain ``org.waves`` as ops of the dialect."""

from __future__ import annotations

from waves_dialect import Energy, Snake

from modelcc.frontends.onnx.call import Call
from modelcc.frontends.onnx.extensions import Extension, direct


def power(call: Call) -> str:
    """The exporter's name of the energy; it writes the axis, of which there is only the last."""
    if call.axis(-1) != call.rank() - 1:
        call.fail("the power is of the last axis")
    return call.emit(Energy(), call.input(0))


ONNX = Extension("org.waves", {"Snake": direct(Snake), "Power": power})
