"""The list of models the zoo can make. Needs no deep learning framework."""

from __future__ import annotations

import re

from benchmarks.zoo.records import BATCH, Exporter, Family, Input, Integers, Model


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
    name: str, layers: int, heads: int, vocabulary: int, exporter: Exporter
) -> tuple[Model, Model]:
    """Prefill of 64 tokens, and one token after 128 cached ones; heads are 64 wide."""
    family: Family = "transformers"
    past = tuple(
        Input(part, (BATCH, heads, 128, 64)) for part in _cache_names("past_key_values", layers)
    )
    present = ("logits", *_cache_names("present", layers))
    tokens, step = (_tokens(64, vocabulary),), (_tokens(1, vocabulary), *past)
    prefill = Model(f"{name}_prefill", family, name, tokens, ("logits",), exporter)
    return prefill, Model(f"{name}_decode", family, f"{name}_decode", step, present, exporter)


def _timm(architecture: str, exporter: Exporter = "torchscript") -> Model:
    return Model(architecture, "timm", architecture, _image(3, 224, 224), ("logits",), exporter)


MODELS: tuple[Model, ...] = (
    _timm("resnet50"),
    _timm("mobilenetv2_100"),
    Model("mlp", "layers", "mlp", _vector(784)),
    Model("mnist_cnn", "layers", "mnist_cnn", _image(1, 28, 28)),
    Model("ds_cnn", "layers", "ds_cnn", _image(1, 49, 10)),
    Model("autoencoder", "layers", "autoencoder", _vector(640)),
    Model("bert_base", "transformers", "bert_base", _masked(128, 30522), ("last_hidden_state",)),
    _timm("mobilenetv3_large_100"),
    _timm("efficientnet_b0"),
    Model("lstm", "layers", "lstm", (Input("input", (BATCH, 64, 128)),)),
    Model("unet", "layers", "unet", _image(3, 256, 256)),
    _timm("vgg16"),
    _timm("densenet121"),
    _timm("convnext_tiny"),
    _timm("vit_base_patch16_224"),
    _timm("swin_tiny_patch4_window7_224", "dynamo"),
    Model("yolov8n", "layers", "yolov8n", _image(3, 640, 640)),
    Model("distilbert", "transformers", "distilbert", _masked(128, 30522), ("last_hidden_state",)),
    *_decoder("gpt2", layers=12, heads=12, vocabulary=50257, exporter="torchscript"),
    *_decoder("llama", layers=16, heads=4, vocabulary=32000, exporter="dynamo"),
)


STANDARD = (*(model.name for model in MODELS), "resnet50_b8", "bert_base_b8")
"""File stems of a complete comparison."""

SHORT = (
    "mlp", "autoencoder", "ds_cnn", "mnist_cnn", "lstm", "mobilenetv2_100", "efficientnet_b0",
    "resnet50", "distilbert",
)  # fmt: skip
"""File stems of one that takes a few minutes."""


def variant(stem: str) -> tuple[Model, int | None]:
    """Model and batch of a file stem: `resnet50`, `resnet50_b8`, `resnet50_dynamic` (None)."""
    name, dynamic, _ = stem.partition("_dynamic")
    if dynamic:
        return find(name), None
    found = re.fullmatch(r"(.+)_b(\d+)", stem)
    if found is None or any(model.name == stem for model in MODELS):
        return find(stem), 1
    return find(found[1]), int(found[2])


def find(name: str) -> Model:
    """The model called `name`; KeyError names the ones there are."""
    for model in MODELS:
        if model.name == name:
            return model
    known = ", ".join(model.name for model in MODELS)
    raise KeyError(f"the zoo has no model {name!r}; it has {known}")


def feeds(name: str, seed: int = 0, batch: int = 1) -> dict[str, object]:
    """Random inputs of the model called `name`, by input name."""
    return dict(find(name).feeds(seed, batch))
