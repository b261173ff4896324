"""Floating-point recurrent layers without gates: one step, a sequence, and bidirectional."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.tflite.activations import applied
from modelcc.frontends.tflite.call import Handlers, TfliteCall
from modelcc.frontends.tflite.convolution import weights
from modelcc.frontends.tflite.directions import both_ways
from modelcc.ir.types import F32
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.iteration import Iteration, iterated
from modelcc.ops.matmul import MatMul
from modelcc.ops.shape import Transpose

WEIGHTS, RECURRENT, BIAS, STATE = 1, 2, 3, 4
"""Operands after the layer's input."""


def rnn(call: TfliteCall) -> str:
    """RNN: one step; the hidden state persists between calls."""
    _check(call, 2)
    products = of(MatMul(), call.value(0), weights(call, WEIGHTS, (1, 0))) + call.value(BIAS)
    state = _step(call, products, call.variable(STATE), weights(call, RECURRENT, (1, 0)))
    call.keep(STATE, state)
    return state.name


def sequence_rnn(call: TfliteCall) -> str:
    """UNIDIRECTIONAL_SEQUENCE_RNN: the states of all steps, time- or batch-major."""
    _check(call, 3)
    turn = Transpose((1, 0, 2))
    x = call.value(0) if call.flag("time_major") else of(turn, call.value(0))
    captured = {
        "products": of(MatMul(), x, weights(call, WEIGHTS, (1, 0))) + call.value(BIAS),
        "recurrent": weights(call, RECURRENT, (1, 0)),
    }

    def step(at: Iteration, states: list[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        state = _step(call, at.now("products"), states[0], at["recurrent"])
        return (state,), (state,)

    state, states = iterated(
        call.emitter, x.type.shape[0], [call.variable(STATE)], captured, step, (0,),
        counter="rnn.step",
    )  # fmt: skip
    call.keep(STATE, state)
    steps = call.as_value(states.name)
    return (steps if call.flag("time_major") else of(turn, steps)).name


def bidirectional_sequence_rnn(call: TfliteCall) -> tuple[str, ...]:
    """BIDIRECTIONAL_SEQUENCE_RNN."""
    return both_ways(call, sequence_rnn, (0, 1, 2, 3, 4), (0, 5, 6, 7, 8), 9)


def _check(call: TfliteCall, rank: int) -> None:
    if call.rank() != rank:
        call.fail(f"its operand is {call.type()}, not of rank {rank}")
    if any(call.dtype(n) != F32 for n in (0, WEIGHTS, RECURRENT)):
        unsupported(f"a recurrent layer of {call.dtype()} with weights of {call.dtype(WEIGHTS)}")


def _step(call: TfliteCall, products: Value, state: Value, recurrent: Value) -> Value:
    sums = products + of(MatMul(), state, recurrent)
    return applied(call.word("fused_activation_function", "NONE"), sums)


RNN: Handlers = {
    "RNN": rnn,
    "UNIDIRECTIONAL_SEQUENCE_RNN": sequence_rnn,
    "BIDIRECTIONAL_SEQUENCE_RNN": bidirectional_sequence_rnn,
}
