"""What LiteRT's reference kernels and a graph's own meaning make of the same inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import (  # pyright: ignore[reportMissingImports]
    Interpreter,
    OpResolverType,
)

from modelcc.frontends.tflite import import_tflite
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import Array

LITERT: Any = Interpreter
REFERENCE: Any = OpResolverType.BUILTIN_REF


def litert(data: bytes) -> Any:
    """LiteRT's interpreter with its reference kernels, ready to run."""
    found = LITERT(model_content=data, experimental_op_resolver_type=REFERENCE)
    found.allocate_tensors()
    return found


def litert_results(ready: Any, feeds: Sequence[Array]) -> list[Array]:
    """Results in the order of the file."""
    for detail, feed in zip(ready.get_input_details(), feeds, strict=True):
        ready.set_tensor(detail["index"], feed)
    ready.invoke()
    return [ready.get_tensor(detail["index"]) for detail in ready.get_output_details()]


def our_results(data: bytes, feeds: Sequence[Array]) -> list[Array]:
    """Results of the imported graph, interpreted."""
    graph = import_tflite(data)
    return list(interpret(graph, dict(zip(graph.inputs, feeds, strict=True))).values())


def random_feeds(data: bytes, seed: int = 0, low: float = -2, high: float = 2) -> list[Array]:
    """Inputs of the types that the file gives, integers of up to 16 bits all over their range."""
    rng = np.random.default_rng(seed)
    return [
        _random(rng, d["shape"], d["dtype"], low, high) for d in litert(data).get_input_details()
    ]


def _random(rng: np.random.Generator, shape: Any, dtype: Any, low: float, high: float) -> Array:
    if np.dtype(dtype) == np.bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if not np.issubdtype(dtype, np.integer):
        return np.asarray(rng.uniform(low, high, shape)).astype(dtype)
    info = np.iinfo(dtype)
    if info.bits > 16:
        return rng.integers(int(low), int(high) + 1, shape).astype(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def assert_same(data: bytes, feeds: Sequence[Array] | None = None) -> None:
    """The same integers, and floats within 1e-5 of the greatest."""
    given = random_feeds(data) if feeds is None else feeds
    wanted, found = litert_results(litert(data), given), our_results(data, given)
    assert len(wanted) == len(found)
    for right, own in zip(wanted, found, strict=True):
        assert right.shape == own.shape and right.dtype == own.dtype
        if right.dtype.kind == "f":
            size = float(np.abs(right).max()) if right.size else 0.0
            np.testing.assert_allclose(own, right, 1e-5, 1e-5 * max(size, 1e-3))
        else:
            np.testing.assert_array_equal(own, right)
