"""Models of transformers for tasks on images and videos, in small sizes."""

from __future__ import annotations

# First, because importing transformers imports torchvision.
import benchmarks.zoo.torchvision_operators  # noqa: F401  # pyright: ignore[reportUnusedImport]  isort: skip

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
import transformers

from conformance.torch_models.entries import Built, Entry

T: Any = transformers
STAGES = ("stage1", "stage2", "stage3", "stage4")
LAYERS: Mapping[str, Any] = MappingProxyType({
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "num_queries": 7,
})  # fmt: skip
"""Configuration of a detector's encoder and decoder."""

ANCHORED: Mapping[str, Any] = MappingProxyType({
    "encoder_hidden_dim": 16, "encoder_in_channels": [16, 16, 16], "feat_strides": [8, 16, 32],
    "encoder_layers": 1, "encoder_ffn_dim": 32, "encoder_attention_heads": 2, "d_model": 16,
    "num_queries": 7, "decoder_in_channels": [16, 16, 16], "decoder_ffn_dim": 32,
    "num_feature_levels": 3, "decoder_layers": 2, "decoder_attention_heads": 2,
    "num_denoising": 0, "hidden_expansion": 1.0, "initializer_range": 0.3,
})  # fmt: skip
"""The same for those that select queries among pixels, whose scores would be equal with small
weights."""

MASKED: Mapping[str, Any] = MappingProxyType({
    "encoder_feedforward_dim": 32, "dim_feedforward": 32, "encoder_layers": 1, "decoder_layers": 3,
    "num_attention_heads": 2, "num_queries": 7, "num_labels": 4, "hidden_dim": 32,
})  # fmt: skip
"""The same for those that predict masks."""

WORDS: Mapping[str, Any] = MappingProxyType({
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
})  # fmt: skip
"""Configuration of a vision transformer."""


def task_models() -> Iterator[Entry]:
    """Detection, segmentation, depth, pose, matting, videos."""
    for name, (kind, make) in _MODELS.items():
        yield Entry(f"transformers/{name}", kind, partial(make, name))


def _images(side: int = 64, batch: int = 2) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(batch, 3, side, side)}


def _resnet(stages: Sequence[str] = STAGES[3:], config: Any = None) -> Any:
    return (config or T.ResNetConfig)(
        embedding_size=8, hidden_sizes=[8, 16, 16, 16], depths=[1] * 4, layer_type="basic",
        out_features=list(stages),
    )  # fmt: skip


def _swin(stages: Sequence[str] = STAGES) -> Any:
    return T.SwinConfig(
        image_size=64, embed_dim=8, depths=[1] * 4, num_heads=[1, 1, 2, 2], window_size=2,
        out_features=list(stages),
    )  # fmt: skip


def _model(name: str, **options: Any) -> Any:
    kind = getattr(transformers, name)
    return kind(kind.config_class(**options))


def _detector(name: str, **options: Any) -> Built:
    return _model(name, **{"backbone_config": _resnet(), **LAYERS, **options}), _images()


def _anchored(name: str) -> Built:
    body = _resnet(STAGES[1:], T.RTDetrResNetConfig)
    return _model(name, backbone_config=body, **ANCHORED), _images()


def _fine(name: str) -> Built:
    body = T.HGNetV2Config(
        stem_channels=[3, 8, 8], stage_in_channels=[8, 16, 16, 16], stage_mid_channels=[8] * 4,
        stage_out_channels=[16] * 4, stage_num_blocks=[1] * 4, stage_numb_of_layers=[2] * 4,
        hidden_sizes=[16] * 4, depths=[1] * 4, embedding_size=8, out_features=list(STAGES[1:]),
    )  # fmt: skip
    return _model(name, backbone_config=body, **ANCHORED), _images()


def _grounded(name: str) -> Built:
    text = T.BertConfig(vocab_size=99, max_position_embeddings=64, **WORDS)
    model = _model(
        name, backbone_config=_swin(STAGES[1:]), text_config=text, max_text_len=9, **LAYERS
    )
    words = torch.tensor([[90, 5, 7, 12, 9, 3, 8, 4, 12]]).repeat(2, 1)
    return model, {**_images(), "input_ids": words, "attention_mask": torch.ones_like(words)}


