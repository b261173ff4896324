"""Checks that two TFLite files compute the same, by LiteRT's reference kernels if installed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array

_PACKAGE = "ai_edge_litert"


def compared_by_litert(first: bytes, second: bytes) -> str:
    """A message that random inputs give bit-identical results, or why that is unknown.

    :class:`ModelError` if results differ.
    """
    if find_spec(_PACKAGE) is None:
        return "not compared: ai-edge-litert is not installed"
    module: Any = import_module(f"{_PACKAGE}.interpreter")
    kernels = module.OpResolverType.BUILTIN_REF
    ready: list[Any] = []
    for data in (first, second):
        found = module.Interpreter(model_content=data, experimental_op_resolver_type=kernels)
        try:
            found.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            return f"not compared: LiteRT refuses it ({error})"
        ready.append(found)
    for a, b in zip(*_results(ready), strict=True):
        if a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes():
            differing = int((a != b).sum()) if a.shape == b.shape else a.size
            raise ModelError(f"the rewritten model differs in {differing} of {a.size} elements")
    return "bit by bit the results of LiteRT's reference kernels for the given model"


def _results(ready: list[Any]) -> list[list[Array]]:
    found: list[list[Array]] = []
    for engine in ready:
        rng = np.random.default_rng(0)
        for detail in engine.get_input_details():
            engine.set_tensor(detail["index"], _random(rng, detail["shape"], detail["dtype"]))
        engine.invoke()
        found.append([engine.get_tensor(d["index"]) for d in engine.get_output_details()])
    return found


def _random(rng: Any, shape: Any, dtype: Any) -> Array:
    if np.issubdtype(dtype, np.integer):
        info: Any = np.iinfo(dtype)
        low, high = max(info.min, -(1 << 15)), min(info.max, (1 << 15) - 1)
        return rng.integers(low, high + 1, shape).astype(dtype)
    return np.asarray(rng.uniform(-1, 1, shape)).astype(dtype)
