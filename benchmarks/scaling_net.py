"""A builder of models, for the families of :mod:`benchmarks.scaling_families`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper
from onnx import helper as oh

OPSET = 18
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
LOCAL = "local"
"""Domain of model-local functions."""


class Net:
    """A model under construction: nodes, and constants by value."""

    def __init__(self, shape: Sequence[int | str] = (4, 8)) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self.inputs = [oh.make_tensor_value_info("x", FLOAT, shape)]
        self.functions: list[Any] = []
        self._random = np.random.default_rng(0)

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Appends a node; returns the name of its first result (others end in ``.1``, ``.2`` …)."""
        name = f"v{len(self.nodes)}"
        names = [name, *(f"{name}.{n}" for n in range(1, outputs))]
        self.nodes.append(oh.make_node(op, inputs, names, name=f"n{name}", **attributes))
        return name

    def constant(self, value: object, dtype: str = "float32") -> str:
        """A constant with this value."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weight(self, *shape: int) -> str:
        """A constant of small random numbers."""
        return self.constant(self._random.standard_normal(shape) * (0.5 / max(shape)))

    def model(self, *results: str) -> ModelProto:
        """The model that returns ``results``."""
        outputs = [oh.make_empty_tensor_value_info(name) for name in results]
        graph = oh.make_graph(self.nodes, "main", self.inputs, outputs, self.constants)
        opsets = [oh.make_opsetid("", OPSET), oh.make_opsetid(LOCAL, 1)]
        return oh.make_model(graph, opset_imports=opsets, ir_version=8, functions=self.functions)
