"""The StableHLO text of small graphs, without jax."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.exporters.stablehlo import export_stablehlo
from modelcc.exporters.stablehlo.text import constant_text, identifier, type_text
from modelcc.frontends.kit.errors import UnsupportedForm
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Sym
from modelcc.ir.types import BF16, F32, I4, I64, STRING, Array, TensorType, dtype_of
from modelcc.ops.activation import Relu
from modelcc.ops.elementwise import Add
from modelcc.ops.matmul import MatMul
from modelcc.ops.nonzero import NonZero
from modelcc.ops.unique import Unique

SMALL = """\
module @small {
  func.func public @main(%x: tensor<2x3xf32> loc("x")) -> (tensor<2x2xf32> {jax.result_info = "y"}) {
    %w = stablehlo.constant dense<[[0.0e+00, 1.0e+00], [2.0e+00, 3.0e+00], [4.0e+00, 5.0e+00]]> : tensor<3x2xf32>
    %h_1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>
    %2 = stablehlo.constant dense<0.0e+00> : tensor<f32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
    %y = stablehlo.maximum %h_1, %3 : tensor<2x2xf32>
    return %y : tensor<2x2xf32>
  }
}
"""  # noqa: E501


def test_values_are_called_as_in_the_graph() -> None:
    build = GraphBuilder("small")
    x = build.input("x", TensorType((2, 3), F32))
    weights = build.constant(np.arange(6, dtype=np.float32).reshape(3, 2), name="w")
    h = build.emit(MatMul(), x, weights, name="h/1")
    graph = build.build([build.emit(Relu(), h, name="y")])
    assert export_stablehlo(graph) == SMALL
    assert export_stablehlo(graph) == SMALL


def test_named_extents_are_read_from_their_operand() -> None:
    build = GraphBuilder("named")
    x = build.input("x", TensorType((2 * Sym("n") + 1, 3), F32))
    y = build.input("y", TensorType((Sym("n"), 3), F32))
    graph = build.build([build.emit(Add(), y, build.constant(1.0), name="z"), x])
    text = export_stablehlo(graph)
    assert "tensor<?x3xf32>" in text
    assert "get_dimension_size %y, dim = 0" in text
    assert "get_dimension_size %x" not in text


def test_all_that_has_no_form_is_named_at_once() -> None:
    build = GraphBuilder("refused")
    x = build.input("x", TensorType((4,), F32))
    (places, *_) = build.add(NonZero(), x, source=("first",))
    found = build.add(Unique(), x, source=("second",))
    with pytest.raises(ModelError) as caught:
        export_stablehlo(build.build([places, found[0]]))
    text = str(caught.value)
    assert "2 nodes of the model cannot be written as StableHLO" in text
    assert "first: NonZero" in text and "second: Unique" in text


def test_texts_have_no_element_type() -> None:
    with pytest.raises(UnsupportedForm, match="no tensors of string"):
        type_text(TensorType((2,), STRING))


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.full((3, 4), 1.5, np.float32), "dense<1.5e+00> : tensor<3x4xf32>"),
        (np.array([np.nan, -np.inf, 1], np.float32),
         "dense<[0x7FC00000, 0xFF800000, 1.0e+00]> : tensor<3xf32>"),
        (np.array([-0.0, 0.0], BF16.numpy), "dense<[-0.0e+00, 0.0e+00]> : tensor<2xbf16>"),
        (np.array([True, False]), "dense<[true, false]> : tensor<2xi1>"),
        (np.arange(9, dtype=np.uint8), 'dense<"0x000102030405060708"> : tensor<9xui8>'),
        (np.array(-3, I4.numpy), "dense<-3> : tensor<i4>"),
        (np.zeros((0, 2), np.int32), "dense<> : tensor<0x2xi32>"),
        (np.array([1 + 2j], np.complex64), 'dense<"0x0000803f00000040"> : tensor<complex<f32>>'),
    ],
)  # fmt: skip
def test_constants(array: Array, text: str) -> None:
    type = TensorType(array.shape if array.size != 1 else (), dtype_of(array))
    assert constant_text(array, type) == text


def test_numbers_are_exact() -> None:
    numbers = np.random.default_rng(0).normal(size=200)
    for value in numbers:
        text = constant_text(np.asarray(value), TensorType((), dtype_of(np.asarray(value))))
        assert float(text[6 : text.index(">")]) == value


@pytest.mark.parametrize(
    ("name", "spelled"), [("x", "x"), ("/a/b:0", "_a_b_0"), ("0", "_0"), ("größe", "gr__e")]
)
def test_names(name: str, spelled: str) -> None:
    assert identifier(name) == spelled


def test_indices_are_of_64_bits() -> None:
    build = GraphBuilder("places")
    x = build.input("x", TensorType((Sym("n"),), I64))
    graph = build.build([build.emit(Add(), x, x, name="y")])
    assert "tensor<?xi64>" in export_stablehlo(graph)
