"""Decompositions of the LSTM and GRU cells that are fused kernels in PyTorch on GPUs, with
gradients.

They match ``native/cuda/RNN.cu``, whose workspaces their gradients read: half precision is computed
in f32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor


def cell_rules() -> dict[Any, Callable[..., Any]]:
    """Decompositions, by operator."""
    aten: Any = torch.ops.aten
    return {
        aten._thnn_fused_lstm_cell.default: _lstm_cell,
        aten._thnn_fused_lstm_cell_backward_impl.default: _lstm_cell_backward,
        aten._thnn_fused_gru_cell.default: _gru_cell,
        aten._thnn_fused_gru_cell_backward.default: _gru_cell_backward,
    }


def _lstm_cell(
    of_input: Tensor, of_hidden: Tensor, cell: Tensor, bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The states, and the gates [batch, 4 * hidden]."""
    dtype = of_input.dtype
    gates = _biased(of_input, bias) + _biased(of_hidden, hidden_bias)
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    c = f * _wide(cell) + i * g
    return (o * c.tanh()).to(dtype), c.to(dtype), torch.cat([i, f, g, o], 1).to(dtype)


def _lstm_cell_backward(
    dy: Tensor | None, dc: Tensor | None, before: Tensor, after: Tensor, gates: Tensor, biased: bool
) -> tuple[Tensor | None, ...]:
    """Gradients of gates, the cell and a bias."""
    i, f, g, o = _wide(gates).chunk(4, 1)
    squashed = _wide(after).tanh()
    of_y = torch.zeros_like(o) if dy is None else _wide(dy)
    of_c = of_y * o * (1 - squashed * squashed)
    of_c = of_c if dc is None else of_c + _wide(dc)
    parts = [
        of_c * g * (1 - i) * i,
        of_c * _wide(before) * (1 - f) * f,
        of_c * i * (1 - g * g),
        of_y * squashed * (1 - o) * o,
    ]
    found = torch.cat(parts, 1).to(gates.dtype)
    return found, (of_c * f).to(gates.dtype), _of_bias(found, biased)


def _gru_cell(
    of_input: Tensor, of_hidden: Tensor, hidden: Tensor, bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The state, and the workspace for gradients [batch, 5 * hidden]."""
    dtype, h = of_input.dtype, _wide(hidden)
    r, z, n = _biased(of_input, bias).chunk(3, 1)
    of_r, of_z, of_n = _biased(of_hidden, hidden_bias).chunk(3, 1)
    r, z = (r + of_r).sigmoid(), (z + of_z).sigmoid()
    n = (n + r * of_n).tanh()
    return (n + z * (h - n)).to(dtype), torch.cat([r, z, n, h, of_n], 1).to(dtype)


def _gru_cell_backward(dy: Tensor, workspace: Tensor, biased: bool) -> tuple[Tensor | None, ...]:
    """Gradients of both sets of gates, the state and both biases."""
    r, z, n, h, of_n = _wide(workspace).chunk(5, 1)
    wide = _wide(dy)
    by_z = wide * (h - n) * (1 - z) * z
    by_n = wide * (1 - z) * (1 - n * n)
    by_r = by_n * of_n * (1 - r) * r
    first = torch.cat([by_r, by_z, by_n], 1).to(dy.dtype)
    second = torch.cat([by_r, by_z, by_n * r], 1).to(dy.dtype)
    return (
        *(first, second, (wide * z).to(dy.dtype)),
        *(_of_bias(first, biased), _of_bias(second, biased)),
    )


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _biased(gates: Tensor, bias: Tensor | None) -> Tensor:
    return _wide(gates) if bias is None else _wide(gates) + _wide(bias)


def _of_bias(gates: Tensor, biased: bool) -> Tensor | None:
    """The gradient of a bias, if there is one."""
    return gates.sum(0) if biased else None
