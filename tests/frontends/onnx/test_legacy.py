"""Operator sets before 7: broadcasting by attributes, per-channel slopes, older attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import modelcc
from modelcc.frontends.onnx import UnsupportedModel, import_onnx
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import Array
from tests.frontends.onnx.onnx_models import floats, one_node

X, CHANNELS = floats(2, 3, 4, 5), floats(3, seed=1)


def run(op: str, operands: list[Array | None], opset: int, **attributes: Any) -> Array:
    model, feeds = one_node(op, operands, opset, (), 1, **attributes)
    (result,) = interpret(import_onnx(model), feeds).values()
    return result


def test_the_axis_tells_where_the_second_operand_stands() -> None:
    y = run("Add", [X, CHANNELS], 6, broadcast=1, axis=1)
    np.testing.assert_array_equal(y, X + CHANNELS[:, None, None])
    last = floats(5, seed=2)
    np.testing.assert_array_equal(run("Mul", [X, last], 6, broadcast=1), X * last)


def test_shapes_must_agree_without_broadcast() -> None:
    with pytest.raises(modelcc.ModelError, match="without broadcast=1"):
        run("Add", [X, floats(5)], 6)


def test_slopes_are_for_each_channel() -> None:
    y = run("PRelu", [X, CHANNELS], 6)
    np.testing.assert_array_equal(y, np.where(X > 0, X, CHANNELS[:, None, None] * X))


def test_older_attributes() -> None:
    assert run("Reshape", [X], 1, shape=[6, -1]).shape == (6, 20)
    assert run("Pad", [X[0, 0]], 1, paddings=[1, 0, 0, 2]).shape == (5, 7)
    assert run("Cast", [X], 5, to="INT32").dtype == np.int32
    assert run("Concat", [X, X], 3).shape == (2, 6, 4, 5)


def test_training_is_the_default_and_refused() -> None:
    with pytest.raises(UnsupportedModel, match="training mode"):
        run("Dropout", [X], 6)
    np.testing.assert_array_equal(run("Dropout", [X], 6, is_test=1), X)


def test_unknown_element_types_are_refused() -> None:
    with pytest.raises(modelcc.ModelError, match="no element type 'DECIMAL'"):
        run("Cast", [X], 5, to=helper.make_attribute("to", "decimal").s.decode())
