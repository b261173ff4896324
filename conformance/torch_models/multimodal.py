"""Multimodal models of transformers, in small sizes."""

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
WORDS: Mapping[str, Any] = MappingProxyType({
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
})  # fmt: skip
PATCHES: Mapping[str, Any] = MappingProxyType({**WORDS, "image_size": 32, "patch_size": 8})
DECODER: Mapping[str, Any] = MappingProxyType({
    **WORDS, "vocab_size": 99, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "head_dim": 8,
})  # fmt: skip
IMAGE = 90
"""The placeholder token of an image."""


def multimodal_models() -> Iterator[Entry]:
    """Images among tokens, documents, image-text pairs."""
    for name, (kind, make) in _MODELS.items():
        yield Entry(f"transformers/{name}", kind, partial(make, name))


class Given(torch.nn.Module):
    """A model with some arguments fixed."""

    def __init__(self, model: Any, **fixed: Any) -> None:
        super().__init__()
        self.model, self._fixed = model, fixed

    def forward(self, **tensors: torch.Tensor) -> Any:
        return self.model(**tensors, **self._fixed)


def _model(name: str, **options: Any) -> Any:
    kind = getattr(transformers, name)
    return kind(kind.config_class(**options))


def _image(batch: int = 1) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(batch, 3, 32, 32)}


def _words(batch: int = 2, count: int = 6) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(3, IMAGE, (batch, count))}


def _around(places: int) -> dict[str, torch.Tensor]:
    """Tokens before and after an image of ``places`` placeholders."""
    return {"input_ids": torch.tensor([[1] + [IMAGE] * places + [*range(5, 10)]])}


def _llava(name: str) -> Built:
    vision, text = T.CLIPVisionConfig(**PATCHES), T.LlamaConfig(**DECODER)
    model = _model(name, vision_config=vision, text_config=text, image_token_id=IMAGE)
    return model, {**_image(), **_around(16)}


def _paligemma(name: str) -> Built:
    model = _model(
        name, vision_config=T.SiglipVisionConfig(**PATCHES, projection_dim=32),
        text_config=T.GemmaConfig(**DECODER), image_token_id=IMAGE, projection_dim=32,
        hidden_size=32, vocab_size=99,
    )  # fmt: skip
    words = _around(16)
    like = words["input_ids"]
    masks = {"attention_mask": torch.ones_like(like), "token_type_ids": torch.zeros_like(like)}
    return model, {**_image(), **words, **masks}


def _gemma(name: str) -> Built:
    kinds = ["sliding_attention", "full_attention"]
    model = _model(
        name, text_config={**DECODER, "sliding_window": 4, "layer_types": kinds},
        vision_config=dict(PATCHES), mm_tokens_per_image=4, image_token_id=IMAGE,
        boi_token_id=91, eoi_token_id=92,
    )  # fmt: skip
    words = torch.tensor([[1, 91, *[IMAGE] * 4, 92, 5, 6, 7]])
    return model, {**_image(), "input_ids": words, "token_type_ids": (words == IMAGE).long()}


def _idefics(name: str) -> Built:
    text = {**DECODER, "model_type": "llama", "pad_token_id": 0}
    model = _model(
        name, vision_config=dict(PATCHES), text_config=text, scale_factor=2,
        image_token_id=IMAGE, pad_token_id=0,
    )  # fmt: skip
    return model, {**_around(4), "pixel_values": torch.randn(1, 1, 3, 32, 32)}


def _qwen(name: str, **vision: Any) -> Built:
    sizes = {"depth": 2, "num_heads": 4, "patch_size": 4, "hidden_size": 32}
    turns = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
    model = _model(
        name, vision_config={**sizes, "spatial_merge_size": 2, "temporal_patch_size": 2, **vision},
        text_config={**DECODER, "rope_parameters": turns}, image_token_id=IMAGE,
        vision_start_token_id=91, vision_end_token_id=92, video_token_id=93,
    )  # fmt: skip
    words = torch.tensor([[91, *[IMAGE] * 16, 92, 5, 6, 7]])
    inputs = {"pixel_values": torch.randn(64, 3 * 2 * 16), "input_ids": words}
    grid = torch.tensor([[1, 8, 8]])
    return Given(model, image_grid_thw=grid), {
        **inputs, "mm_token_type_ids": (words == IMAGE).long(),
    }  # fmt: skip


def _queried(name: str) -> Built:
    text = {
        "model_type": "opt", "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "ffn_dim": 64, "max_position_embeddings": 64,
        "word_embed_proj_dim": 32,
    }  # fmt: skip
    model = _model(
        name, vision_config=dict(PATCHES), text_config=text, num_query_tokens=4,
        qformer_config={**WORDS, "vocab_size": 99, "encoder_hidden_size": 32},
        image_token_index=IMAGE,
    )  # fmt: skip
    return model, {**_image(), **_around(4)}


def _tiled(name: str) -> Built:
    vision = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_global_layers": 1, "attention_heads": 4,
        "intermediate_size": 64, "image_size": 32, "patch_size": 16, "max_num_tiles": 2,
        "intermediate_layers_indices": [0, 1], "vision_output_dim": 96,
        "supported_aspect_ratios": [[1, 1], [1, 2], [2, 1]],
    }  # fmt: skip
    text = {
        **WORDS, "vocab_size": 99, "num_hidden_layers": 3, "num_key_value_heads": 2,
        "cross_attention_layers": [1], "max_position_embeddings": 64, "pad_token_id": 0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    }  # fmt: skip
    model = _model(name, vision_config=vision, text_config=text, image_token_index=IMAGE)
    tiles = {
        "pixel_values": torch.randn(1, 1, 2, 3, 32, 32), "aspect_ratio_ids": torch.tensor([[2]]),
        "aspect_ratio_mask": torch.ones(1, 1, 2, dtype=torch.long),
        "cross_attention_mask": torch.ones(1, 6, 1, 2, dtype=torch.long),
    }  # fmt: skip
    return model, {**_words(1), **tiles}


