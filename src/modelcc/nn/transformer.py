"""Layers of transformers: encoder and decoder, and stacks of them."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, ClassVar, Literal

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.nn import init
from modelcc.nn.attention import MultiheadAttention
from modelcc.nn.branch import branches
from modelcc.nn.containers import ModuleList
from modelcc.nn.dropout import Dropout, Keyed
from modelcc.nn.functional.activation import gelu, relu
from modelcc.nn.functional.values import as_tensor
from modelcc.nn.init import Rng
from modelcc.nn.linear import Linear
from modelcc.nn.module import Module
from modelcc.nn.normalization import LayerNorm
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.tensor import Tensor

Activation = Literal["relu", "gelu"] | Callable[[Any], Tensor]


def _function(activation: Activation) -> Callable[[Any], Tensor]:
    if callable(activation):
        return activation
    if activation not in ("relu", "gelu"):
        raise ModelError(f"activation {activation!r}", callers_line(),
                         "give relu, gelu or a function of a tensor")  # fmt: skip
    return relu if activation == "relu" else gelu


class _TransformerBlock(Module):
    """Base: self- and cross-attention, and a feed-forward network, with residuals."""

    attentions: ClassVar[tuple[str, ...]]
    self_attn: MultiheadAttention
    linear1: Linear
    dropout: Dropout
    linear2: Linear
    norm1: LayerNorm
    norm2: LayerNorm
    dropout1: Dropout
    dropout2: Dropout

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        dtype: Any = "f32",
        rng: Rng = None,
    ) -> None:
        """x are ``[L, N, d_model]``, with ``batch_first`` ``[N, L, d_model]``."""
        drawn = init.generator(rng)
        self.norm_first = norm_first
        for name in self.attentions:
            setattr(self, name, MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype, rng=drawn
            ))  # fmt: skip
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype=dtype, rng=drawn)
        self.dropout = Dropout(dropout, rng=drawn)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype=dtype, rng=drawn)
        self.activation = _function(activation)
        parts = range(1, len(self.attentions) + 2)
        for part in parts:
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
            setattr(self, f"norm{part}", norm)
        for part in parts:
            setattr(self, f"dropout{part}", Dropout(dropout, rng=drawn))

    def _fed(self, x: Tensor, after: Dropout) -> Tensor:
        return after(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerEncoderLayer(_TransformerBlock):
    """Self-attention and a feed-forward network, each with a residual and a LayerNorm.

    Vaswani et al., "Attention is all you need", 2017; norms come after, with ``norm_first`` before.
    """

    attentions = ("self_attn",)

    def forward(
        self,
        src: Any,
        src_mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Masks are those of :class:`MultiheadAttention`; ``is_causal`` needs none."""
        x = as_tensor(src)
        masks = (src_mask, src_key_padding_mask, is_causal)
        if self.norm_first:
            x = x + self._attended(self.norm1(x), *masks)
            return x + self._fed(self.norm2(x), self.dropout2)
        x = self.norm1(x + self._attended(x, *masks))
        return self.norm2(x + self._fed(x, self.dropout2))

    def _attended(self, x: Tensor, mask: Any, padding: Any, is_causal: bool) -> Tensor:
        y, _ = self.self_attn(x, x, x, padding, False, mask, is_causal=is_causal)
        return self.dropout1(y)


class TransformerDecoderLayer(_TransformerBlock):
    """As :class:`TransformerEncoderLayer`, with cross-attention to the encoder's results in
    between."""

    attentions = ("self_attn", "multihead_attn")
    multihead_attn: MultiheadAttention
    norm3: LayerNorm
    dropout3: Dropout

    def forward(
        self,
        tgt: Any,
        memory: Any,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """``memory`` is the encoder's result; masks are those of the two attentions."""
        x, memory = as_tensor(tgt), as_tensor(memory)

        def own(x: Tensor) -> Tensor:
            y, _ = self.self_attn(
                x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal
            )
            return self.dropout1(y)

        def other(x: Tensor) -> Tensor:
            y, _ = self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, False, memory_mask,
                is_causal=memory_is_causal,
            )  # fmt: skip
            return self.dropout2(y)

        if self.norm_first:
            x = x + own(self.norm1(x))
            x = x + other(self.norm2(x))
            return x + self._fed(self.norm3(x), self.dropout3)
        x = self.norm1(x + own(x))
        x = self.norm2(x + other(x))
        return self.norm3(x + self._fed(x, self.dropout3))


class TransformerEncoder(Module):
    """``num_layers`` copies of an encoder layer in sequence, each with its own random keys."""

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        *,
        rng: Rng = None,
    ) -> None:
        """All start from the parameters of ``encoder_layer``; :meth:`initialize` draws others."""
        drawn = init.generator(rng)
        self.layers = ModuleList(_copied(encoder_layer, drawn) for _ in range(num_layers))
        self.norm = norm

    def forward(
        self, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False
    ) -> Tensor:
        """Masks are passed to every layer."""
        x = as_tensor(src)
        for layer in self.layers:
            x = layer(x, mask, src_key_padding_mask, is_causal)
        return x if self.norm is None else self.norm(x)


class TransformerDecoder(Module):
    """``num_layers`` copies of a decoder layer in sequence, each with its own random keys."""

    def __init__(
        self,
        decoder_layer: TransformerDecoderLayer,
        num_layers: int,
        norm: Module | None = None,
        *,
        rng: Rng = None,
    ) -> None:
        """All start from the parameters of ``decoder_layer``; :meth:`initialize` draws others."""
        drawn = init.generator(rng)
        self.layers = ModuleList(_copied(decoder_layer, drawn) for _ in range(num_layers))
        self.norm = norm

    def forward(self, tgt: Any, memory: Any, *masks: Any, **named: Any) -> Tensor:
        """Masks, those of the layer, are passed to every layer."""
        x = as_tensor(tgt)
        for layer in self.layers:
            x = layer(x, memory, *masks, **named)
        return x if self.norm is None else self.norm(x)


def _copied(layer: Module, rng: np.random.Generator) -> Module:
    copy = deepcopy(layer)
    for _, module in branches(copy):
        if isinstance(module, Keyed) and hasattr(module, "key"):
            module.draw_key(rng)
    return copy
