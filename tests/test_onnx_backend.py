"""The backend interface of ONNX, as third parties use it."""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np
import onnx.backend.test
import pytest
from onnx import TensorProto, helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

import modelcc
import modelcc.onnx_backend as backend


def reshape_model() -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    shape = helper.make_tensor_value_info("shape", TensorProto.INT64, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    return helper.make_model(helper.make_graph([node], "g", [x, shape], [y]))


def stored_cases(kind: str) -> list[TestCase]:
    """None of single operators, which take seconds to make."""
    return [] if kind == "node" else load_model_tests(kind=kind)


def test_the_suite_takes_the_module_and_its_cases_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnx.backend.test.runner.load_model_tests", stored_cases)
    module: Any = backend  # which has what is asked of a class
    suite = onnx.backend.test.BackendTest(module, __name__).include("test_bvlc_alexnet_cpu")
    result = unittest.TestResult()
    suite.test_suite.run(result)
    assert result.wasSuccessful(), result.failures
    assert result.testsRun > len(result.skipped)


def test_a_node_runs_in_native_code() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    node = helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])
    (y,) = backend.run_node(node, [x])
    np.testing.assert_array_equal(y, x.T)


def test_inputs_are_taken_in_order_by_name_or_alone() -> None:
    info = helper.make_tensor_value_info
    x, y = info("x", TensorProto.FLOAT, [3]), info("y", TensorProto.FLOAT, [3])
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
    rep = backend.prepare(helper.make_model(graph), cache=None)
    value = np.array([1, -2, 3], np.float32)
    for inputs in ([value], {"x": value}, value):
        np.testing.assert_array_equal(rep.run(inputs)[0], -value)
    with pytest.raises(modelcc.ModelError, match="2 inputs for a model of 1"):
        rep.run([value, value])


def test_other_devices_are_refused() -> None:
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA:1")
    with pytest.raises(modelcc.ModelError, match="no device 'CUDA'"):
        backend.prepare(reshape_model(), "CUDA")


def test_specialised_models_are_compiled_for_each_set_of_values() -> None:
    rep = backend.prepare(reshape_model(), specialise=True, cache=None)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for shape in ([6], [-1], [6]):
        (y,) = rep.run([x, np.array(shape)])
        np.testing.assert_array_equal(y, x.reshape(-1))
