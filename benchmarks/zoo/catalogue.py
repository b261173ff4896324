"""The list of models in the zoo.  Needs no deep learning framework."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from benchmarks.zoo.records import BATCH, Exporter, Family, Input, Integers, Model


@dataclass(frozen=True)
class Size:
    """Upper bounds of image sides in pixels, tokens of a text, layers of a transformer, and a
    decoder's vocabulary."""

    pixels: int
    tokens: int
    layers: int
    words: int


WHOLE = Size(pixels=640, tokens=128, layers=16, words=50257)

LITTLE = Size(pixels=64, tokens=16, layers=2, words=32003)
"""The vocabulary is limited by its table on any device: WebGPU allows 128 MiB per tensor.

A prime number: like GPT-2's, no tile divides it."""


def _image(channels: int, height: int, width: int) -> tuple[Input, ...]:
    return (Input("input", (BATCH, channels, height, width)),)


def _vector(size: int) -> tuple[Input, ...]:
    return (Input("input", (BATCH, size)),)


def _tokens(length: int, vocabulary: int) -> Input:
    return Input("input_ids", (BATCH, length), "int64", Integers(0, vocabulary))


def _masked(length: int, vocabulary: int) -> tuple[Input, ...]:
    mask = Input("attention_mask", (BATCH, length), "int64", Integers(0, 2))
    return (_tokens(length, vocabulary), mask)


def _cache_names(prefix: str, layers: int) -> tuple[str, ...]:
    return tuple(f"{prefix}.{i}.{part}" for i in range(layers) for part in ("key", "value"))


def _decoder(
    name: str, size: Size, layers: int, heads: int, vocabulary: int, exporter: Exporter
) -> tuple[Model, Model]:
    """Prefill of 64 tokens, and one token after 128 cached ones; heads are 64 wide."""
    family: Family = "transformers"
    layers, cached = min(layers, size.layers), min(128, size.tokens)
    vocabulary = min(vocabulary, size.words)
    past = tuple(
        Input(part, (BATCH, heads, cached, 64)) for part in _cache_names("past_key_values", layers)
    )
    present = ("logits", *_cache_names("present", layers))
    tokens, step = (_tokens(min(64, size.tokens), vocabulary),), (_tokens(1, vocabulary), *past)
    prefill = Model(f"{name}_prefill", family, name, tokens, ("logits",), exporter, layers)
    decode = Model(f"{name}_decode", family, f"{name}_decode", step, present, exporter, layers)
    return prefill, decode


def _encoder(name: str, size: Size, layers: int) -> Model:
    inputs, layers = _masked(min(128, size.tokens), 30522), min(layers, size.layers)
    outputs = ("last_hidden_state",)
    return Model(name, "transformers", name, inputs, outputs, layers=layers)


def _timm(architecture: str, size: Size, exporter: Exporter = "torchscript") -> Model:
    side = min(224, size.pixels)
    return Model(architecture, "timm", architecture, _image(3, side, side), ("logits",), exporter)


def _pixels(name: str, side: int) -> Model:
    return Model(name, "layers", name, _image(3, side, side))


def _models(size: Size) -> tuple[Model, ...]:
    return (
        _timm("resnet50", size),
        _timm("mobilenetv2_100", size),
        Model("mlp", "layers", "mlp", _vector(784)),
        Model("mnist_cnn", "layers", "mnist_cnn", _image(1, 28, 28)),
        Model("ds_cnn", "layers", "ds_cnn", _image(1, 49, 10)),
        Model("autoencoder", "layers", "autoencoder", _vector(640)),
        _encoder("bert_base", size, layers=12),
        _timm("mobilenetv3_large_100", size),
        _timm("efficientnet_b0", size),
        Model("lstm", "layers", "lstm", (Input("input", (BATCH, 64, 128)),)),
        _pixels("unet", min(256, size.pixels)),
        _timm("vgg16", WHOLE),  # fewer pixels change the architecture
        _timm("densenet121", size),
        _timm("convnext_tiny", size),
        _timm("vit_base_patch16_224", size),
        _timm("swin_tiny_patch4_window7_224", size, "dynamo"),
        _pixels("yolov8n", min(640, size.pixels)),
        _encoder("distilbert", size, layers=6),
        *_decoder("gpt2", size, layers=12, heads=12, vocabulary=50257, exporter="torchscript"),
        *_decoder("llama", size, layers=16, heads=4, vocabulary=32000, exporter="dynamo"),
    )


MODELS = _models(WHOLE)

SMALL = tuple(
    replace(less, name=f"{less.name}_small")
    for less, whole in zip(_models(LITTLE), MODELS, strict=True)
    if less != whole
)
"""Reduced versions of large :data:`MODELS`, for slow devices."""

LONG = (
    replace(
        next(model for model in MODELS if model.name == "llama_prefill"),
        name="llama_prefill_512",
        inputs=(_tokens(512, 32000),),
    ),
)
"""A longer variant, for fast devices."""

QUICK = (
    *(model.name for model in SMALL), "mlp", "mnist_cnn", "ds_cnn", "autoencoder", "lstm",
)  # fmt: skip
"""File stems of models that such a device runs in a minute each."""


STANDARD = (*(model.name for model in MODELS), "resnet50_b8", "bert_base_b8")
"""File stems of a complete comparison."""

SHORT = (
    "mlp", "autoencoder", "ds_cnn", "mnist_cnn", "lstm", "mobilenetv2_100", "efficientnet_b0",
    "resnet50", "distilbert",
)  # fmt: skip
"""File stems of a comparison that takes a few minutes."""


def variant(stem: str) -> tuple[Model, int | None]:
    """Model and batch of a file stem: `resnet50`, `resnet50_b8`, `resnet50_dynamic` (None)."""
    name, dynamic, _ = stem.partition("_dynamic")
    if dynamic:
        return find(name), None
    found = re.fullmatch(r"(.+)_b(\d+)", stem)
    if found is None or any(model.name == stem for model in (*MODELS, *SMALL, *LONG)):
        return find(stem), 1
    return find(found[1]), int(found[2])


def find(name: str) -> Model:
    """The model called `name`; KeyError lists the available ones."""
    for model in (*MODELS, *SMALL, *LONG):
        if model.name == name:
            return model
    known = ", ".join(model.name for model in MODELS)
    raise KeyError(f"the zoo has no model {name!r}; it has {known}")


def feeds(name: str, seed: int = 0, batch: int = 1) -> dict[str, object]:
    """Random inputs of the model called `name`, by input name."""
    return dict(find(name).feeds(seed, batch))
