"""The engines that can be compared: each has a loader in a separate module.

Loaders are named, not imported, because a worker must load one engine only: its memory is measured.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

Arrays = Mapping[str, np.ndarray]
Run = Callable[[Arrays], Arrays]
Load = Callable[[Path, int], Run]
"""Maps a model file and a number of threads to a function from inputs by name to outputs by
name."""

LOADERS: Mapping[str, tuple[str, str]] = {
    "modelcc": ("benchmarks.peers.modelcc", "load"),
    "modelcc-strict": ("benchmarks.peers.modelcc", "load"),
    "onnxruntime": ("benchmarks.peers.onnxruntime", "load"),
    "openvino": ("benchmarks.peers.openvino", "load_f32"),
    "openvino-default": ("benchmarks.peers.openvino", "load_default"),
    "torch": ("benchmarks.peers.torch", "load"),
    "torch-compile": ("benchmarks.peers.torch", "load_compiled"),
}

PACKAGES: Mapping[str, str] = {
    "openvino-default": "openvino",
    "torch-compile": "torch",
}
"""Distribution of a peer, if it differs from its name."""

DEFAULT = ("modelcc", "modelcc-strict", "onnxruntime", "openvino", "openvino-default")
"""Engines that are fast enough to be compared by default."""

OURS, STRICT = "modelcc", "modelcc-strict"
"""modelcc by default, and without Winograd's and Strassen's algorithms, like most others."""

COMPILED: Mapping[str, str] = {OURS: "standard", STRICT: "strict"}
"""Engines that load the artifact compiled by `benchmarks.compilation`, with its accuracy."""

LOWERED = frozenset({"openvino-default"})
"""Peers that may compute in less than f32 by default."""


def loader(name: str) -> Load:
    """Imports the engine and returns its loader; ImportError where it is not installed."""
    module, function = LOADERS[name]
    return getattr(importlib.import_module(module), function)
