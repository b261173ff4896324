"""Tested models of transformers, in small sizes."""

from __future__ import annotations

# First, because importing transformers imports torchvision.
import benchmarks.zoo.torchvision_operators  # noqa: F401  # pyright: ignore[reportUnusedImport]  isort: skip

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto

from conformance.torch_models.entries import Built, Entry, NotBuilt

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
    "bos_token_id": 1, "eos_token_id": 2, "state_size": 8,
    "num_mel_bins": 16, "max_source_positions": 20, "max_target_positions": 20,
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "q_lora_rank": 16,
    "kv_lora_rank": 16, "rotary_dim": 4, "projection_dim": 32, "index_head_dim": 16,
    "index_n_heads": 4, "num_blocks": 2,
    "window_size": 2, "max_length": 64, "input_feat_per_channel": 16, "conv_channels": 32,
})  # fmt: skip
"""Sizes of a small model, for fields of its configuration."""

ROWS: Mapping[str, Callable[[int], int]] = MappingProxyType({
    "hidden_sizes": lambda stage: 16 << stage, "depths": lambda _: 1,
    "num_heads": lambda stage: 2 << stage, "num_attention_heads": lambda stage: 1 << stage,
})  # fmt: skip
"""The same for fields with one size per stage."""

OWN: Mapping[str, Mapping[str, Any]] = MappingProxyType({
    "funnel": {"block_sizes": [1, 1], "d_head": 8, "d_inner": 64, "num_decoder_layers": 1},
    "reformer": {"axial_pos_embds_dim": (16, 16), "axial_pos_shape": (2, 4), "hidden_size": 32,
                 "attention_head_size": 8, "feed_forward_size": 64, "num_buckets": 2,
                 "attn_layers": ["local", "lsh"], "local_attn_chunk_length": 4,
                 "lsh_attn_chunk_length": 4, "hash_seed": 0},
    "levit": {"image_size": 64, "patch_size": 16},
    "hiera": {"image_size": [64, 64], "embed_dim": 16, "num_heads": [1, 2, 4, 8]},
    "luke": {"entity_vocab_size": 20, "entity_emb_size": 16},
    "perceiver": {"num_latents": 8, "d_latents": 32, "d_model": 16, "num_self_attends_per_block": 1,
                  "num_cross_attention_heads": 4, "num_self_attention_heads": 4},
    "efficientnet": {"width_coefficient": 0.25, "depth_coefficient": 0.25, "hidden_dim": 320},
    "patchtst": {"context_length": 32, "patch_length": 8, "num_input_channels": 3},
    "patchtsmixer": {"context_length": 32, "patch_length": 8, "num_input_channels": 3},
    "encodec": {"hidden_size": 16, "num_filters": 4, "codebook_dim": 16, "codebook_size": 32},
    "dac": {"encoder_hidden_size": 4, "decoder_hidden_size": 64, "hidden_size": 64,
            "codebook_dim": 4, "codebook_size": 32, "n_codebooks": 2},
    "mimi": {"num_filters": 4, "codebook_dim": 16, "vector_quantization_hidden_dimension": 16,
             "codebook_size": 32, "hidden_size": 32, "upsample_groups": 32},
    "bamba": {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1},
    "granitemoehybrid": {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8,
                         "mamba_n_groups": 1},
})  # fmt: skip
"""Sizes that only some kinds of models have, or under other names."""

SHAPES: Mapping[str, tuple[str, tuple[int, ...]]] = MappingProxyType({
    "patchtst": ("past_values", (2, 32, 3)), "patchtsmixer": ("past_values", (2, 32, 3)),
    "encodec": ("input_values", (1, 1, 1280)), "dac": ("input_values", (1, 1, 1280)),
    "mimi": ("input_values", (1, 1, 3840)),
})  # fmt: skip
"""Floating-point inputs that differ from others of the same name."""

CACHED = ("gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma", "phi", "opt", "gpt_neox", "gptj",
          "mixtral", "olmo", "stablelm", "falcon", "granite", "cohere", "phi3", "gemma2",
          "starcoder2", "olmo2", "glm", "helium", "smollm3", "bloom", "codegen", "ernie4_5",
          "arcee", "nemotron")  # fmt: skip
"""Decoders that are also tested with cached keys and values."""

LARGEST = 30_000_000
"""Maximum number of parameters of a small model."""


def transformers_models() -> Iterator[Entry]:
    """The base model of every kind of configuration, and decoders with a cache."""
    for name in modeling_auto.MODEL_MAPPING_NAMES:
        yield Entry(f"transformers/{name}", _kind(name), partial(_transformer, name))
    for name in CACHED:
        kind = "decoder with cache"
        yield Entry(f"transformers/{name}_cached", kind, partial(_cached, name))


