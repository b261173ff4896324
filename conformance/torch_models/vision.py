"""Tested models of timm and torchvision, each with the smallest image that it accepts."""

from __future__ import annotations

# First, because importing timm imports torchvision.
import benchmarks.zoo.torchvision_operators  # noqa: F401  # pyright: ignore[reportUnusedImport]  isort: skip

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import timm
import torch
import torchvision

from conformance.torch_models.entries import Built, Entry, NotBuilt

SMALL = ("test_", "atto", "femto", "pico", "nano", "_xxt", "tiny", "_mini", "_xxs", "_xs", "small",
         "_t_", "_s_", "18", "26", "32", "b0", "_050", "_s", "_m", "_b")  # fmt: skip
"""Substrings of the names of small models, the smallest first."""

WORDS = re.compile(
    r"_(x*large|huge|giant\w*|gigantic|base|x*small|x*tiny|mediumd?|nano|pico|femto|atto|d?little|"
    r"mini|betwixt|dp?wee|[wp]*wee|lite|intern\d+m|so\d+m)(?=_|$)|^test_"
)
"""Size indicators in names."""

SIDES = (64, 96, 128)
"""Image sizes tried before a model's own."""


DEEP = 80
"""Number of modules from which a model is built with fewer blocks, if its configuration allows
it."""

SHORTER: Sequence[dict[str, Any]] = (
    {"depth": 4}, {"depths": (1, 1, 1, 1)}, {"depths": (1, 1, 2, 1)}, {"depths": (1, 1, 1)},
    {"layers": (1, 1, 1, 1)}, {"num_layers": 4}, {"stage_depths": (1, 1, 1, 1)},
)  # fmt: skip
"""Configuration fields for the number of blocks."""


def timm_models() -> Iterator[Entry]:
    """The smallest of each module, then that of each family of names with a common prefix in
    one."""
    families: dict[tuple[str, str], list[str]] = {}
    for module in timm.list_modules():
        for name in timm.list_models(module=module):
            letters = re.match(r"[a-z]+(_[a-z]{3,})?", WORDS.sub("", name))
            families.setdefault((module, letters.group() if letters else name), []).append(name)
    smallest: dict[str, list[str]] = {}
    for (module, _), names in families.items():
        smallest.setdefault(module, []).append(min(names, key=_size_of))
    found = {module: sorted(names, key=_size_of) for module, names in smallest.items()}
    ordered = [(names[0], m) for m, names in found.items()]
    ordered += [(name, m) for m, names in found.items() for name in names[1:]]
    yield from (Entry(f"timm/{name}", m, partial(_timm, name)) for name, m in ordered)


def _size_of(name: str) -> tuple[int, int, str]:
    whole = (rf"(?<!\d){hint}(?!\d)" if hint.isdigit() else hint for hint in SMALL)
    hints = (re.search(hint, name) for hint in whole)
    found = next((i for i, hint in enumerate(hints) if hint), len(SMALL))
    return found, len(name), name


def _timm(name: str) -> Built:
    config = timm.get_pretrained_cfg(name)
    channels, side, _ = (3, 224, 224) if config is None else config.input_size
    make = partial(timm.create_model, name, pretrained=False)
    if _modules(make) > DEEP:
        make = partial(make, **_shortest(make))
    if config is not None and config.fixed_input_size:
        sized = ((partial(make, img_size=small), small) for small in SIDES)
        return _first((*sized, (make, side)), channels)
    model = make()
    return _first(((lambda: model, small) for small in (*SIDES, side)), channels)


def _shortest(make: Callable[..., torch.nn.Module]) -> dict[str, Any]:
    """Options for fewer blocks, the first that the library accepts for the model."""
    whole = _modules(make)
    for options in SHORTER:
        try:
            if _modules(partial(make, **options)) < whole:
                return options
        except Exception:  # the model has no such option
            continue
    return {}


def _modules(make: Callable[[], torch.nn.Module]) -> int:
    """The number of modules of a model, built without weights."""
    with torch.device("meta"):
        return sum(1 for _ in make().modules())


def _first(tries: Iterable[tuple[Callable[[], Any], int]], channels: int) -> Built:
    """The first model that accepts an image of the size given with it."""
    problem: Exception | None = None
    for make, side in tries:
        image = torch.randn(1, channels, side, side)
        try:
            model: torch.nn.Module = make().eval()
            with torch.no_grad():
                model(image)
        except Exception as error:  # models may reject sizes in any way
            problem = error
        else:
            return model, {"x": image}
    raise NotBuilt(f"it takes no image: {problem}") from problem


TORCHVISION = {
    "classification": torchvision.models,
    "segmentation": torchvision.models.segmentation,
    "video": torchvision.models.video,
    "optical flow": torchvision.models.optical_flow,
    "detection": torchvision.models.detection,
}
"""Modules of models, by task."""

LARGE = re.compile(
    r"vit_(l|h)|_(128gf|32gf|16gf|8gf|large|b[3-7]|l|b|v1_b)$|152|101|161|201|vgg1[369]|vgg11_bn"
    r"|resnet50_fpn_v2|swin3d_(s|b)|raft_large|convnext_(base|small)|swin(_v2)?_(s|b)$|wide_|_32x8d|_64x4d"
)


def torchvision_models() -> Iterator[Entry]:
    for kind, module in TORCHVISION.items():
        for name in torchvision.models.list_models(module=module):
            if not LARGE.search(name) or name.endswith("v3_large"):
                yield Entry(f"torchvision/{name}", kind, partial(_torchvision, name, kind))
    for name in ("resnet18", "mobilenet_v3_small"):
        yield Entry(f"torchvision/{name}_fpn", "detection", partial(_pyramid, name))


def _torchvision(name: str, kind: str) -> Built:
    options: dict[str, Any] = {"weights": None}
    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = False
    if kind in ("segmentation", "detection"):
        options["weights_backbone"] = None
    model = torchvision.models.get_model(name, **options)
    match kind:
        case "video":
            side = 224 if name in ("mvit_v2_s", "s3d") else 64
            return model, {"x": torch.randn(1, 3, 16, side, side)}
        case "optical flow":
            images = torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128)
            return _Flow(model), dict(zip(("image1", "image2"), images, strict=True))
        case "detection":
            return _Detector(model), {"image": torch.rand(3, 96, 96)}
        case _:
            side = 224 if "vit" in name else 96
            first = next(iter(inspect.signature(model.forward).parameters))
            return model, {first: torch.randn(1, 3, side, side)}


class _Flow(torch.nn.Module):
    """Two refinement steps of an optical flow model."""

    def __init__(self, model: Callable[..., Any]) -> None:
        super().__init__()
        self.model = model

    def forward(self, image1: torch.Tensor, image2: torch.Tensor) -> Any:
        return self.model(image1, image2, num_flow_updates=2)


class _Detector(torch.nn.Module):
    """A detector, whose input is a list of images."""

    def __init__(self, model: Callable[..., Any]) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: torch.Tensor) -> Any:
        return self.model([image])


def _pyramid(name: str) -> Built:
    module: Any = torchvision.models.detection.backbone_utils
    make = module.mobilenet_backbone if "mobile" in name else module.resnet_fpn_backbone
    options = {"fpn": True} if "mobile" in name else {}
    model = make(backbone_name=name, weights=None, **options)
    return model, {"x": torch.randn(1, 3, 96, 96)}
