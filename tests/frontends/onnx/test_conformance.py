"""The ONNX standard's own cases of single operators (onnx.backend.test), through the importer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.backend.test.case.test_case import TestCase

from modelcc.frontends.onnx import UnsupportedModel, import_onnx
from modelcc.frontends.onnx.handlers import HANDLERS
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import Array
from tests.frontends.onnx.standard_cases import MODULES, cases_of

EXCEPTIONS: Mapping[str, str] = {
    "bernoulli": "random numbers",
    "image_decoder": "images are decoded before the graph",
    "regex_full_match": "texts are worked on before the graph",
    "string_concat": "texts are worked on before the graph",
    "string_split": "texts are worked on before the graph",
    "stringnormalizer": "texts are worked on before the graph",
}
"""Modules whose cases are not expected to pass, and why."""

REFUSED = {"sequence_map", "sequenceinsert", "softmax_cross_entropy_loss", "splittosequence"}
"""Modules that have no case of tensors and operators that the importer knows."""


def _ours(module: str) -> list[TestCase]:
    """Cases of tensors only, with a handler of the importer's for every operator."""
    return [case for case in cases_of(module) if _is_ours(case)]


def _is_ours(case: TestCase) -> bool:
    if case.model is None or not case.data_sets:
        return False
    graph = case.model.graph
    if any(v.type.WhichOneof("value") != "tensor_type" for v in (*graph.input, *graph.output)):
        return False
    return all((n.domain, n.op_type) in HANDLERS for n in case.model.graph.node)


def _array(value: object) -> Array:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def _imported(model: ModelProto, feeds: Mapping[str, Array]) -> Graph:
    """The graph; where shapes, axes and the like come as inputs, with short inputs fixed."""
    try:
        return import_onnx(model)
    except UnsupportedModel:
        short = {name: array for name, array in feeds.items() if array.ndim < 2}
        return import_onnx(model, values=short)


def _agrees(case: TestCase) -> None:
    for inputs, outputs in case.data_sets or ():
        _agree(case, [_array(i) for i in inputs], [_array(o) for o in outputs])


def _agree(case: TestCase, inputs: Sequence[Array], expected: Sequence[Array]) -> None:
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


@pytest.mark.parametrize("module", [m for m in MODULES if m not in EXCEPTIONS])
def test_cases(module: str) -> None:
    cases = _ours(module)
    assert bool(cases) != (module in REFUSED)
    for case in cases:
        try:
            _agrees(case)
        except Exception as error:
            error.add_note(f"in {case.name}")
            raise


@pytest.mark.parametrize("module", EXCEPTIONS)
def test_exceptions_are_not_stale(module: str) -> None:
    """A case that has come to pass must leave the list."""
    cases = _ours(module)
    assert cases
    for case in cases:
        with pytest.raises((Exception, AssertionError)):
            _agrees(case)


def test_the_suite_is_found() -> None:
    assert len(MODULES) > 190
    assert REFUSED | EXCEPTIONS.keys() <= set(MODULES)