STATE_SPACE = ("mamba", "mamba2", "falcon_mamba", "falcon_h1", "jamba", "bamba", "zamba", "zamba2",
               "rwkv", "xlstm", "recurrent_gemma", "nemotron_h", "granitemoehybrid", "lfm2",
               "qwen3_next")  # fmt: skip

TASKS: Mapping[str, str] = MappingProxyType({
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES": "decoder",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES": "encoder–decoder",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES": "encoder",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES": "speech",
    "MODEL_FOR_CTC_MAPPING_NAMES": "speech",
    "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES": "speech",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES": "vision",
    "MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES": "vision",
    "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES": "vision",
    "MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES": "vision",
    "MODEL_FOR_BACKBONE_MAPPING_NAMES": "vision",
})  # fmt: skip
"""Kinds of models, by the tables of transformers that list them; the last one takes precedence."""


def _kind(name: str) -> str:
    if name in STATE_SPACE:
        return "state space"
    if "moe" in name or name in ("mixtral", "jetmoe", "dbrx", "olmoe", "deepseek_v3", "gpt_oss"):
        return "mixture of experts"
    found = [kind for table, kind in TASKS.items() if name in getattr(modeling_auto, table)]
    return found[-1] if found else "other"


def _small(kind: Any) -> Any:
    """A configuration of small sizes, including its sub-configurations."""
    config = kind()
    settable = {k: v for k, v in SIZES.items() if not isinstance(getattr(kind, k, 0), property)}
    own = {k: v for k, v in settable.items() if isinstance(getattr(config, k, ""), int | None)}
    rows = {k: getattr(config, k, None) for k in ROWS}
    own |= {
        k: [*map(ROWS[k], range(len(v)))] for k, v in rows.items() if isinstance(v, list | tuple)
    }
    if hasattr(config, "kv_lora_rank"):  # the compressed representation is shared by all heads
        own["num_key_value_heads"] = own["num_attention_heads"]
    if "depths" in own:  # the default number of stages, each half of the previous one
        own = {k: v for k, v in own.items() if k not in ("num_layers", "num_hidden_layers")}
        own |= {"image_size": 64, "patch_size": 4} if "patch_size" in own else {}
    if isinstance(getattr(config, "expand", None), int) and "num_heads" in own:
        own["num_heads"] = config.expand * own["hidden_size"] // own["head_dim"]
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads"):
        if name in config.attribute_map and config.attribute_map[name] in own:
            own.pop(name, None)
    own |= OWN.get(config.model_type, {})
    parts = {k: v for k, v in vars(config).items() if isinstance(v, transformers.PreTrainedConfig)}
    own |= {name: _small(type(part)).to_dict() for name, part in parts.items()}
    return kind(**own)


def _transformer(name: str) -> Built:
    config = _small(type(transformers.AutoConfig.for_model(name)))
    model = transformers.AutoModel.from_config(config)
    if sum(p.numel() for p in model.parameters()) > LARGEST:
        raise NotBuilt("it stays large")
    if name in SHAPES:
        main, shape = SHAPES[name]
        return model, {main: torch.randn(shape)}
    inputs = {model.main_input_name: _input(model.main_input_name, config)}
    if config.is_encoder_decoder:
        batch = inputs[model.main_input_name].shape[0]
        inputs["decoder_input_ids"] = torch.randint(3, 90, (batch, 5))
    taken = inspect.signature(model.forward).parameters
    if "pixel_values" in taken and "vision_config" in config.to_dict():  # both sides of a pair
        inputs["pixel_values"] = _input("pixel_values", config.vision_config)
    return model, inputs


def _input(name: str, config: Any) -> torch.Tensor:
    if name == "input_ids":
        return torch.randint(3, 90, (2, 7))
    if name == "pixel_values":
        side = getattr(config, "image_size", 64)
        side = side if isinstance(side, int) else 64
        return torch.randn(1, getattr(config, "num_channels", 3), side, side)
    if name == "input_values" and hasattr(config, "num_mel_bins"):
        return torch.randn(1, config.max_length, config.num_mel_bins)
    if name == "input_values":
        return torch.randn(1, 4000)
    if name == "input_features" and hasattr(config, "input_feat_per_channel"):
        return torch.randn(1, 40, config.input_feat_per_channel)
    if name == "input_features":
        return torch.randn(1, getattr(config, "num_mel_bins", 16), 40)
    raise NotBuilt(f"its input is {name}")


class Cached(torch.nn.Module):
    """A decoder step: cached keys and values in, extended ones out."""

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
