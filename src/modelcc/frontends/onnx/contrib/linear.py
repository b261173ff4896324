"""Handlers of onnxruntime's linear attention (com.microsoft): a matrix is the state of a head.

``S' = exp(g) S + k update`` and ``o = scale * q S'``; the update is v, or in delta rules
``beta (v - k exp(g) S)`` (Yang et al., "Gated delta networks", 2024).
"""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.onnx.call import Call, table
from modelcc.frontends.onnx.contrib.heads import repeated, scale_of
from modelcc.ir.index import Index, floordiv, product
from modelcc.ir.types import F32, DType
from modelcc.ops import activation as act
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.conv import Conv
from modelcc.ops.generate import Full
from modelcc.ops.iteration import Iteration, iterated
from modelcc.ops.matmul import MatMul
from modelcc.ops.reduce import ReduceSum
from modelcc.ops.shape import Concat
from modelcc.ops.views import cast, part, permuted, reshaped

RULES = ("linear", "gated", "delta", "gated_delta")


@dataclass(frozen=True)
class Tokens:
    """What linear attention works on, [batch, time, heads, size], in f32.

    ``decay`` is [b, t, heads, size of keys or 1] and ``beta`` [b, t, heads or 1], None if the rule
    has none.  Keys and values have the same number of heads.
    """

    q: Value
    k: Value
    v: Value
    decay: Value | None
    beta: Value | None

    def results(self, call: Call, state: Value, scale: float, window: bool) -> list[Value]:
        """Results [b, t, heads of values or queries, size], the last state [b, h, k, v], and the
        states after each token [t, b, h, k, v] if there is a ``window`` of these."""
        batch, time, few, _ = self.q.type.shape
        _, _, heads, size = self.v.type.shape
        assert isinstance(few, int) and isinstance(heads, int)
        groups = max(few // heads, 1)
        q = repeated(self.q, max(heads // few, 1), 2) * scale

        def body(at: Iteration, states: list[Value]) -> tuple[list[Value], list[Value]]:
            new = _next(at, states[0])
            query = reshaped(at.now("q", 1), batch, heads, groups, q.type.shape[3])
            result = of(MatMul(), query, new)
            return [new], [result, new] if window else [result]

        captured = {"q": q, "k": self.k, "v": self.v, "decay": self.decay, "beta": self.beta}
        axes = (1, 0) if window else (1,)
        last, y, *states = iterated(call, time, [state], captured, body, axes)
        return [reshaped(y, batch, time, heads * groups, size), last, *states]


def _next(at: Iteration, state: Value) -> Value:
    """The state after a token."""
    k, v = at.now("k", 1), at.now("v", 1)
    batch, heads, keys = k.type.shape
    column = reshaped(k, batch, heads, keys, 1)
    update = reshaped(v, batch, heads, 1, v.type.shape[2])
    if "decay" in at:
        decay = of(ew.Exp(), at.now("decay", 1))
        state = state * reshaped(decay, *decay.type.shape, 1)
    if "beta" in at:
        found = of(ReduceSum((2,), True), state * column)
        beta = at.now("beta", 1)
        update = (update - found) * reshaped(beta, *beta.type.shape, 1, 1)
    return state + column * update


def _heads(x: Value, heads: int) -> Value:
    """[b, t, h * d] as [b, t, h, d] in f32."""
    batch, time, width = x.type.shape
    return cast(reshaped(x, batch, time, heads, floordiv(width, heads)), F32)


def _rule(call: Call) -> str:
    rule = call.attrs.text("update_rule", "gated_delta")
    return call.choice(rule, RULES, "update rule")


def linear_attention(call: Call) -> tuple[str, ...]:
    """Queries, keys and values are [b, t, heads * size]; states [b, heads, k, v]."""
    attrs, rule = call.attrs, _rule(call)
    heads, few = attrs.integer("q_num_heads"), attrs.integer("kv_num_heads")
    q, v = _heads(call.value(0), heads), _heads(call.value(2), few)
    size = number_of(q.type.shape[3], "size of heads")
    width = number_of(call.shape(1)[2], "width of keys")
    k = _heads(call.value(1), width // size)
    k = repeated(k, few // (width // size), 2)
    decay = beta = None
    if "gated" in rule:
        decay = _heads(call.value(4), few)
    if "delta" in rule:
        beta = cast(call.value(5), F32)
    dtype = call.dtype(3) if call.has(3) else call.dtype()
    window = attrs.integer("state_window", 0)
    past = call.given(3)
    state = _state(call, past, (q.type.shape[0], few, size, v.type.shape[3]), window)
    scale = scale_of(call, size)
    tokens = Tokens(q, k, v, decay, beta)
    y, last, *states = tokens.results(call, state, scale, window > 0)
    batch, time, count, wide = y.type.shape
    result = cast(reshaped(y, batch, time, count * wide), call.dtype())
    present = _window(call, past, states[0], window) if window else last
    return result.name, cast(present, dtype).name


def _state(call: Call, past: Value | None, shape: tuple[Index, ...], window: int) -> Value:
    """The state before the first token: the last one of ``past``, or zeros."""
    if past is None:
        return call.made(Full(shape, 0.0, F32))
    return cast(reshaped(part(past, 0, window - 1, 1), *shape) if window else past, F32)


def _window(call: Call, past: Value | None, states: Value, window: int) -> Value:
    """The last ``window`` of the states before and after each token, along axis 0."""
    shape = (window, *states.type.shape[1:])
    before = cast(past, F32) if past is not None else call.made(Full(shape, 0.0, F32))
    return part(of(Concat(0), before, states), 0, states.type.shape[0], window)


def attention_gates(call: Call) -> tuple[str, ...]:
    """``decay_scale * softplus(a + dt_bias)``, and the sigmoid of b."""
    decay = of(act.Softplus(), cast(call.value(0), F32) + call.value(1)) * call.value(2)
    results = [cast(decay, call.dtype()).name]
    if call.has(3):
        results.append(cast(of(ew.Sigmoid(), cast(call.value(3), F32)), call.dtype(3)).name)
    return tuple(results)


def delta_net(call: Call) -> tuple[str, ...]:
    """Tokens of all sequences are in one axis, or in two; states are [b, heads, v, k]."""
    attrs = call.attrs
    if call.has(3) or attrs.integer("state_update_capacity", 0):
        unsupported("sequences of different lengths in one axis, or its third output")
    if not call.has(6):
        call.fail("without cu_seqlens it needs an initial state, for the size of the batch")
    state = call.value(6)
    batch, heads = state.type.shape[0], number_of(state.type.shape[1], "number of heads")
    q, k, v = _of_sequences(call, batch)
    k = repeated(k, heads // number_of(k.type.shape[2], "number of heads"), 2)
    rule = _rule(call)
    decay = _decay(call, batch, heads) if "gated" in rule else None
    beta = _rate(call, batch) if "delta" in rule else None
    if attrs.flag("qk_l2_norm"):
        q, k = _unit(q), _unit(k)
    scale = scale_of(call, q.type.shape[3])
    y, last = Tokens(q, k, v, decay, beta).results(call, permuted(state, 0, 1, 3, 2), scale, False)
    shape = (*call.shape()[:-2], *y.type.shape[2:])
    if not call.has(1):
        shape = (*call.shape()[:-1], *y.type.shape[2:])
    return cast(reshaped(y, *shape), call.dtype()).name, permuted(last, 0, 1, 3, 2).name


def _of_sequences(call: Call, batch: Index) -> tuple[Value, Value, Value]:
    """Queries, keys and values, [batch, time, heads, size] in f32."""
    given = [call.value(i) for i in (0, 1, 2)] if call.has(1) else _split(call)
    parts = [cast(_timed(x, batch, 2), F32) for x in given]
    return parts[0], parts[1], parts[2]


def _split(call: Call) -> list[Value]:
    """Queries, keys and values that are side by side; the state tells their sizes."""
    _, heads, wide, size = call.shape(6)
    x = call.value(0)
    few = floordiv(x.type.shape[-1] - heads * wide, size * 2)
    cuts = ((0, few, size), (few * size, few, size), (few * size * 2, heads, wide))
    return [reshaped(part(x, -1, at, n * d), *x.type.shape[:-1], n, d) for at, n, d in cuts]


def _timed(x: Value, batch: Index, own: int) -> Value:
    """Tokens as [batch, time]; the last ``own`` axes are those of a token."""
    shape = x.type.shape
    if len(shape) == own + 2:
        return x
    return reshaped(x, batch, floordiv(shape[0], batch), *shape[1:])


def _decay(call: Call, batch: Index, heads: int) -> Value:
    """The logarithm of what is left of a state, [b, t, heads, size or 1]."""
    decay = cast(call.value(4), F32)
    if call.attrs.text("gate_activation", "none") == "qwen":
        biased = decay + call.value(8) if call.has(8) else decay
        decay = -(of(act.Softplus(), biased) * of(ew.Exp(), call.value(7)))
    scalar = decay.type.shape[-1] == heads and decay.type.rank == len(call.shape()) - 1
    if scalar or decay.type.rank == 2:
        timed = _timed(decay, batch, 1)
        return reshaped(timed, *timed.type.shape, 1)
    return _timed(decay, batch, 2)


def _rate(call: Call, batch: Index) -> Value:
    beta = cast(call.value(5), F32)
    if call.attrs.text("beta_activation", "none") == "sigmoid":
        beta = of(ew.Sigmoid(), beta)
    return _timed(beta, batch, 1)


def _unit(x: Value) -> Value:
    """Vectors of length 1."""
    return x * of(ew.Rsqrt(), of(ReduceSum((3,), True), x * x) + 1e-6)


def causal_convolution(call: Call) -> tuple[str, str]:
    """A convolution of each channel that sees the past only, and the inputs that it will see."""
    attrs = call.attrs
    if attrs.integer("ndim", 1) != 1:
        unsupported("more than one axis of positions")
    x, weights, last = call.value(0), call.value(1), attrs.flag("channels_last")
    shape, dtype = x.type.shape, x.type.dtype
    dilation, taps = attrs.integer("dilation", 1), number_of(call.shape(1)[2], "kernel")
    window, room = attrs.integer("state_window", 0), (taps - 1) * dilation
    past = call.given(3)
    state = _newest(past, window)
    x, state = (None if t is None else _channels_first(t, last) for t in (x, state))
    assert x is not None
    batch, channels, length = x.type.shape
    if state is None:
        state = call.made(Full((batch, channels, room), 0.0, dtype))
    seen = of(Concat(2), state, x)
    operands = [seen, weights, *([call.value(2)] if call.has(2) else [])]
    groups = number_of(channels, "number of channels")
    result = of(Conv((1,), (0,), (0,), (dilation,), groups), *operands)
    if attrs.text("activation", "none") != "none":
        result = of(act.Silu(), result)
    result = reshaped(permuted(result, 0, 2, 1), *shape) if last else result
    ends = (shape[0], room, *shape[2:]) if last else (batch, channels, room)
    return result.name, _states(call, seen, past, (window, room), length, ends, last).name


def _newest(past: Value | None, window: int) -> Value | None:
    if past is None or not window:
        return past
    return reshaped(part(past, 0, window - 1, 1), *past.type.shape[1:])


def _channels_first(x: Value, last: bool) -> Value:
    """[b, t, d…] as [b, channels, t] if channels are ``last``."""
    if not last:
        return x
    batch, length, *sizes = x.type.shape
    return permuted(reshaped(x, batch, length, product(sizes)), 0, 2, 1)


def _states(
    call: Call, seen: Value, past: Value | None, sizes: tuple[int, int], length: Index,
    shape: tuple[Index, ...], last: bool,
) -> Value:  # fmt: skip
    """The inputs that are seen after each of the last positions, or after the last one only."""
    window, room = sizes

    def after(position: Index) -> Value:
        state = part(seen, 2, position, room)
        return reshaped(permuted(state, 0, 2, 1) if last else state, *shape)

    if not window:
        return after(length)
    count = number_of(length, "number of positions")
    dtype: DType = seen.type.dtype
    states: list[Value] = []
    for slot in range(count - window + 1, count + 1):
        if slot > 0:
            states.append(reshaped(after(slot), 1, *shape))
        elif past is None:
            states.append(call.made(Full((1, *shape), 0.0, dtype)))
        else:
            states.append(part(past, 0, window - 1 + slot, 1))
    return of(Concat(0), *states)


CONTRIB_LINEAR = table(
    LinearAttention=linear_attention,
    LinearAttentionGate=attention_gates,
    GatedDeltaNet=delta_net,
    CausalConvWithState=causal_convolution,
)
