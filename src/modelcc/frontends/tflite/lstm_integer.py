"""UNIDIRECTIONAL_SEQUENCE_LSTM in 8 bits, with 16-bit gates and cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.tflite.call import TfliteCall
from modelcc.frontends.tflite.lstm_parameters import (
    BIAS,
    CELL_STATE,
    INPUT,
    OUTPUT_STATE,
    PROJECTION,
    PROJECTION_BIAS,
    RECURRENT,
    LstmOperands,
)
from modelcc.frontends.tflite.requantization import divided_by_power, rescaled, saturated
from modelcc.ir.types import I8, I16, I32, Array
from modelcc.ops import elementwise as ew
from modelcc.ops.activation import Clip
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.fixed_point_functions import FixedPointActivation
from modelcc.ops.iteration import Iteration, iterated
from modelcc.ops.quant_matmul import MatMulInteger

WORDS, BYTES = (-32768, 32767), (-128, 127)
HIDDEN = 4
"""The intermediate tensor with the quantization of the cell's output before a projection."""

GATE_BITS = 3
"""Integer bits of a gate's preactivation, so there are 12 fraction bits."""


def integer_lstm(own: LstmOperands) -> str:
    """The outputs of all steps; output and cell states persist between calls."""
    call = own.call
    if own.is_normalised:
        unsupported("an LSTM in bytes whose gates are normalised")
    steps, cells = own.steps(), number_of(call.shape(own.operand(INPUT, "f"))[0], "size")
    point = _cell_point(call)
    products = _gate_sums(own, steps, INPUT, call.single(0).scale, call.single(0).zero)
    captured = {"products": products, "recurrent": _matrix(own, RECURRENT)}
    for gate in own.gates:
        place = own.peephole(gate)
        if place is not None:
            captured[f"peephole.{gate}"] = of(ew.Cast(I32), call.value(place))
    if call.has(PROJECTION):
        captured["projection"] = call.literal(_known(call, PROJECTION).T, I8)

    def step(at: Iteration, states: list[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        h, c = _step(own, at, states[0], states[1], cells, point)
        return (h, c), (h,)

    states = [call.variable(place) for place in (OUTPUT_STATE, CELL_STATE)]
    h, c, outputs = iterated(call.emitter, steps.type.shape[0], states, captured, step, (0,),
                             counter="lstm.step")  # fmt: skip
    call.keep(OUTPUT_STATE, h)
    call.keep(CELL_STATE, c)
    return own.sequence(call.as_value(outputs.name))


def _cell_point(call: TfliteCall) -> int:
    """The exponent of the cell's scale, a power of two."""
    scale = _state_scale(call, CELL_STATE)[0]
    exponent = math.log2(scale)
    if abs(exponent - round(exponent)) > 1e-3:
        call.fail(f"the scale of its cell is {scale}, not a power of two")
    return round(exponent)


def _state_scale(call: TfliteCall, i: int) -> tuple[float, int]:
    """Scale and zero point of a variable tensor."""
    tensor = call.operands[i] if i < len(call.operands) else None
    if tensor is None or tensor.quantization is None:
        call.fail(f"operand {i} has no quantization parameters")
    return tensor.quantization.scale, tensor.quantization.zero


def _known(call: TfliteCall, i: int) -> Array:
    return call.array(i, "weights")


def _matrix(own: LstmOperands, first: int) -> Value:
    """The transposed matrices of the gates, concatenated."""
    rows = [_known(own.call, own.operand(first, gate)) for gate in own.gates]
    return own.call.literal(np.concatenate(rows).T, I8)


def _reals(own: LstmOperands, first: int, scale: float) -> Array:
    """The multipliers of the accumulators of each gate's columns."""
    call = own.call
    found: list[Array] = []
    for gate in own.gates:
        place = own.operand(first, gate)
        real = np.float32(call.single(place).scale) * np.float32(scale) / np.float32(2**-12)
        found.append(np.full(number_of(call.shape(place)[0], "size"), float(real)))
    return np.concatenate(found)


def _gate_sums(own: LstmOperands, x: Value, first: int, scale: float, zero: int) -> Value:
    """Preactivations of the gates for the whole sequence, 16-bit values in i32."""
    call = own.call
    offsets = [-zero * _known(call, own.operand(first, gate)).sum(axis=1, dtype=np.int64)
               for gate in own.gates]  # fmt: skip
    biases = [
        _known(call, own.operand(BIAS, gate)) if call.has(own.operand(BIAS, gate)) else 0
        for gate in own.gates
    ]
    bias = np.concatenate([o + b for o, b in zip(offsets, biases, strict=True)])
    sums = of(MatMulInteger(), x, _matrix(own, first)) + call.literal(bias, I32)
    return of(Clip(*map(float, WORDS)), rescaled(sums, _reals(own, first, scale)))


def _step(
    own: LstmOperands, at: Iteration, h: Value, c: Value, cells: int, point: int
) -> tuple[Value, Value]:
    call = own.call
    scale, zero = _state_scale(call, OUTPUT_STATE)
    weights = [_known(call, own.operand(RECURRENT, gate)) for gate in own.gates]
    bias = -zero * np.concatenate(weights).sum(axis=1, dtype=np.int64)
    sums = of(MatMulInteger(), h, at["recurrent"]) + _inner(at, bias)
    moved = rescaled(sums, _reals(own, RECURRENT, scale)) + at.now("products")
    parts = own.parts(of(Clip(*map(float, WORDS)), moved), cells)
    old = of(ew.Cast(I32), c)
    forget = _function("logistic", _seen(own, at, "f", parts, old))
    new = _function("tanh", parts["g"])
    if "i" in parts:
        taken = _function("logistic", _seen(own, at, "i", parts, old))
    else:
        taken = forget.lift(32767) - forget
    kept = divided_by_power(forget * old, 15)
    added = divided_by_power(taken * new, 30 + point)
    cell = of(Clip(*map(float, WORDS)), kept + added)
    clip = call.number("cell_clip")
    if clip > 0:
        bound = float(int(min(clip / _state_scale(call, CELL_STATE)[0], 32767.0)))
        cell = of(Clip(-bound, bound), cell)
    gate = _function("logistic", _seen(own, at, "o", parts, cell))
    product = gate * _function("tanh", cell, 15 + point)
    return _output(own, at, product), of(ew.Cast(I16), cell)


def _inner(at: Iteration, numbers: Array) -> Value:
    return Value(at.build, at.build.constant(numbers, I32))


def _seen(
    own: LstmOperands, at: Iteration, gate: str, parts: dict[str, Value], cell: Value
) -> Value:
    """A gate's preactivation with its peephole to the cell."""
    place = own.peephole(gate)
    if place is None:
        return parts[gate]
    scale = np.float32(2.0 ** _cell_point(own.call)) * np.float32(own.call.single(place).scale)
    product = rescaled(cell * at[f"peephole.{gate}"], float(scale / np.float32(2**-12)))
    return of(Clip(*map(float, WORDS)), product + parts[gate])


def _output(own: LstmOperands, at: Iteration, product: Value) -> Value:
    """The output of a step, optionally projected."""
    call = own.call
    tensor = call.intermediates[HIDDEN] if len(call.intermediates) > HIDDEN else None
    hidden = None if tensor is None else tensor.quantization
    if hidden is None:
        call.fail("it says nothing of the scale of its hidden state")
    real = float(np.float32(2**-15 / float(np.float32(hidden.scale)) * 2**-15))
    if not call.has(PROJECTION):
        return saturated(rescaled(product, real), hidden.zero, BYTES, I8)
    scale, zero = _state_scale(call, OUTPUT_STATE)
    bytes_ = saturated(rescaled(product, real), -hidden.zero, BYTES, I8)
    bias = hidden.zero * _known(call, PROJECTION).sum(axis=1, dtype=np.int64)
    if call.has(PROJECTION_BIAS):
        bias = bias + _known(call, PROJECTION_BIAS)
    sums = of(MatMulInteger(), bytes_, at["projection"]) + _inner(at, bias)
    own_scale = np.float32(call.single(PROJECTION).scale) * np.float32(hidden.scale)
    moved = rescaled(sums, float(own_scale / np.float32(scale)))
    found = saturated(moved, zero, BYTES, I32)
    clip = call.number("proj_clip")
    if clip > 0:
        bound = float(int(min(clip / scale, 127.0)))
        found = of(Clip(-bound, bound), found)
    return of(ew.Cast(I8), found)


def _function(name: Literal["logistic", "tanh"], x: Value, integer_bits: int = GATE_BITS) -> Value:
    """A function of 16-bit numbers, in i32."""
    op = FixedPointActivation(name, integer_bits)
    return of(ew.Cast(I32), of(op, of(ew.Cast(I16), x)))
