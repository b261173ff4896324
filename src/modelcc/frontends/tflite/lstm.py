"""Floating-point LSTMs: one step, a sequence, and bidirectional.

Sak et al., "Long short-term memory based recurrent neural network architectures", 2014; gates that
share their parameters (CIFG): Greff et al., "LSTM: a search space odyssey", 2015.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.tflite.activations import applied
from modelcc.frontends.tflite.call import Handlers, TfliteCall
from modelcc.frontends.tflite.directions import both_ways
from modelcc.frontends.tflite.hybrid import product_by_bytes
from modelcc.frontends.tflite.lstm_integer import integer_lstm
from modelcc.frontends.tflite.lstm_parameters import (
    BIAS,
    CELL_STATE,
    INPUT,
    NORM,
    OUTPUT_STATE,
    PROJECTION,
    PROJECTION_BIAS,
    RECURRENT,
    LstmOperands,
)
from modelcc.ir.types import F32, I8
from modelcc.ops import elementwise as ew
from modelcc.ops.activation import Clip
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Reshape
from modelcc.ops.iteration import Iteration, iterated
from modelcc.ops.matmul import MatMul
from modelcc.ops.reduce import ReduceMean
from modelcc.ops.shape import Concat, Transpose

LEAST_VARIANCE = 1e-8
"""Variance assumed for gates that are all equal."""


def unidirectional_sequence_lstm(call: TfliteCall) -> str:
    """The outputs of all steps; output and cell states persist between calls."""
    own = LstmOperands(call)
    own.check()
    weights = call.dtype(own.operand(INPUT, "f"))
    if call.dtype() == I8 and weights == I8:
        return integer_lstm(own)
    if call.dtype() != F32 or weights not in (F32, I8):
        unsupported(f"an LSTM of {call.dtype()} with weights of {weights}")
    return _float_lstm(own)


def _float_lstm(own: LstmOperands) -> str:
    call, steps = own.call, own.steps()
    products = _product(own, steps, _matrix(own, "input", _gates(own, INPUT)))
    if not own.is_normalised:
        products = products + _columns(own, BIAS)
    captured = {"products": products, **_matrix(own, "recurrent", _gates(own, RECURRENT))}
    for gate in own.gates:
        place = own.peephole(gate)
        if place is not None:
            captured[f"peephole.{gate}"] = _floats(call, place)
        if own.is_normalised:
            captured[f"norm.{gate}"] = call.value(own.operand(NORM, gate))
            captured[f"bias.{gate}"] = call.value(own.operand(BIAS, gate))
    if call.has(PROJECTION):
        captured |= _matrix(own, "projection", [PROJECTION])
        if call.has(PROJECTION_BIAS):
            captured["projection.bias"] = call.value(PROJECTION_BIAS)

    def step(at: Iteration, states: list[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        h, c = _step(own, at, *states)
        return (h, c), (h,)

    states = [call.variable(place) for place in (OUTPUT_STATE, CELL_STATE)]
    h, c, outputs = iterated(call.emitter, steps.type.shape[0], states, captured, step, (0,),
                             counter="lstm.step")  # fmt: skip
    call.keep(OUTPUT_STATE, h)
    call.keep(CELL_STATE, c)
    return own.sequence(call.as_value(outputs.name))


def _floats(call: TfliteCall, place: int) -> Value:
    x = call.value(place)
    return x if x.type.dtype == F32 else of(ew.Cast(F32), x) * float(call.single(place).scale)


def _gates(own: LstmOperands, first: int) -> list[int]:
    return [own.operand(first, gate) for gate in own.gates]


def _matrix(own: LstmOperands, name: str, places: list[int]) -> dict[str, Value]:
    """The transposed matrices of operands, concatenated; 8-bit ones with a scale per column."""
    call = own.call
    matrix = of(Transpose((1, 0)), of(Concat(0), *map(call.value, places)))
    if call.dtype(places[0]) != I8:
        return {name: matrix}
    parts = [call.single(place) for place in places]
    if any(part.zero for part in parts):
        unsupported("weights of bytes with a zero point by floats")
    columns = [number_of(call.shape(place)[0], "number of rows") for place in places]
    scales = np.repeat(np.array([part.scale for part in parts], np.float32), columns)
    return {name: matrix, f"{name}.scales": call.literal(scales)}


def _product(own: LstmOperands, x: Value, captured: Mapping[str, Value]) -> Value:
    """``x`` by a matrix from :func:`_matrix`; rows are quantized if it is 8-bit."""
    matrix, *scales = captured.values()
    if not scales:
        return of(MatMul(), x, matrix)
    asymmetric = own.call.flag("asymmetric_quantize_inputs")
    return product_by_bytes(x, matrix, scales[0], asymmetric)


def _now(at: Iteration, name: str) -> dict[str, Value]:
    """A matrix from :func:`_matrix`, within the loop."""
    return {n: at[n] for n in (name, f"{name}.scales") if n in at}


def _columns(own: LstmOperands, first: int) -> Value:
    """Vectors of the gates, concatenated."""
    return of(Concat(0), *(own.call.value(own.operand(first, gate)) for gate in own.gates))


def _step(own: LstmOperands, at: Iteration, h: Value, c: Value) -> tuple[Value, Value]:
    call = own.call
    sums = at.now("products") + _product(own, h, _now(at, "recurrent"))
    parts = own.parts(sums, c.type.shape[1])
    activation = call.word("fused_activation_function", "TANH")
    forget = of(ew.Sigmoid(), _normalised(at, "f", parts, c))
    new = applied(activation, _normalised(at, "g", parts, c))
    if "i" in parts:
        taken = of(ew.Sigmoid(), _normalised(at, "i", parts, c))
    else:
        taken = forget.lift(1.0) - forget
    c = _clipped(forget * c + taken * new, call.number("cell_clip"))
    h = of(ew.Sigmoid(), _normalised(at, "o", parts, c)) * applied(activation, c)
    if "projection" in at:
        h = _product(own, h, _now(at, "projection"))
        bias = at.get("projection.bias")
        h = _clipped(h if bias is None else h + bias, call.number("proj_clip"))
    return h, c


def _normalised(at: Iteration, gate: str, parts: dict[str, Value], c: Value) -> Value:
    """The preactivation of a gate."""
    x, peephole = parts[gate], at.get(f"peephole.{gate}")
    x = x if peephole is None else x + peephole * c
    norm = at.get(f"norm.{gate}")
    if norm is None:
        return x
    centred = x - of(ReduceMean((1,)), x)
    variance = of(ReduceMean((1,)), centred * centred)
    alike = of(ew.Equal(), variance, variance.lift(0.0))
    safe = of(ew.Where(), alike, variance.lift(LEAST_VARIANCE), variance)
    return centred * of(ew.Rsqrt(), safe) * norm + at[f"bias.{gate}"]


def _clipped(x: Value, bound: float) -> Value:
    return of(Clip(-bound, bound), x) if bound > 0 else x


def lstm(call: TfliteCall) -> str:
    """LSTM: one step, as a sequence of one."""
    if call.word("kernel_type", "FULL") != "FULL":
        unsupported("the kernel of five operands")
    if call.rank() != 2:
        call.fail(f"its operand is {call.type()}, not of rank 2")
    batch, width = call.shape()
    sequence = call.emit(Reshape((batch, 1, width)), call.input(0))
    steps = unidirectional_sequence_lstm(replace(call, inputs=(sequence, *call.inputs[1:])))
    shape = call.type_of(steps).shape
    return call.emit(Reshape((batch, shape[2])), steps)


_FORWARD = (0, *range(1, 18), 35, 36)
_BACKWARD = (0, *range(18, 35), 37, 38)
"""Operands of the backward direction, in the order of a unidirectional operator."""


def bidirectional_sequence_lstm(call: TfliteCall) -> tuple[str, ...]:
    """BIDIRECTIONAL_SEQUENCE_LSTM."""
    return both_ways(call, unidirectional_sequence_lstm, _FORWARD, _BACKWARD, 39)


LSTM: Handlers = {
    "UNIDIRECTIONAL_SEQUENCE_LSTM": unidirectional_sequence_lstm,
    "BIDIRECTIONAL_SEQUENCE_LSTM": bidirectional_sequence_lstm,
    "LSTM": lstm,
}
