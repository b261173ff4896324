"""Models of transformers for speech, audio, time series and control, in small sizes."""

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

WORDS: Mapping[str, Any] = MappingProxyType({
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
})  # fmt: skip
SERIES: Mapping[str, Any] = MappingProxyType({
    "prediction_length": 4, "context_length": 8, "lags_sequence": [1, 2], "num_time_features": 2,
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
})  # fmt: skip


def signal_models() -> Iterator[Entry]:
    """Speech, vocoders, codecs, time series, decisions."""
    for name, (kind, make) in _MODELS.items():
        yield Entry(f"transformers/{name}", kind, partial(make, name))


def _model(name: str, **options: Any) -> Any:
    kind = getattr(transformers, name)
    return kind(kind.config_class(**options))


def _words(batch: int = 1, count: int = 4) -> torch.Tensor:
    return torch.randint(3, 40, (batch, count))


def _translated(name: str, **options: Any) -> Built:
    sizes = {"hidden_size": 32, "vocab_size": 99, "max_position_embeddings": 64}
    layers = {
        f"{part}_{what}": number
        for what, number in (("layers", 2), ("ffn_dim", 64), ("attention_heads", 4))
        for part in ("encoder", "decoder", "t2u_encoder", "t2u_decoder")
    }
    model = _model(
        name, speech_encoder_layers=2, speech_encoder_attention_heads=4,
        speech_encoder_intermediate_size=64, feature_projection_input_dim=16,
        adaptor_kernel_size=4, adaptor_stride=4, max_source_positions=64, num_adapter_layers=1,
        t2u_vocab_size=50, pad_token_id=0, **sizes, **layers, **options,
    )  # fmt: skip
    return model, {"input_features": torch.randn(1, 32, 16), "decoder_input_ids": _words()}


def _spoken(name: str) -> Built:
    model = _model(
        name, vocab_size=99, hidden_size=32, encoder_layers=2, encoder_attention_heads=4,
        encoder_ffn_dim=64, decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=64,
        num_mel_bins=8, speech_decoder_prenet_units=16, speech_decoder_prenet_dropout=0.0,
        speaker_embedding_dim=12, speech_decoder_postnet_units=16, max_speech_positions=50,
        max_text_positions=50,
    )  # fmt: skip
    heard = {"decoder_input_values": torch.randn(1, 6, 8), "speaker_embeddings": torch.randn(1, 12)}
    return model, {"input_ids": _words(1, 7), **heard}


def _vocoder(name: str) -> Built:
    model = _model(
        name, model_in_dim=8, upsample_initial_channel=16, upsample_rates=[4, 2],
        upsample_kernel_sizes=[8, 4], resblock_kernel_sizes=[3, 5],
        resblock_dilation_sizes=[[1, 3], [1, 3]],
    )  # fmt: skip
    return model, {"spectrogram": torch.randn(1, 12, 8)}


def _of_noise(name: str) -> Built:
    model = _model(
        name, model_in_channels=8, model_hidden_channels=8, num_mel_bins=10,
        resblock_kernel_sizes=[3], resblock_stride_sizes=[4], resblock_dilation_sizes=[[1, 3]],
        kernel_predictor_hidden_channels=8,
    )  # fmt: skip
    noise = {"noise_sequence": torch.randn(1, 10, 8)}
    return model, {"input_features": torch.randn(1, 10, 10), **noise}


def _adapted(name: str) -> Built:
    model = _model(
        name, vocab_size=30, feature_projection_input_dim=16, add_adapter=True,
        num_adapter_layers=1, **WORDS,
    )  # fmt: skip
    return model, {"input_features": torch.randn(2, 20, 16)}


def _subsampled(name: str) -> Built:
    encoder = {
        **WORDS, "num_mel_bins": 16, "subsampling_conv_channels": 8,
        "max_position_embeddings": 100,
    }  # fmt: skip
    model = _model(name, vocab_size=30, encoder_config=encoder, pad_token_id=0)
    return model, {"input_features": torch.randn(1, 64, 16)}


def _paired(name: str) -> Built:
    text = {**WORDS, "vocab_size": 99, "max_position_embeddings": 64, "projection_dim": 32}
    audio = {
        "patch_embeds_hidden_size": 16, "depths": [1, 1], "num_attention_heads": [2, 2],
        "window_size": 2, "spec_size": 32, "num_mel_bins": 8, "patch_size": 4,
        "patch_stride": [4, 4], "hidden_size": 32, "projection_dim": 32, "num_classes": 5,
    }  # fmt: skip
    model = _model(name, text_config=text, audio_config=audio, projection_dim=32)
    return model, {"input_ids": _words(2, 6), "input_features": torch.randn(2, 1, 60, 8)}


