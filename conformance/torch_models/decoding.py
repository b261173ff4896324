"""Decoders of transformers that run several steps in one program, in small sizes."""

from __future__ import annotations

# First, because importing transformers imports torchvision.
import benchmarks.zoo.torchvision_operators  # noqa: F401  # pyright: ignore[reportUnusedImport]  isort: skip

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
import transformers

from conformance.torch_models.entries import Built, Entry

T: Any = transformers
DECODER: Mapping[str, Any] = MappingProxyType({
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 128,
    "head_dim": 8,
})  # fmt: skip
UNLIKELY_END = 98
"""A token that ends no sentence here."""


def decoding_models() -> Iterator[Entry]:
    """Greedy loops with fixed-size caches, and ``generate``."""
    for name, (kind, make) in _MODELS.items():
        model = name.partition("_")[0]
        yield Entry(f"transformers/{name}", kind, partial(make, model))


class Greedy(torch.nn.Module):
    """A prompt and three more tokens with a static cache: scores of each, and the cache."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor) -> Any:
        cache = T.StaticCache(config=self.model.config, max_cache_len=12)
        words, scores = input_ids, list[torch.Tensor]()
        begin: Any = 0
        for _ in range(4):
            places = torch.arange(begin, begin + words.shape[1])
            found = self.model(
                input_ids=words, past_key_values=cache, cache_position=places,
                position_ids=places.unsqueeze(0),
            )  # fmt: skip
            scores.append(found.logits[:, -1])
            begin, words = begin + words.shape[1], found.logits[:, -1:].argmax(-1)
        return torch.stack(scores, 1), [layer.keys for layer in cache.layers]


class Generated(torch.nn.Module):
    """Scores of the tokens that ``generate`` chooses."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        found = self.model.generate(
            input_ids, max_new_tokens=5, do_sample=False, return_dict_in_generate=True,
            output_logits=True,
        )  # fmt: skip
        return torch.stack(found.logits, 1)


def _model(name: str, **options: Any) -> Any:
    kind = getattr(transformers, name)
    return kind(kind.config_class(**options))


def _greedy(name: str, **options: Any) -> Built:
    model = Greedy(_model(name, **DECODER, **options))
    return model, {"input_ids": torch.randint(3, 90, (2, 5))}


def _generated(name: str, **options: Any) -> Built:
    model = _model(name, vocab_size=99, eos_token_id=UNLIKELY_END, **options)
    return Generated(model), {"input_ids": torch.randint(3, 90, (1, 5))}


_GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
_BART = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    "max_position_embeddings": 64, "forced_eos_token_id": None,
}  # fmt: skip
_T5 = {
    "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
    "decoder_start_token_id": 0,
}  # fmt: skip
_MAMBA = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}
_KIND = "several steps"

_MODELS: dict[str, tuple[str, Callable[[str], Built]]] = {
    "LlamaForCausalLM_static": (_KIND, _greedy),
    "Gemma2ForCausalLM_static": (_KIND, partial(_greedy, sliding_window=4)),
    "MistralForCausalLM_static": (_KIND, partial(_greedy, sliding_window=4)),
    "GPT2LMHeadModel_generate": (_KIND, partial(_generated, **_GPT)),
    "BartForConditionalGeneration_generate": (_KIND, partial(_generated, **_BART)),
    "T5ForConditionalGeneration_generate": (_KIND, partial(_generated, **_T5)),
    "MambaForCausalLM_generate": (_KIND, partial(_generated, **_MAMBA)),
}
