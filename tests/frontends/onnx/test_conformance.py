"""The ONNX standard's own cases of single operators (onnx.backend.test), through the importer."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.case.test_case import TestCase

from modelcc.frontends.onnx import UnsupportedModel, import_onnx
from modelcc.frontends.onnx.handlers import HANDLERS
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import Array

EXCEPTIONS: Mapping[str, str] = {
    "bernoulli": "random numbers",
    "image_decoder": "images are decoded before the graph",
    "regex_full_match": "texts are worked on before the graph",
    "string_concat": "texts are worked on before the graph",
    "string_split": "texts are worked on before the graph",
    "strnormalizer": "texts are worked on before the graph",
}
"""Beginnings of the names of cases that are not expected to pass, and why."""


def _is_ours(case: TestCase) -> bool:
    """Whether there are tensors only, and the importer has a handler for every operator."""
    if case.model is None or not case.data_sets:
        return False
    graph = case.model.graph
    if any(v.type.WhichOneof("value") != "tensor_type" for v in (*graph.input, *graph.output)):
        return False
    return all((n.domain, n.op_type) in HANDLERS for n in case.model.graph.node)


def _excepted(case: TestCase) -> bool:
    return any(case.name.startswith(f"test_{start}") for start in EXCEPTIONS)


def _collected() -> list[TestCase]:
    with warnings.catch_warnings():  # making the cases overflows on purpose
        warnings.simplefilter("ignore")
        return [c for c in collect_testcases(None) if _is_ours(c)]


CASES = _collected()


def _array(value: object) -> Array:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def _imported(model: ModelProto, feeds: Mapping[str, Array]) -> Graph:
    """The graph; where shapes, axes and the like come as inputs, with short inputs fixed."""
    try:
        return import_onnx(model)
    except UnsupportedModel:
        short = {name: array for name, array in feeds.items() if array.ndim < 2}
        return import_onnx(model, values=short)


def _agrees(case: TestCase, inputs: Sequence[Array], expected: Sequence[Array]) -> None:
    model = case.model
    assert model is not None
    feeds = dict(zip([i.name for i in model.graph.input], inputs, strict=True))
    graph = _imported(model, feeds)
    results = interpret(graph, {n: feeds[n] for n in graph.inputs})
    tolerance = 2e-2 if any(a.dtype.itemsize < 4 for a in expected) else max(1e-3, case.rtol)
    for name, wanted in zip(graph.outputs, expected, strict=True):
        found = results[name]
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(
            found.astype(np.float64), wanted.astype(np.float64), tolerance, max(1e-5, case.atol)
        )


@pytest.mark.parametrize("case", [c for c in CASES if not _excepted(c)], ids=lambda c: c.name[5:])
def test_case(case: TestCase) -> None:
    assert case.data_sets is not None
    for inputs, outputs in case.data_sets:
        _agrees(case, [_array(i) for i in inputs], [_array(o) for o in outputs])


@pytest.mark.parametrize("start", EXCEPTIONS)
def test_exceptions_are_not_stale(start: str) -> None:
    """A case that has come to pass must leave the list."""
    concerned = [c for c in CASES if c.name.startswith(f"test_{start}")]
    assert concerned
    for case in concerned:
        assert case.data_sets is not None
        inputs, outputs = case.data_sets[0]
        with pytest.raises((Exception, AssertionError)):
            _agrees(case, [_array(i) for i in inputs], [_array(o) for o in outputs])


def test_cases_were_found() -> None:
    assert len(CASES) > 900