def _tokens(name: str) -> Built:
    model = _model(
        name, image_size=[64, 64], patch_size=16, num_detection_tokens=7,
        use_mid_position_embeddings=False, **WORDS,
    )  # fmt: skip
    return model, _images(96)


def _masks(name: str) -> Built:
    sizes = {"feature_size": 32, "mask_feature_size": 32}
    return _model(name, backbone_config=_swin(), **sizes, **MASKED), _images()


def _masks_of_detector(name: str) -> Built:
    body = T.DetrConfig(backbone_config=_resnet(), **LAYERS)
    sizes = {"fpn_feature_size": 32, "mask_feature_size": 32, "num_labels": 4}
    return _model(name, backbone_config=_swin(), decoder_config=body, **sizes), _images()


def _tasks(name: str) -> Built:
    model = _model(
        name, backbone_config=_swin(), conv_dim=32, mask_dim=32, text_encoder_width=32,
        text_encoder_num_layers=1, text_encoder_vocab_size=50, text_encoder_context_length=8,
        task_seq_len=8, query_dec_layers=1, use_task_norm=True, is_training=False, **MASKED,
    )  # fmt: skip
    return model, {**_images(), "task_inputs": torch.randn(2, 8)}


def _patches(name: str) -> Built:
    model = _model(
        name, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, image_size=64,
        patch_size=16, num_upscale_blocks=1, num_blocks=1, num_queries=5, num_labels=4,
    )  # fmt: skip
    return model, _images()


def _depth(name: str) -> Built:
    body = T.Dinov2Config(
        hidden_size=32, num_hidden_layers=4, num_attention_heads=4, image_size=70, patch_size=14,
        out_features=list(STAGES), reshape_hidden_states=False, apply_layernorm=True,
    )  # fmt: skip
    model = _model(
        name, backbone_config=body, reassemble_hidden_size=32, neck_hidden_sizes=[16] * 4,
        fusion_hidden_size=16, head_hidden_size=8,
    )  # fmt: skip
    return model, _images(70)


def _dense(name: str) -> Built:
    model = _model(
        name, **{**WORDS, "num_hidden_layers": 4}, image_size=64, patch_size=16,
        backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[16] * 4, fusion_hidden_size=16,
    )  # fmt: skip
    return model, _images()


def _pyramid(name: str) -> Built:
    body = T.ConvNextConfig(hidden_sizes=[8, 8, 16, 16], depths=[1] * 4, out_features=list(STAGES))
    model = _model(
        name, backbone_config=body, hidden_size=16, auxiliary_channels=8,
        auxiliary_in_channels=16, num_labels=4,
    )  # fmt: skip
    return model, _images(96)


def _matting(name: str) -> Built:
    body = T.VitDetConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=64, patch_size=16,
        num_channels=4, residual_block_indices=[1], window_block_indices=[0], window_size=2,
        use_relative_position_embeddings=True, out_features=["stage2"],
    )  # fmt: skip
    model = _model(
        name, backbone_config=body, hidden_size=32, fusion_hidden_sizes=[16, 8, 8, 8],
        convstream_hidden_sizes=[8, 8, 8],
    )  # fmt: skip
    return model, {"pixel_values": torch.randn(1, 4, 64, 64)}


def _pose(name: str) -> Built:
    body = T.VitPoseBackboneConfig(image_size=[64, 48], patch_size=[16, 16], num_experts=1, **WORDS)
    model = _model(name, backbone_config=body, num_labels=5, use_simple_decoder=False)
    return model, {"pixel_values": torch.randn(2, 3, 64, 48)}


