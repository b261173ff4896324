"""Handlers of onnxruntime's mixtures of experts (com.microsoft): MoE, QMoE.

A loop iterates over the experts; each processes the tokens routed to it, a number known at run time
only.  An expert does no work for other tokens, and none at all if it has none (Shazeer et al.,
"Outrageously large neural networks", 2017).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call
from modelcc.frontends.onnx.contrib.fused import type_of_bits, unpacked
from modelcc.frontends.onnx.contrib.operands import operators
from modelcc.ir.index import Index, floordiv, product
from modelcc.ir.types import F32, Array
from modelcc.ops import activation as act
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.attention import Softmax
from modelcc.ops.comparison import where
from modelcc.ops.gather import Gather
from modelcc.ops.gather_elements import GatherElements, ScatterElements
from modelcc.ops.gather_nd import ScatterND
from modelcc.ops.generate import Full
from modelcc.ops.iteration import Iteration, iterated
from modelcc.ops.matmul import MatMul
from modelcc.ops.nonzero import NonZero
from modelcc.ops.quant import DequantizeLinear
from modelcc.ops.reduce import ReduceMax, ReduceSum
from modelcc.ops.top_k import TopK
from modelcc.ops.views import cast, part, permuted, reshaped

JITTER = 0.01
"""Scores more than twice this, relatively, below the maximum are masked by the sparse mixer
(Phi-3.5-MoE)."""


@dataclass(frozen=True)
class Experts:
    """Computation of experts: what follows the first layer, and how the layers are stored.

    ``fusion`` is the location of the second factor of a gated unit: 0 in a layer of its own, 1 in
    every other column of the first layer, 2 in its second half.  ``block`` is the block size of
    scales along inputs, 0 for one scale per output.
    """

    activation: str
    fusion: int
    alpha: float
    beta: float
    limit: float
    block: int = 0

    def layer(self, at: Iteration, x: Value, number: int) -> Value:
        """``x`` through layer ``number`` of the expert selected by the loop counter."""
        weights = at.now(f"w{number}")
        if f"s{number}" in at:
            parameters = [at.now(f"{kind}{number}") for kind in "sz"]
            block = self.block or weights.type.shape[1]
            assert isinstance(block, int)
            weights = of(DequantizeLinear(1, block), weights, *parameters)
        result = of(MatMul(), x, permuted(cast(weights, x.type.dtype), 1, 0))
        return result + at.now(f"b{number}") if f"b{number}" in at else result

    def output(self, at: Iteration, x: Value) -> Value:
        """The output of the expert selected by the loop counter for the rows of ``x``."""
        first = self.layer(at, x, 1)
        second = self.layer(at, x, 3) if "w3" in at else None
        if self.fusion and self.activation == "swiglu":
            size = first.type.shape[-1]
            half = floordiv(size, 2)
            other, step = (1, 2) if self.fusion == 1 else (half, 1)
            first, second = part(first, -1, 0, half, step), part(first, -1, other, half, step)
        if self.activation == "swiglu":
            if second is None:
                unsupported("swiglu experts need a second factor: fc3, or swiglu_fusion of 1 or 2")
            return self.layer(at, self.gated(first, second), 2)
        hidden = self.activated(first)
        return self.layer(at, hidden if second is None else hidden * second, 2)

    def gated(self, gate: Value, linear: Value) -> Value:
        """``gate * sigmoid(alpha * gate) * (linear + beta)``, with both clamped."""
        if not math.isinf(self.limit):
            gate = of(act.Clip(None, self.limit), gate)
            linear = of(act.Clip(-self.limit, self.limit), linear)
        return of(act.Swish(self.alpha), gate) * (linear + self.beta if self.beta else linear)

    def activated(self, x: Value) -> Value:
        match self.activation:
            case "relu":
                return of(act.Relu(), x)
            case "gelu":
                return of(act.Gelu("tanh"), x)
            case "silu":
                return of(act.Silu(), x)
            case "identity":
                return x
            case name:
                unsupported(f"activation {name!r} of experts")


def _experts(call: Call, block: int = 0) -> Experts:
    attrs = call.attrs
    return Experts(
        attrs.text("activation_type", "relu"),
        attrs.integer("swiglu_fusion", 0),
        attrs.number("activation_alpha", 1.0),
        attrs.number("activation_beta", 0.0),
        attrs.number("swiglu_limit", math.inf),
        block,
    )


def shares(call: Call, router: Value, own: Value | None, among: bool) -> Value:
    """The routing weight of each expert for each token [tokens, experts]; 0 if not selected.

    The top k of ``router`` are selected, weighted by their softmax, or by ``own``; the weights of a
    token are normalised to sum to 1 if ``among``.
    """
    attrs, scores = call.attrs, cast(router, F32)
    if attrs.flag("use_sparse_mixer"):
        return _sparsely_mixed(scores)
    (tokens, count), k = scores.type.shape, attrs.integer("k", 1)
    weights = of(Softmax(1), scores) if own is None else cast(own, F32)
    _, chosen = (Value(call, n) for n in call.add(TopK(k, 1, True), scores.name))
    best = of(GatherElements(1), weights, chosen)
    if among:
        best = best / of(ReduceSum((1,), True), best)
    nothing = call.made(Full((tokens, count), 0.0, F32))
    return of(ScatterElements(1, "none"), nothing, chosen, best)


def _sparsely_mixed(scores: Value) -> Value:
    """The two best experts, each weighted among those close to it (Liu et al., 2023)."""
    hidden = scores.lift(-np.inf)
    total: Value | None = None
    left = scores
    for _ in range(2):
        best = of(ReduceMax((1,), True), left)
        scale = of(ew.Max(), of(ew.Abs(), scores), best)
        far = of(ew.Greater(), (best - scores) / scale, scores.lift(2 * JITTER))
        share = of(Softmax(1), where(far, hidden, left))
        taken = of(ew.Equal(), left, best)
        gate = where(taken, share, share.lift(0.0))
        total = gate if total is None else total + gate
        left = where(taken, hidden, left)
    assert total is not None
    return total


def mixture(
    call: Call, x: Value, experts: Experts, layers: Mapping[str, Value | None], gates: Value
) -> Value:
    """The sum of the selected experts' outputs for each token, weighted by ``gates``."""
    shape = x.type.shape
    width = shape[-1]
    tokens = product(shape[:-1])
    rows = reshaped(x, tokens, width)
    dtype = rows.type.dtype
    count = gates.type.shape[1]

    def body(at: Iteration, states: list[Value]) -> tuple[list[Value], list[Value]]:
        (total,) = states
        _, number = (Value(at.build, n) for n in at.build.add(NonZero(), at.now("gates", 1).name))
        return [at.if_any(number, total, share)], []

    def share(at: Iteration, total: Value) -> Value:
        places, weight = _choosers(at, at.now("gates", 1), tokens)
        chosen = of(Gather(0), at["rows"], places)
        result = cast(experts.output(at, chosen), F32) * weight
        index = reshaped(places, places.type.shape[0], 1)
        return of(ScatterND("add"), total, index, result)

    nothing = call.made(Full((tokens, width), 0.0, F32))
    captured = {"rows": rows, "gates": gates, **layers}
    (total,) = iterated(call, count, [nothing], captured, body)
    return reshaped(cast(total, dtype), *shape)


