"""Small ONNX models of what transformers are made of."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import ModelProto, NodeProto, helper
from small_models import model

BATCH, TOKENS, HEADS, WIDTH = 2, 40, 4, 32


def attention_block(layers: int = 1) -> ModelProto:
    """``x = LayerNorm(x + attention(x))``, some times."""
    generator = np.random.default_rng(5)
    arrays: dict[str, np.ndarray] = {
        "apart": np.array([BATCH, TOKENS, HEADS, WIDTH // HEADS]),
        "whole": np.array([BATCH, TOKENS, WIDTH]),
        "scale": np.array((WIDTH / HEADS) ** -0.5, np.float32),
        "one": generator.uniform(0.5, 1.5, WIDTH).astype(np.float32),
        "zero": generator.standard_normal(WIDTH).astype(np.float32),
    }
    nodes: list[NodeProto] = []
    for n in range(layers):
        for w in "qkvo":
            matrix = generator.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5
            arrays[f"w{w}{n}"] = matrix.astype(np.float32)
        nodes += _layer(n, "x" if n == 0 else f"x{n}", "y" if n == layers - 1 else f"x{n + 1}")
    shape = (BATCH, TOKENS, WIDTH)
    return model(nodes, {"x": shape}, {"y": shape}, arrays)


def _layer(n: int, x: str, y: str) -> Iterator[NodeProto]:
    for w, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        yield helper.make_node("MatMul", [x, f"w{w}{n}"], [f"{w}{n}"])
        yield helper.make_node("Reshape", [f"{w}{n}", "apart"], [f"{w}h{n}"])
        yield helper.make_node("Transpose", [f"{w}h{n}"], [f"{w}t{n}"], perm=order)
    yield helper.make_node("MatMul", [f"qt{n}", f"kt{n}"], [f"s{n}"])
    yield helper.make_node("Mul", [f"s{n}", "scale"], [f"ss{n}"])
    yield helper.make_node("Softmax", [f"ss{n}"], [f"p{n}"])
    yield helper.make_node("MatMul", [f"p{n}", f"vt{n}"], [f"a{n}"])
    yield helper.make_node("Transpose", [f"a{n}"], [f"at{n}"], perm=[0, 2, 1, 3])
    yield helper.make_node("Reshape", [f"at{n}", "whole"], [f"ar{n}"])
    yield helper.make_node("MatMul", [f"ar{n}", f"wo{n}"], [f"o{n}"])
    yield helper.make_node("Add", [x, f"o{n}"], [f"r{n}"])
    yield helper.make_node("LayerNormalization", [f"r{n}", "one", "zero"], [y])
