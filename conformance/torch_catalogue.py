"""Which models of timm, transformers and torchvision are tried, with small sizes where they can."""

from __future__ import annotations

# First, because importing timm or transformers imports torchvision.
import benchmarks.zoo.torchvision_operators  # noqa: F401  # pyright: ignore[reportUnusedImport]  isort: skip

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import timm
import torch
import torchvision
import transformers

Built = tuple[torch.nn.Module, dict[str, Any]]


class NotBuilt(Exception):  # noqa: N818 - no error of anybody
    """This model has no small form that is known here."""


@dataclass(frozen=True)
class Entry:
    """A model, ``library/name``, and how it is made with its inputs."""

    name: str
    build: Callable[[], Built]


SMALL = ("test_", "atto", "femto", "pico", "nano", "_xxt", "tiny", "_mini", "_xxs", "_xs", "small",
         "_t_", "_s_", "18", "26", "32", "b0", "_050", "_s", "_m", "_b")  # fmt: skip
"""What names of small models have, the smallest first."""


WORDS = re.compile(
    r"_(x*large|huge|giant\w*|gigantic|base|x*small|x*tiny|mediumd?|nano|pico|femto|atto|d?little|"
    r"mini|betwixt|dp?wee|[wp]*wee|lite|intern\d+m|so\d+m)(?=_|$)|^test_"
)
"""What names say of the size."""


def _size_of(name: str) -> tuple[int, int, str]:
    found = next((i for i, hint in enumerate(SMALL) if hint in name), len(SMALL))
    return found, len(name), name


def timm_models() -> Iterator[Entry]:
    """The smallest of each family: the names of a module that begin with the same letters."""
    families: dict[tuple[str, str], list[str]] = {}
    for module in timm.list_modules():
        for name in timm.list_models(module=module):
            letters = re.match(r"[a-z]+(_[a-z]{3,})?", WORDS.sub("", name))
            families.setdefault((module, letters.group() if letters else name), []).append(name)
    for names in families.values():
        name = min(names, key=_size_of)
        yield Entry(f"timm/{name}", partial(_timm, name))


def _timm(name: str) -> Built:
    model = timm.create_model(name, pretrained=False)
    size = model.default_cfg["input_size"]
    return model, {"x": torch.randn(1, *size)}


def torchvision_models() -> Iterator[Entry]:
    for name in torchvision.models.list_models(module=torchvision.models):
        if not re.search(r"vit_(l|h)|_(128gf|32gf|16gf|large|b[3-7]|l|b)$|152|vgg1[369]", name):
            yield Entry(f"torchvision/{name}", partial(_torchvision, name))


def _torchvision(name: str) -> Built:
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    model = torchvision.models.get_model(name, weights=None, **options)
    side = 299 if name == "inception_v3" else 224
    return model, {"x": torch.randn(1, 3, side, side)}


SIZES: Mapping[str, Any] = MappingProxyType({
    "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embed_dim": 32, "emb_dim": 32,
    "num_hidden_layers": 2, "num_layers": 2, "n_layer": 2, "n_layers": 2, "encoder_layers": 2,
    "decoder_layers": 2, "num_decoder_layers": 2, "num_encoder_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4, "head_dim": 8,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 64, "ffn_dim": 64, "d_ff": 64, "encoder_ffn_dim": 64, "n_inner": 64,
    "decoder_ffn_dim": 64, "hidden_dim": 64, "moe_intermediate_size": 32, "d_kv": 8,
    "num_local_experts": 4, "num_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "vocab_size": 99, "max_position_embeddings": 64, "n_positions": 64, "image_size": 32,
    "patch_size": 8, "embedding_size": 32, "use_cache": False, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "state_size": 8, "layer_types": None,
    "num_mel_bins": 16, "max_source_positions": 20, "max_target_positions": 20,
})  # fmt: skip
"""Sizes of a small model, where its configuration has them."""

CACHED = ("gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma", "phi", "opt", "gpt_neox", "gptj",
          "mixtral", "olmo", "stablelm", "falcon", "granite", "cohere")  # fmt: skip
"""Decoders that are also tried with keys and values of earlier steps."""


def transformers_models() -> Iterator[Entry]:
    """The base model of every kind of configuration, and decoders with a cache."""
    for kind in transformers.MODEL_MAPPING:
        yield Entry(f"transformers/{kind.model_type}", partial(_transformer, kind))
    for name in CACHED:
        yield Entry(f"transformers/{name}_cached", partial(_cached, name))


def _small(kind: Any) -> Any:
    config = kind()
    own = {k: v for k, v in SIZES.items() if hasattr(config, k)}
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads"):
        if name in config.attribute_map and config.attribute_map[name] in own:
            own.pop(name, None)
    if any(hasattr(getattr(config, k, None), "to_dict") for k in vars(config)):
        raise NotBuilt("its configuration holds others")
    own = {k: v for k, v in own.items() if k != "layer_types"}
    return kind(**own)


def _transformer(kind: Any) -> Built:
    config = _small(kind)
    model = transformers.AutoModel.from_config(config, experts_implementation="batched_mm")
    if sum(p.numel() for p in model.parameters()) > 30_000_000:
        raise NotBuilt("it stays large")
    inputs = {model.main_input_name: _input(model.main_input_name, config)}
    if config.is_encoder_decoder:
        batch = inputs[model.main_input_name].shape[0]
        inputs["decoder_input_ids"] = torch.randint(3, 90, (batch, 5))
    return model, inputs


def _input(name: str, config: Any) -> torch.Tensor:
    if name == "input_ids":
        return torch.randint(3, 90, (2, 7))
    if name == "pixel_values":
        side = getattr(config, "image_size", 64)
        side = side if isinstance(side, int) else 64
        return torch.randn(1, getattr(config, "num_channels", 3), side, side)
    if name == "input_values":
        return torch.randn(1, 4000)
    if name == "input_features":
        return torch.randn(1, getattr(config, "num_mel_bins", 16), 40)
    raise NotBuilt(f"its input is {name}")


class Cached(torch.nn.Module):
    """A decoder's next step: keys and values of earlier steps in, those of all steps out."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> Any:
        cache = transformers.DynamicCache()
        for layer, (k, v) in enumerate(zip(keys.unbind(), values.unbind(), strict=True)):
            cache.update(k, v, layer)
        result = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True)
        layers = result.past_key_values.layers
        return result[0], [layer.keys for layer in layers], [layer.values for layer in layers]


def _cached(name: str) -> Built:
    config = _small(type(transformers.AutoConfig.for_model(name)))
    model = transformers.AutoModel.from_config(config)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    past = (config.num_hidden_layers, 2, heads, 6, size)
    tensors = {"keys": torch.randn(past), "values": torch.randn(past)}
    return Cached(model), {"input_ids": torch.randint(3, 90, (2, 1)), **tensors}


CATALOGUES: tuple[Callable[[], Iterator[Entry]], ...] = (
    timm_models,
    torchvision_models,
    transformers_models,
)
