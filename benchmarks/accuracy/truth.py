"""Reference results of a model: all floats in f64, by ONNX's own evaluator.

Two engines with different rounding differ by the sum of their errors, which random weights amplify;
the error of either against the reference says more.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from benchmarks.accuracy.subjects import Arrays

FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16})
TYPED = frozenset({("Cast", "to"), ("EyeLike", "dtype"), ("SequenceEmpty", "dtype")})
"""Operators with dtype attributes."""


class Truth:
    """The model at ``path`` in f64; ``problem`` says why ONNX's evaluator cannot run it."""

    def __init__(self, path: Path) -> None:
        model = widened(onnx.load(path))
        self._names = [output.name for output in model.graph.output]
        self.problem = ""
        try:
            self._evaluator = ReferenceEvaluator(
                model, new_ops=[LayerNormalization, GatherElements]
            )
        except Exception as error:  # a non-standard operator, say
            self.problem = f"{type(error).__name__}: {error}"

    def run(self, feeds: Arrays) -> Arrays | None:
        """Outputs by name, floats as f64; None if there is a ``problem``."""
        if self.problem:
            return None
        wide = {name: _wide(np.asarray(value)) for name, value in feeds.items()}
        try:
            values = self._evaluator.run(self._names, wide)
        except Exception as error:  # NumPy may raise anything here
            self.problem = f"{type(error).__name__}: {error}"
            return None
        return dict(zip(self._names, map(np.asarray, values), strict=True))


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model``, mutated, with f64 for all narrower floats."""
    _widen_graph(model.graph)
    for function in model.functions:
        _widen_nodes(function.node)
    return model


def _widen_graph(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen(tensor)
    _widen_nodes(graph.node)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in FLOATS:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE


def _widen_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                _widen_graph(attribute.g)
            elif attribute.type == AttributeProto.TENSOR:
                _widen(attribute.t)
            elif (node.op_type, attribute.name) in TYPED and attribute.i in FLOATS:
                attribute.i = TensorProto.DOUBLE
            elif node.op_type == "Constant" and attribute.name.startswith("value_float"):
                value = np.asarray(helper.get_attribute_value(attribute), np.float64)
                attribute.CopyFrom(
                    helper.make_attribute("value", numpy_helper.from_array(value, "value"))
                )


def _widen(tensor: TensorProto) -> None:
    if tensor.data_type in FLOATS:
        value = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))


def _wide(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float64) if np.issubdtype(value.dtype, np.floating) else value


class LayerNormalization(OpRun):
    """ONNX's evaluator computes it in f32."""

    def _run(
        self,
        x: np.ndarray,
        scale: np.ndarray,
        bias: np.ndarray | None = None,
        **attributes: Any,
    ) -> tuple[np.ndarray, ...]:
        axes = tuple(range(attributes["axis"] % x.ndim, x.ndim))
        mean = x.mean(axes, keepdims=True)
        inverse = 1 / np.sqrt(x.var(axes, keepdims=True) + attributes["epsilon"])
        y = (x - mean) * inverse * scale + (0 if bias is None else bias)
        return (y, mean, inverse)[: len(self.onnx_node.output)]


class GatherElements(OpRun):
    """ONNX's evaluator uses ``numpy.choose``, which supports at most 64 rows."""

    def _run(self, data: np.ndarray, indices: np.ndarray, axis: int) -> tuple[np.ndarray]:
        return (np.take_along_axis(data, indices, axis),)
