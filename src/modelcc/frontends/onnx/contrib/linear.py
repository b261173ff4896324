"""Handlers of onnxruntime's linear attention (com.microsoft): the state of a head is a matrix.

``S' = exp(g) S + k update`` and ``o = scale * q S'``; the update is v, or in delta rules
``beta (v - k exp(g) S)`` (Yang et al., "Gated delta networks", 2024).
"""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.onnx.call import Call
from modelcc.frontends.onnx.contrib.heads import Three, repeated, scale_of
from modelcc.frontends.onnx.contrib.operands import operators
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
    """Operands of linear attention, [batch, time, heads, size], in f32.

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
        states after each token [t, b, h, k, v] if ``window``."""
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


def linear_attention(
    call: Call, query: Value, key: Value, value: Value, past: Value | None,
    decay: Value | None, beta: Value | None,
) -> tuple[Value, Value]:  # fmt: skip
    """Queries, keys and values are [b, t, heads * size]; states [b, heads, k, v]."""
    attrs, rule = call.attrs, _rule(call)
    heads, few = attrs.integer("q_num_heads"), attrs.integer("kv_num_heads")
    q, v = _heads(query, heads), _heads(value, few)
    size = number_of(q.type.shape[3], "size of heads")
    width = number_of(key.type.shape[2], "width of keys")
    k = repeated(_heads(key, width // size), few // (width // size), 2)
    decay = _heads(_needed(call, decay, "decay"), few) if "gated" in rule else None
    beta = cast(_needed(call, beta, "beta"), F32) if "delta" in rule else None
    dtype = (past or query).type.dtype
    window = attrs.integer("state_window", 0)
    state = _state(call, past, (q.type.shape[0], few, size, v.type.shape[3]), window)
    scale = scale_of(call, size)
    tokens = Tokens(q, k, v, decay, beta)
    y, last, *states = tokens.results(call, state, scale, window > 0)
    batch, time, count, wide = y.type.shape
    result = cast(reshaped(y, batch, time, count * wide), query.type.dtype)
    present = _window(call, past, states[0], window) if window else last
    return result, cast(present, dtype)


def _needed(call: Call, x: Value | None, name: str) -> Value:
    return x or call.fail(f"its update rule needs the operand {name}")


def _state(call: Call, past: Value | None, shape: tuple[Index, ...], window: int) -> Value:
    """The initial state: the last one of ``past``, or zeros."""
    if past is None:
        return call.made(Full(shape, 0.0, F32))
    return cast(reshaped(part(past, 0, window - 1, 1), *shape) if window else past, F32)


def _window(call: Call, past: Value | None, states: Value, window: int) -> Value:
    """The last ``window`` of the states before and after each token, along axis 0."""
    shape = (window, *states.type.shape[1:])
    before = cast(past, F32) if past is not None else call.made(Full(shape, 0.0, F32))
    return part(of(Concat(0), before, states), 0, states.type.shape[0], window)


def attention_gates(
    call: Call, a: Value, bias: Value, scale: Value, b: Value | None
) -> list[Value]:
    """``decay_scale * softplus(a + dt_bias)``, and the sigmoid of b."""
    decay = of(act.Softplus(), cast(a, F32) + bias) * scale
    results = [cast(decay, a.type.dtype)]
    if b is not None:
        results.append(cast(of(ew.Sigmoid(), cast(b, F32)), b.type.dtype))
    return results


def delta_net(
    call: Call, query: Value, key: Value | None, value: Value | None, _: None,
    decay: Value | None, beta: Value | None, state: Value | None, a_log: Value | None,
    bias: Value | None, *__: None,
) -> tuple[Value, Value]:  # fmt: skip
    """Tokens of all sequences are in one axis, or in two; states are [b, heads, v, k]."""
    attrs = call.attrs
    if attrs.integer("state_update_capacity", 0):
        unsupported("its third output")
    if state is None:
        call.fail("without cu_seqlens it needs an initial state, for the size of the batch")
    batch, heads = state.type.shape[0], number_of(state.type.shape[1], "number of heads")
    given = _split(query, state) if key is None or value is None else (query, key, value)
    q, k, v = (cast(_timed(x, batch, 2), F32) for x in given)
    k = repeated(k, heads // number_of(k.type.shape[2], "number of heads"), 2)
    rule, lead = _rule(call), query.type.shape[: -2 if key is not None else -1]
    if "gated" in rule:
        decay = _decay(call, _needed(call, decay, "decay"), a_log, bias)
        scalar = decay.type.shape[-1] == heads and decay.type.rank == len(lead) + 1
        flat = _timed(decay, batch, 1 if scalar or decay.type.rank == 2 else 2)
        decay = flat if flat.type.rank == 4 else reshaped(flat, *flat.type.shape, 1)
    else:
        decay = None
    beta = _rate(call, _needed(call, beta, "beta"), batch) if "delta" in rule else None
    if attrs.flag("qk_l2_norm"):
        q, k = _unit(q), _unit(k)
    scale = scale_of(call, q.type.shape[3])
    y, last = Tokens(q, k, v, decay, beta).results(call, permuted(state, 0, 1, 3, 2), scale, False)
    result = cast(reshaped(y, *lead, *y.type.shape[2:]), query.type.dtype)
    return result, permuted(last, 0, 1, 3, 2)


def _split(x: Value, state: Value) -> Three:
    """Queries, keys and values from a packed tensor; their sizes are those of the state."""
    _, heads, wide, size = state.type.shape
    few = floordiv(x.type.shape[-1] - heads * wide, size * 2)
    cuts = ((0, few, size), (few * size, few, size), (few * size * 2, heads, wide))
    q, k, v = (reshaped(part(x, -1, at, n * d), *x.type.shape[:-1], n, d) for at, n, d in cuts)
    return q, k, v


def _timed(x: Value, batch: Index, own: int) -> Value:
    """Tokens as [batch, time]; the last ``own`` axes are those of a token."""
    shape = x.type.shape
    if len(shape) == own + 2:
        return x
    return reshaped(x, batch, floordiv(shape[0], batch), *shape[1:])


def _decay(call: Call, given: Value, a_log: Value | None, bias: Value | None) -> Value:
    """The logarithm of the decay of the state."""
    decay = cast(given, F32)
    if call.attrs.text("gate_activation", "none") != "qwen":
        return decay
    biased = decay if bias is None else decay + bias
    return -(of(act.Softplus(), biased) * of(ew.Exp(), _needed(call, a_log, "a_log")))


def _rate(call: Call, given: Value, batch: Index) -> Value:
    beta = cast(given, F32)
    if call.attrs.text("beta_activation", "none") == "sigmoid":
        beta = of(ew.Sigmoid(), beta)
    return _timed(beta, batch, 1)


def _unit(x: Value) -> Value:
    """Vectors normalised to length 1."""
    return x * of(ew.Rsqrt(), of(ReduceSum((3,), True), x * x) + 1e-6)


def causal_convolution(
    call: Call, given: Value, weights: Value, bias: Value | None, past: Value | None
) -> tuple[Value, Value]:
    """A causal depthwise convolution, and its next input state."""
    attrs = call.attrs
    if attrs.integer("ndim", 1) != 1:
        unsupported("more than one axis of positions")
    last, shape, dtype = attrs.flag("channels_last"), given.type.shape, given.type.dtype
    dilation, taps = attrs.integer("dilation", 1), number_of(weights.type.shape[2], "kernel")
    window, room = attrs.integer("state_window", 0), (taps - 1) * dilation
    x, old = _channels_first(given, last), _newest(past, window)
    batch, channels, length = x.type.shape
    nothing = (batch, channels, room)
    state = call.made(Full(nothing, 0.0, dtype)) if old is None else _channels_first(old, last)
    seen = of(Concat(2), state, x)
    operands = [seen, weights, *([] if bias is None else [bias])]
    groups = number_of(channels, "number of channels")
    result = of(Conv((1,), (0,), (0,), (dilation,), groups), *operands)
    if attrs.text("activation", "none") != "none":
        result = of(act.Silu(), result)
    result = reshaped(permuted(result, 0, 2, 1), *shape) if last else result
    ends = (shape[0], room, *shape[2:]) if last else (batch, channels, room)
    return result, _states(call, seen, past, (window, room), length, ends, last)


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
    """The input states after each of the last positions, or after the last one only."""
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


CONTRIB_LINEAR = operators(
    LinearAttention=(
        "query[b,t,q] key[b,t,k] value[b,t,v] past_state? decay[b,t,g]? beta[b,t,h]?",
        linear_attention,
    ),
    LinearAttentionGate=("a dt_bias decay_scale b?", attention_gates),
    GatedDeltaNet=(
        "query key? value? cu_seqlens! decay? beta? initial_state[b,h,v,k]? a_log? dt_bias? "
        "capture_count! state_update_active!",
        delta_net,
    ),
    CausalConvWithState=("input weight bias? past_state?", causal_convolution),
)
