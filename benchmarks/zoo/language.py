"""Transformers from Hugging Face `transformers`, built from a config with random weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    DynamicCache,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)

from benchmarks.zoo.records import Integers, Model

ATTENTION = "eager"

LOWEST = torch.finfo(torch.float32).min
"""The additive mask of hidden scores.

Masks of the decoders are given in this prepared form: deriving them from token masks costs the
exported graph some fifty nodes of shape arithmetic.
"""


class Encoder(nn.Module):
    """Tokens and mask to the last hidden state."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """(batch, tokens), twice, to (batch, tokens, hidden)."""
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


class Prefill(nn.Module):
    """Tokens to logits, without a cache."""

    def __init__(self, model: PreTrainedModel, tokens: int) -> None:
        super().__init__()
        self.model = model
        future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        self.register_buffer("mask", torch.zeros(1, 1, tokens, tokens).masked_fill(future, LOWEST))

    def forward(self, input_ids: Tensor) -> Tensor:
        """(batch, tokens) to (batch, tokens, vocabulary)."""
        result = self.model(input_ids=input_ids, attention_mask=self.mask, use_cache=False)
        return result.logits


class Decode(nn.Module):
    """One token and the cached keys and values to logits and the longer cache."""

    def __init__(self, model: PreTrainedModel, cached: int) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("mask", torch.zeros(1, 1, 1, cached + 1))

    def forward(self, input_ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        """`past` alternates keys and values, layer by layer: (batch, heads, length, width)."""
        cache = DynamicCache(list(zip(past[::2], past[1::2], strict=True)))
        result = self.model(
            input_ids=input_ids, attention_mask=self.mask, past_key_values=cache, use_cache=True
        )
        present = [part for layer in cache.layers for part in (layer.keys, layer.values)]
        return (result.logits, *present)


def _gpt2(layers: int, words: int) -> PreTrainedModel:
    config = GPT2Config(vocab_size=words, n_layer=layers, attn_implementation=ATTENTION)
    return GPT2LMHeadModel(config)


def _llama(layers: int, words: int) -> PreTrainedModel:
    """245 M parameters in 16 layers; four query heads per key head."""
    config = LlamaConfig(
        vocab_size=words,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=4,
        attn_implementation=ATTENTION,
    )
    return LlamaForCausalLM(config)


def transformer(model: Model) -> nn.Module:
    """The wrapped model for a record of the catalogue."""
    layers, sizes = model.layers, [item.sizes(1) for item in model.inputs]
    words = _vocabulary(model)
    match model.architecture:
        case "bert_base":
            config = BertConfig(num_hidden_layers=layers, attn_implementation=ATTENTION)
            return Encoder(BertModel(config, add_pooling_layer=False))
        case "distilbert":
            small = DistilBertConfig(n_layers=layers, attn_implementation=ATTENTION)
            return Encoder(DistilBertModel(small))
        case "gpt2":
            return Prefill(_gpt2(layers, words), sizes[0][1])
        case "gpt2_decode":
            return Decode(_gpt2(layers, words), sizes[1][2])
        case "llama":
            return Prefill(_llama(layers, words), sizes[0][1])
        case "llama_decode":
            return Decode(_llama(layers, words), sizes[1][2])
        case name:
            raise KeyError(f"no transformer is called {name!r}")


def _vocabulary(model: Model) -> int:
    """Tokens are below it."""
    match model.inputs[0].fill:
        case Integers(_, high):
            return high
        case _:
            raise ValueError(f"{model.name}: the first input is not tokens")
