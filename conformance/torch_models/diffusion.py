"""Tested models of diffusers, in small sizes."""

from __future__ import annotations

# First, because importing diffusers imports torchvision.
import benchmarks.zoo.torchvision_operators  # noqa: F401  # pyright: ignore[reportUnusedImport]  isort: skip

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import diffusers
import torch

from conformance.torch_models.entries import Built, Entry


def diffusers_models() -> Iterator[Entry]:
    """UNets, autoencoders and transformers of diffusion."""
    for name, (kind, make) in _MODELS.items():
        yield Entry(f"diffusers/{name}", kind, partial(make, name))


def _unet(name: str) -> Built:
    model = getattr(diffusers, name)(
        block_out_channels=(16, 32), down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"), norm_num_groups=8, attention_head_dim=8,
        layers_per_block=1, sample_size=16,
    )  # fmt: skip
    return model, {"sample": torch.randn(1, 3, 16, 16), "timestep": torch.tensor([7])}


def _conditioned(name: str) -> Built:
    model = getattr(diffusers, name)(
        block_out_channels=(16, 32), down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), norm_num_groups=8, layers_per_block=1,
        cross_attention_dim=24, attention_head_dim=4, sample_size=16,
    )  # fmt: skip
    inputs = {"sample": torch.randn(2, 4, 16, 16), "timestep": torch.tensor([7, 3])}
    return model, {**inputs, "encoder_hidden_states": torch.randn(2, 5, 24)}


def _autoencoder(name: str) -> Built:
    model = getattr(diffusers, name)(
        block_out_channels=(16, 32), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=8, latent_channels=4,
    )  # fmt: skip
    return model, {"sample": torch.randn(1, 3, 32, 32)}


def _quantized(name: str) -> Built:
    model = getattr(diffusers, name)(
        block_out_channels=(16, 32), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=8, num_vq_embeddings=32,
    )  # fmt: skip
    return model, {"sample": torch.randn(1, 3, 32, 32)}


def _small_autoencoder(name: str) -> Built:
    model = getattr(diffusers, name)(
        encoder_block_out_channels=(16, 16), decoder_block_out_channels=(16, 16),
        num_encoder_blocks=(1, 2), num_decoder_blocks=(2, 1),
    )  # fmt: skip
    return model, {"sample": torch.rand(1, 3, 32, 32)}


def _dit(name: str) -> Built:
    model = getattr(diffusers, name)(
        num_attention_heads=4, attention_head_dim=8, in_channels=4, out_channels=8, num_layers=2,
        sample_size=16, patch_size=2, num_embeds_ada_norm=10, norm_num_groups=8,
    )  # fmt: skip
    inputs = {"hidden_states": torch.randn(2, 4, 16, 16), "timestep": torch.tensor([7, 3])}
    return model, {**inputs, "class_labels": torch.tensor([1, 4])}


def _pixart(name: str) -> Built:
    model = getattr(diffusers, name)(
        num_attention_heads=4, attention_head_dim=8, in_channels=4, out_channels=8, num_layers=2,
        sample_size=16, patch_size=2, cross_attention_dim=32, caption_channels=24,
        norm_type="ada_norm_single", use_additional_conditions=False,
    )  # fmt: skip
    inputs = {"hidden_states": torch.randn(2, 4, 16, 16), "timestep": torch.tensor([7, 3])}
    return model, {**inputs, "encoder_hidden_states": torch.randn(2, 5, 24)}


def _joint(name: str) -> Built:
    model = getattr(diffusers, name)(
        sample_size=16, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=8,
        num_attention_heads=4, joint_attention_dim=24, caption_projection_dim=32,
        pooled_projection_dim=20, out_channels=4,
    )  # fmt: skip
    inputs = {"hidden_states": torch.randn(1, 4, 16, 16), "timestep": torch.tensor([7])}
    words = {"encoder_hidden_states": torch.randn(1, 5, 24)}
    return model, {**inputs, **words, "pooled_projections": torch.randn(1, 20)}


def _flux(name: str) -> Built:
    model = getattr(diffusers, name)(
        patch_size=1, in_channels=8, num_layers=1, num_single_layers=1, attention_head_dim=16,
        num_attention_heads=2, joint_attention_dim=24, pooled_projection_dim=20,
        axes_dims_rope=(4, 4, 8),
    )  # fmt: skip
    inputs = {"hidden_states": torch.randn(1, 16, 8), "timestep": torch.tensor([0.5])}
    words = {"encoder_hidden_states": torch.randn(1, 5, 24)}
    places = {"img_ids": torch.rand(16, 3), "txt_ids": torch.rand(5, 3)}
    return model, {**inputs, **words, "pooled_projections": torch.randn(1, 20), **places}


_MODELS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "UNet2DModel": ("UNet", _unet),
    "UNet2DConditionModel": ("UNet", _conditioned),
    "AutoencoderKL": ("autoencoder", _autoencoder),
    "VQModel": ("autoencoder", _quantized),
    "AutoencoderTiny": ("autoencoder", _small_autoencoder),
    "DiTTransformer2DModel": ("transformer", _dit),
    "PixArtTransformer2DModel": ("transformer", _pixart),
    "SD3Transformer2DModel": ("transformer", _joint),
    "FluxTransformer2DModel": ("transformer", _flux),
}