def _prompted(name: str) -> Built:
    vision = {
        "hidden_size": 32, "output_channels": 16, "num_hidden_layers": 2, "mlp_dim": 64,
        "num_attention_heads": 4, "image_size": 64, "patch_size": 16, "window_size": 2,
        "global_attn_indexes": [1], "num_pos_feats": 8,
    }  # fmt: skip
    prompts = {"hidden_size": 16, "image_size": 64, "patch_size": 16, "mask_input_channels": 8}
    decoder = {
        "hidden_size": 16, "mlp_dim": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "iou_head_hidden_dim": 16, "attention_downsample_rate": 2,
    }  # fmt: skip
    parts = {"prompt_encoder_config": prompts, "mask_decoder_config": decoder}
    points = torch.tensor([[[[20.0, 30.0], [5.0, 9.0]]]])
    return _model(name, vision_config=vision, **parts), {**_images(64, 1), "input_points": points}


def _enlarged(name: str) -> Built:
    model = _model(
        name, image_size=16, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4,
        upscale=2,
    )  # fmt: skip
    return model, _images(16)


def _in_context(name: str) -> Built:
    model = _model(
        name, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=[64, 32],
        patch_size=8, merge_index=0, intermediate_hidden_state_indices=[1], mlp_dim=64,
        pretrain_image_size=32, decoder_hidden_size=8,
    )  # fmt: skip
    names = ("pixel_values", "prompt_pixel_values", "prompt_masks")
    return model, {each: torch.randn(1, 3, 32, 32) for each in names}


def _video(name: str, **options: Any) -> Built:
    model = _model(name, image_size=32, patch_size=8, num_frames=4, **WORDS, **options)
    return model, {"pixel_values": torch.randn(1, 4, 3, 32, 32)}


def _predicted(name: str) -> Built:
    model = _model(
        name, patch_size=8, crop_size=32, frames_per_clip=4, hidden_size=48,
        num_attention_heads=2, num_hidden_layers=2, pred_hidden_size=48,
        pred_num_attention_heads=2, pred_num_hidden_layers=1,
    )  # fmt: skip
    return model, {"pixel_values_videos": torch.randn(1, 4, 3, 32, 32)}


_SEVERAL = {
    "backbone_config": _resnet(STAGES[1:]), "num_feature_levels": 4, "with_box_refine": True,
    "two_stage": True, "two_stage_num_proposals": 7,
}  # fmt: skip
_WIDE = {
    "backbone_config": _resnet(STAGES), "d_model": 64, "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
}  # fmt: skip

_MODELS: dict[str, tuple[str, Callable[[str], Built]]] = {
    "DetrForObjectDetection": ("detection", _detector),
    "ConditionalDetrForObjectDetection": ("detection", _detector),
    "DabDetrForObjectDetection": ("detection", partial(_detector, hidden_size=32)),
    "TableTransformerForObjectDetection": ("detection", _detector),
    "DeformableDetrForObjectDetection": ("detection", partial(_detector, **_SEVERAL)),
    "RTDetrForObjectDetection": ("detection", _anchored),
    "RTDetrV2ForObjectDetection": ("detection", _anchored),
    "DFineForObjectDetection": ("detection", _fine),
    "GroundingDinoForObjectDetection": ("detection", _grounded),
    "YolosForObjectDetection": ("detection", _tokens),
    "DetrForSegmentation": ("segmentation", partial(_detector, **_WIDE)),
    "Mask2FormerForUniversalSegmentation": ("segmentation", _masks),
    "MaskFormerForInstanceSegmentation": ("segmentation", _masks_of_detector),
    "OneFormerForUniversalSegmentation": ("segmentation", _tasks),
    "EomtForUniversalSegmentation": ("segmentation", _patches),
    "UperNetForSemanticSegmentation": ("segmentation", _pyramid),
    "SamModel": ("segmentation", _prompted),
    "SegGptModel": ("segmentation", _in_context),
    "DepthAnythingForDepthEstimation": ("depth", _depth),
    "DPTForDepthEstimation": ("depth", _dense),
    "VitMatteForImageMatting": ("matting", _matting),
    "VitPoseForPoseEstimation": ("pose", _pose),
    "Swin2SRForImageSuperResolution": ("super-resolution", _enlarged),
    "VideoMAEForVideoClassification": ("video", _video),
    "TimesformerForVideoClassification": ("video", _video),
    "VivitForVideoClassification": ("video", partial(_video, tubelet_size=[2, 8, 8])),
    "VJEPA2Model": ("video", _predicted),
}