def _latent(name: str) -> Built:
    text = {
        "vocab_size": 99, "embed_dim": 32, "layers": 2, "ffn_dim": 64, "attention_heads": 4,
        "max_position_embeddings": 64,
    }  # fmt: skip
    model = _model(name, text_config=text, vision_config=dict(PATCHES), latent_query_num=4)
    places = torch.tensor([[0, 1, 1, 1, 1, 0, 0, 0, 0, 0]])
    return model, {**_image(), **_words(1, 10), "image_embeds_position_mask": places}


def _joined(name: str) -> Built:
    model = _model(name, vocab_size=99, max_position_embeddings=40, max_image_length=-1, **PATCHES)
    return model, {**_words(), **_image(2)}


def _crossed(name: str) -> Built:
    model = _model(
        name, vocab_size=99, hidden_size=32, num_attention_heads=4, intermediate_size=64,
        l_layers=1, x_layers=1, r_layers=1, visual_feat_dim=20,
    )  # fmt: skip
    seen = {"visual_feats": torch.randn(2, 5, 20), "visual_pos": torch.rand(2, 5, 4)}
    return model, {**_words(), **seen}


def _boxes(count: int = 6) -> torch.Tensor:
    return torch.randint(0, 30, (1, count, 4)).sort(-1)[0]


def _layout(name: str) -> Built:
    model = _model(
        name, vocab_size=99, coordinate_size=6, shape_size=4, input_size=32, patch_size=8,
        max_2d_position_embeddings=64, rel_pos_bins=8, rel_2d_pos_bins=8, **WORDS,
    )  # fmt: skip
    return model, {**_words(1), "bbox": _boxes(), **_image()}


def _document(name: str) -> Built:
    model = _model(
        name, vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_decoder_layers=2,
        num_heads=4, image_size=32, patch_size=8, max_2d_position_embeddings=64,
    )  # fmt: skip
    written = {"decoder_input_ids": torch.randint(3, IMAGE, (1, 4))}
    return model, {**_words(1), "bbox": torch.rand(1, 6, 4), **_image(), **written}


def _screen(name: str) -> Built:
    sizes = {"hidden_size": 32, "d_kv": 8, "d_ff": 64}
    vision = {"patch_embed_hidden_size": 768, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = _model(
        name, text_config={**sizes, "vocab_size": 99, "num_layers": 2, "num_heads": 4},
        vision_config={**sizes, **vision, "seq_len": 20},
    )  # fmt: skip
    places = torch.cartesian_prod(torch.arange(1.0, 4), torch.arange(1.0, 4))
    patches = torch.cat([places, torch.randn(9, 768)], 1).unsqueeze(0)
    written = torch.randint(3, IMAGE, (1, 4))
    return model, {"flattened_patches": patches, "decoder_input_ids": written}


def _pair(name: str) -> Built:
    text = {**WORDS, "vocab_size": 99, "max_position_embeddings": 64, "projection_dim": 16}
    model = _model(
        name, text_config=text, vision_config={**PATCHES, "projection_dim": 16}, projection_dim=16
    )
    return Given(model, return_loss=True), {**_words(), **_image(2)}


def _ragged(name: str) -> Built:
    text = {**WORDS, "vocab_size": 99, "max_position_embeddings": 64, "projection_size": 32}
    vision = {**WORDS, "patch_size": 4, "num_patches": 16}
    patches = {
        "pixel_values": torch.randn(2, 12, 48),
        "pixel_attention_mask": torch.ones(2, 12, dtype=torch.long),
    }
    shapes = {"spatial_shapes": torch.tensor([[3, 4], [2, 6]])}
    return _model(name, text_config=text, vision_config=vision), {**_words(), **patches, **shapes}


_MODELS: dict[str, tuple[str, Callable[[str], Built]]] = {
    "LlavaForConditionalGeneration": ("multimodal", _llava),
    "PaliGemmaForConditionalGeneration": ("multimodal", _paligemma),
    "Gemma3ForConditionalGeneration": ("multimodal", _gemma),
    "Idefics3ForConditionalGeneration": ("multimodal", _idefics),
    "Qwen2VLForConditionalGeneration": (
        "multimodal", partial(_qwen, embed_dim=32, mlp_ratio=2),
    ),
    "Qwen2_5_VLForConditionalGeneration": (
        "multimodal",
        partial(
            _qwen, out_hidden_size=32, intermediate_size=64, window_size=16,
            fullatt_block_indexes=[1],
        ),
    ),
    "Blip2ForConditionalGeneration": ("multimodal", _queried),
    "MllamaForConditionalGeneration": ("multimodal", _tiled),
    "Kosmos2Model": ("multimodal", _latent),
    "ViltModel": ("multimodal", _joined),
    "LxmertModel": ("multimodal", _crossed),
    "CLIPModel": ("multimodal", _pair),
    "Siglip2Model": ("multimodal", _ragged),
    "LayoutLMv3ForTokenClassification": ("document", _layout),
    "UdopForConditionalGeneration": ("document", _document),
    "Pix2StructForConditionalGeneration": ("document", _screen),
}  # fmt: skip
