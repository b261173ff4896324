"""From a record to a torch module with plausible weights."""

from __future__ import annotations

# First, because importing timm or transformers imports torchvision.
import benchmarks.zoo.torchvision_operators  # noqa: F401  # pyright: ignore[reportUnusedImport]  isort: skip

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from benchmarks.zoo.language import transformer
from benchmarks.zoo.layers import autoencoder, ds_cnn, lstm, mlp, mnist_cnn
from benchmarks.zoo.records import Model
from benchmarks.zoo.unet import unet
from benchmarks.zoo.vision import classifier
from benchmarks.zoo.yolo import yolov8n

LAYERS = {
    "mlp": mlp,
    "mnist_cnn": mnist_cnn,
    "ds_cnn": ds_cnn,
    "autoencoder": autoencoder,
    "lstm": lstm,
    "unet": unet,
}

CALIBRATION_BATCH = 4


def build(model: Model, seed: int = 0) -> nn.Module:
    """The module of `model` in evaluation mode; the same seed gives the same weights."""
    torch.manual_seed(seed)
    module = _architecture(model).eval()
    _spread(module)
    _calibrate(module, example(model, seed, CALIBRATION_BATCH))
    return module


def example(model: Model, seed: int = 0, batch: int = 1) -> tuple[Tensor, ...]:
    """The model's random feeds as positional torch arguments."""
    return tuple(torch.from_numpy(value) for value in model.feeds(seed, batch).values())


def _architecture(model: Model) -> nn.Module:
    match model.family:
        case "timm":
            return classifier(model.architecture, _side(model))
        case "transformers":
            return transformer(model)
        case "layers" if model.architecture == "yolov8n":
            return yolov8n(_side(model))
        case "layers":
            return LAYERS[model.architecture]()


def _side(model: Model) -> int:
    return model.inputs[0].sizes(1)[-1]


@torch.no_grad()
def _spread(module: nn.Module) -> None:
    """Moves scales and shifts away from their initial one and zero.

    Initial values hide mistakes (a forgotten shift, a residual branch scaled by zero), and a
    trained model has none of them.
    """
    for name, parameter in module.named_parameters():
        if parameter.dim() > 1:
            continue
        if name.endswith("gamma"):
            nn.init.normal_(parameter, 0.5, 0.1)
        elif name.endswith("weight"):
            nn.init.normal_(parameter, 1.0, 0.1)
        else:
            nn.init.normal_(parameter, 0.0, 0.05)


@torch.no_grad()
def _calibrate(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Sets the batch-norm statistics to those of random inputs, so that activations stay in
    range."""
    norms = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
    if not norms:
        return
    for layer in norms:
        layer.train()
        layer.momentum = 1.0
    module(*inputs)
    for layer in norms:
        layer.eval()
