"""One small ONNX model, and how to write it down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

OPSET = 18


@dataclass(frozen=True)
class Case:
    """A model with f32 inputs ``x0``, ``x1`` … of ``shapes``, and constants of its nodes."""

    family: str
    name: str
    shapes: tuple[tuple[int, ...], ...]
    nodes: tuple[NodeProto, ...]
    constants: Mapping[str, np.ndarray]
    result: int = TensorProto.FLOAT

    @property
    def label(self) -> str:
        """Family and name."""
        return f"{self.family}/{self.name}"

    def model(self) -> onnx.ModelProto:
        """The model; its output is the last node's first result."""
        inputs = [
            helper.make_tensor_value_info(f"x{n}", TensorProto.FLOAT, shape)
            for n, shape in enumerate(self.shapes)
        ]
        output = helper.make_tensor_value_info(self.nodes[-1].output[0], self.result, None)
        weights = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = helper.make_graph(list(self.nodes), "operator", inputs, [output], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 9
        return model

    def feeds(self) -> dict[str, np.ndarray]:
        """Random inputs, always the same."""
        return {f"x{n}": weights(shape, n) for n, shape in enumerate(self.shapes)}


def weights(shape: Sequence[int], seed: int = 7) -> np.ndarray:
    """Normally distributed f32, determined by shape and seed."""
    return np.random.default_rng(seed).standard_normal(tuple(shape)).astype(np.float32)


def one(
    family: str,
    name: str,
    operator: str,
    shapes: Sequence[tuple[int, ...]],
    constants: Sequence[np.ndarray] = (),
    result: int = TensorProto.FLOAT,
    outputs: int = 1,
    **attributes: Any,
) -> Case:
    """A model of one node: inputs first, then constants."""
    named = {f"w{n}": value for n, value in enumerate(constants)}
    operands = [*(f"x{n}" for n in range(len(shapes))), *named]
    results = [f"y{n}" for n in range(outputs)]
    node = helper.make_node(operator, operands, results, **attributes)
    return Case(family, name, tuple(shapes), (node,), named, result)