def _played(name: str) -> Built:
    model = _model(
        name, vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        ffn_dim=64, num_codebooks=4, max_position_embeddings=64, pad_token_id=49,
    )  # fmt: skip
    return model, {"input_ids": _words(4, 6), "encoder_hidden_states": torch.randn(1, 5, 32)}


def _codec(name: str) -> Built:
    model = _model(
        name, encoder_hidden_size=4, decoder_hidden_size=64, hidden_size=64, codebook_dim=4,
        codebook_size=32, n_codebooks=3, downsampling_ratios=[2, 4], upsampling_ratios=[4, 2],
    )  # fmt: skip
    return model, {"input_values": torch.randn(1, 1, 320)}


def _recurrent_codec(name: str) -> Built:
    model = _model(
        name, hidden_size=16, num_filters=4, codebook_dim=16, codebook_size=32,
        upsampling_ratios=[4, 2],
    )  # fmt: skip
    mask = torch.ones(1, 320, dtype=torch.long)
    return model, {"input_values": torch.randn(1, 1, 320), "padding_mask": mask}


def _foreseen(name: str, **options: Any) -> Built:
    inputs = {
        "past_values": torch.randn(2, 10), "past_time_features": torch.randn(2, 10, 2),
        "past_observed_mask": torch.ones(2, 10), "future_values": torch.randn(2, 4),
        "future_time_features": torch.randn(2, 4, 2),
    }  # fmt: skip
    return _model(name, **SERIES, **options), inputs


def _patched_series(name: str) -> Built:
    model = _model(
        name, patch_length=4, context_length=16, horizon_length=8, hidden_size=32,
        intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, head_dim=8,
    )  # fmt: skip
    rest = {"past_values_padding": torch.zeros(2, 16), "freq": torch.zeros(2, 1, dtype=torch.long)}
    return model, {"past_values": torch.randn(2, 16), **rest}


def _decisions(name: str) -> Built:
    model = _model(
        name, state_dim=5, act_dim=3, hidden_size=32, max_ep_len=20, n_layer=2, n_head=4,
        n_inner=64, n_positions=64,
    )  # fmt: skip
    inputs = {
        "states": torch.randn(1, 4, 5), "actions": torch.randn(1, 4, 3),
        "rewards": torch.randn(1, 4, 1), "returns_to_go": torch.randn(1, 4, 1),
        "timesteps": torch.arange(4).unsqueeze(0), "attention_mask": torch.ones(1, 4),
    }  # fmt: skip
    return model, inputs


def _latents(name: str) -> Built:
    model = _model(
        name, num_latents=8, d_latents=32, d_model=16, num_blocks=1, num_self_attends_per_block=2,
        num_self_attention_heads=4, num_cross_attention_heads=4,
    )  # fmt: skip
    return model, {"inputs": torch.randn(2, 10, 16)}


_CHUNKS = {
    "speech_encoder_chunk_size": 8, "left_max_position_embeddings": 8,
    "right_max_position_embeddings": 2,
}  # fmt: skip

_MODELS: dict[str, tuple[str, Callable[[str], Built]]] = {
    "SeamlessM4TForSpeechToText": ("speech", _translated),
    "SeamlessM4Tv2ForSpeechToText": ("speech", partial(_translated, **_CHUNKS)),
    "SpeechT5ForTextToSpeech": ("speech", _spoken),
    "Wav2Vec2BertForCTC": ("speech", _adapted),
    "ParakeetForCTC": ("speech", _subsampled),
    "SpeechT5HifiGan": ("vocoder", _vocoder),
    "UnivNetModel": ("vocoder", _of_noise),
    "ClapModel": ("audio", _paired),
    "MusicgenForCausalLM": ("audio", _played),
    "DacModel": ("audio codec", _codec),
    "EncodecModel": ("audio codec", _recurrent_codec),
    "InformerModel": ("time series", partial(_foreseen, attention_type="full")),
    "TimeSeriesTransformerForPrediction": ("time series", _foreseen),
    "AutoformerModel": ("time series", partial(_foreseen, label_length=4, moving_average=3)),
    "TimesFmModel": ("time series", _patched_series),
    "DecisionTransformerModel": ("decisions", _decisions),
    "PerceiverModel": ("encoder", _latents),
}