def _choosers(at: Iteration, gate: Value, most: Index) -> tuple[Value, Value]:
    """The indices of tokens with nonzero ``gate``, [n], and their gates, [n, 1]."""
    where_, count = (Value(at.build, n) for n in at.build.add(NonZero(), gate.name))
    size = at.size(count, most)
    places = reshaped(part(where_, 1, 0, size), size)
    return places, reshaped(of(Gather(0), gate, places), size, 1)


def experts(call: Call, x: Value, router: Value, *weights: Value | None) -> Value:
    """A mixture of experts with weights [experts, outputs, inputs]."""
    names = [f"{kind}{number}" for number in (1, 2, 3) for kind in "wb"]
    layers = dict(zip(names, weights, strict=True))
    among = call.attrs.flag("normalize_routing_weights")
    return mixture(call, x, _experts(call), layers, shares(call, router, None, among))


QUANTISED = MappingProxyType({1: (2, 3, 4, 11), 2: (5, 6, 7, 12), 3: (8, 9, 10, 13)})
"""Operands of each layer of QMoE: weights, scales, bias, zero points."""


def quantised_experts(call: Call, x: Value, router: Value, *rest: Value | None) -> Value:
    """A mixture of experts with quantised weights, packed along inputs.

    As in onnxruntime on CPUs, softmax weights are computed among the selected experts.
    """
    kind = call.attrs.text("quant_type", "int")
    if kind != "int":
        unsupported(f"experts with weights of quantisation {kind!r}; only integers")
    block = call.attrs.integer("block_size", 0)
    layers: dict[str, Value | None] = {}
    for number, (w, _, bias, _) in QUANTISED.items():
        if call.has(w):
            layers |= _quantised_layer(call, number, block)
            layers[f"b{number}"] = call.given(bias)
    own = rest[12]
    among = own is None or call.attrs.flag("normalize_routing_weights")
    gates = shares(call, router, own, among)
    return mixture(call, x, _experts(call, max(block, 0)), layers, gates)


def _quantised_layer(call: Call, number: int, block: int) -> dict[str, Value]:
    """Weights, scales and zero points [experts, outputs, inputs or blocks]."""
    w, scale, _, zero = QUANTISED[number]
    bits = call.attrs.integer("expert_weight_bits", 4)
    bits = call.attrs.integer(f"fc{number}_expert_weight_bits", bits)
    dtype = type_of_bits(bits)
    weights = unpacked(call.array(w, "weights"), dtype)
    scales = call.array(scale, "scales").reshape(*weights.shape[:2], -1)
    zeros = np.full(scales.shape, 1 << (bits - 1), np.uint8)
    if call.has(zero):
        given = unpacked(call.array(zero, "zero points"), dtype)
        count = scales.shape[2] if block > 0 else scales.shape[1]
        zeros = given[..., :count].reshape(scales.shape)
    arrays: dict[str, Array] = {
        f"w{number}": weights.astype(dtype.numpy),
        f"s{number}": scales,
        f"z{number}": zeros.astype(dtype.numpy),
    }
    return {name: call.literal(np.ascontiguousarray(a)) for name, a in arrays.items()}


CONTRIB_EXPERTS = operators(
    MoE=(
        "input router_probs[t,e] fc1_experts_weights[e,n,i] fc1_experts_bias[e,n]? "
        "fc2_experts_weights[e,i,m] fc2_experts_bias[e,i]? "
        "fc3_experts_weights[e,m,i]? fc3_experts_bias[e,m]?",
        experts,
    ),
    QMoE=(
        "input router_probs[t,e] fc1_experts_weights[e,n,p] fc1_scales? fc1_experts_bias[e,n]? "
        "fc2_experts_weights fc2_scales? fc2_experts_bias? "
        "fc3_experts_weights? fc3_scales? fc3_experts_bias? "
        "fc1_zero_points? fc2_zero_points? fc3_zero_points? router_weights[t,e]? "
        "fc1_global_scale! fc2_global_scale! fc1_act_scale! fc2_act_scale! "
        "fc1_act_block_scale! fc2_act_block_scale!",
        quantised_experts,
    ),
)
