"""Recurrent networks in traced graphs: operators of modelcc, one for each layer, with gradients.

PyTorch's own decompositions unroll them step by step.  Dynamo traces these networks only if
``torch._dynamo.config.allow_rnn`` is set, and leaves them to PyTorch otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

_NETWORKS = {
    torch.lstm: "lstm",
    torch.gru: "gru",
    torch.rnn_tanh: "rnn_tanh",
    torch.rnn_relu: "rnn_relu",
}

_KEPT = {"lstm": 4, "gru": 4, "rnn_tanh": 1, "rnn_relu": 1}
"""Values per unit that gradients read besides its states: gates and their operands."""

_LIBRARY = torch.library.Library("modelcc", "FRAGMENT")
_LIBRARY.define(
    "recurrent(str kind, Tensor x, Tensor[] states, Tensor[] params, bool record) -> Tensor[]"
)
_LIBRARY.define(
    "recurrent_backward(str kind, Tensor[] dys, Tensor x, Tensor[] states, Tensor[] params,"
    " Tensor[] kept) -> Tensor[]"
)


def by_layers(module: fx.GraphModule) -> None:
    """Makes the recurrent networks of ``module`` be traced layer by layer."""
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target in _NETWORKS:
            node.target = _network(node.target, _NETWORKS[node.target])
    module.recompile()


def _network(function: Callable[..., Any], kind: str) -> Callable[..., Any]:
    def network(*given: Any) -> Any:
        if _is_plain(*given):
            return _layers(kind, *given)
        with torch.backends.mkldnn.flags(enabled=False):  # whose operator returns no workspace
            return function(*given)

    network.__name__ = f"{kind}_by_layers"
    return network


def _is_plain(x: torch.Tensor, states: Any, params: Any, has_biases: Any, *_: Any) -> bool:
    """Whether sequences have equal lengths, all tensors one type, and states are not projected."""
    if not isinstance(has_biases, bool):
        return False
    first = (states,) if isinstance(states, torch.Tensor) else states
    alike = all(t.dtype == x.dtype for t in (*first, *params))
    return alike and all(s.shape == first[0].shape for s in first)


def _layers(
    kind: str, x: torch.Tensor, states: Any, params: Sequence[torch.Tensor], has_biases: bool,
    layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    first = (states,) if isinstance(states, torch.Tensor) else states
    directions = 2 if bidirectional else 1
    width = (4 if has_biases else 2) * directions
    x = x.transpose(0, 1) if batch_first else x
    last: list[list[torch.Tensor]] = []
    for n in range(layers):
        own = [s[n * directions : (n + 1) * directions] for s in first]
        x, *ends = _layer(kind, x, own, list(params[n * width : (n + 1) * width]))
        last.append(ends)
        if n + 1 < layers:
            x = torch.dropout(x, dropout, train)
    x = x.transpose(0, 1) if batch_first else x
    return (x, *(torch.cat(column) for column in zip(*last, strict=True)))


def _layer(
    kind: str, x: torch.Tensor, states: list[torch.Tensor], params: list[torch.Tensor]
) -> Sequence[torch.Tensor]:
    tensors: list[Any] = [x, *states, *params]
    learning = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    found = torch.ops.modelcc.recurrent(kind, x, states, params, learning)
    return found[: 1 + len(states)]


def _fake(
    kind: str, x: torch.Tensor, states: list[torch.Tensor], params: list[torch.Tensor], record: bool
) -> list[torch.Tensor]:
    shape: Any = x.shape
    steps, batch, _ = shape
    first: Any = states[0].shape
    sides, _, hidden = first
    results = [x.new_empty(steps, batch, sides * hidden), *map(torch.empty_like, states)]
    count = sides * (len(states) + _KEPT[kind]) if record else 0
    return [*results, *(x.new_empty(steps, batch, hidden) for _ in range(count))]


def _fake_backward(
    kind: str, dys: list[torch.Tensor], x: torch.Tensor, states: list[torch.Tensor],
    params: list[torch.Tensor], kept: list[torch.Tensor],
) -> list[torch.Tensor]:  # fmt: skip
    return [torch.empty_like(t) for t in (x, *states, *params)]


def _save(ctx: Any, inputs: tuple[Any, ...], output: list[torch.Tensor]) -> None:
    ctx.kind, x, states, params, _ = inputs
    ctx.states, ctx.params = len(states), len(params)
    ctx.save_for_backward(x, *states, *params, *output[1 + len(states) :])


def _backward(ctx: Any, dys: list[torch.Tensor]) -> tuple[Any, ...]:
    x, *rest = ctx.saved_tensors
    states, params = rest[: ctx.states], rest[ctx.states : ctx.states + ctx.params]
    kept, given = rest[ctx.states + ctx.params :], dys[: 1 + ctx.states]
    dx, *found = torch.ops.modelcc.recurrent_backward(ctx.kind, given, x, states, params, kept)
    return None, dx, found[: ctx.states], found[ctx.states :], None


torch.library.register_fake("modelcc::recurrent", _fake, lib=_LIBRARY)
torch.library.register_fake("modelcc::recurrent_backward", _fake_backward, lib=_LIBRARY)
torch.library.register_autograd("modelcc::recurrent", _backward, setup_context=_save, lib=_LIBRARY)
