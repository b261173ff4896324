"""Quantized types, by hand and by what the specification says of them."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("jax")

from modelcc.frontends.stablehlo import import_stablehlo
from modelcc.ir.errors import ModelError
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import Array

pytestmark = pytest.mark.filterwarnings("ignore")

PLAIN = "!quant.uniform<i8:f32, 0.5:3>"
ALONG = "!quant.uniform<i8<-127:127>:f32:1, {0.5:3, 0.25}>"


def results(text: str, *args: Array) -> list[Array]:
    graph = import_stablehlo(text)
    return list(interpret(graph, dict(zip(graph.inputs, args, strict=True))).values())


def test_numbers_are_rounded_to_what_the_type_holds() -> None:
    text = f"""func.func @main(%x: tensor<6xf32>) -> (tensor<6xf32>, tensor<6xi8>) {{
      %0 = stablehlo.uniform_quantize %x : (tensor<6xf32>) -> tensor<6x{PLAIN}>
      %1 = stablehlo.uniform_dequantize %0 : (tensor<6x{PLAIN}>) -> tensor<6xf32>
      %2 = stablehlo.bitcast_convert %0 : (tensor<6x{PLAIN}>) -> tensor<6xi8>
      return %1, %2 : tensor<6xf32>, tensor<6xi8>
    }}"""
    x = np.array([0.0, 0.3, -1.2, 1e9, -np.inf, np.nan], np.float32)
    stored = np.array([3, 4, 1, 127, -128, 0], np.int8)
    numbers, found = results(text, x)
    np.testing.assert_array_equal(found, stored)
    np.testing.assert_array_equal(numbers, (stored.astype(np.float32) - 3) * 0.5)


def test_scales_go_along_an_axis_and_the_range_may_be_narrower() -> None:
    text = f"""func.func @main(%x: tensor<2x2xf32>) -> tensor<2x2xi8> {{
      %0 = stablehlo.uniform_quantize %x : (tensor<2x2xf32>) -> tensor<2x2x{ALONG}>
      %1 = stablehlo.bitcast_convert %0 : (tensor<2x2x{ALONG}>) -> tensor<2x2xi8>
      return %1 : tensor<2x2xi8>
    }}"""
    (found,) = results(text, np.array([[1, 1], [-99, -99]], np.float32))
    np.testing.assert_array_equal(found, [[5, 4], [-127, -127]])


def test_arithmetic_is_of_real_numbers_and_then_rounded() -> None:
    text = f"""func.func @main(%x: tensor<2xi8>) -> tensor<2xi8> {{
      %0 = stablehlo.bitcast_convert %x : (tensor<2xi8>) -> tensor<2x{PLAIN}>
      %1 = stablehlo.multiply %0, %0 : tensor<2x{PLAIN}>
      %2 = "stablehlo.negate"(%1) : (tensor<2x{PLAIN}>) -> tensor<2x{PLAIN}>
      %3 = stablehlo.bitcast_convert %2 : (tensor<2x{PLAIN}>) -> tensor<2xi8>
      return %3 : tensor<2xi8>
    }}"""
    (found,) = results(text, np.array([5, 6], np.int8))  # 1.0 and 1.5, whose 2.25 becomes 2.5
    np.testing.assert_array_equal(found, [1, -2])


def test_quantized_arguments_are_refused() -> None:
    text = f"func.func @main(%x: tensor<2x{PLAIN}>) -> tensor<2x{PLAIN}> {{\nreturn %x : a\n}}"
    with pytest.raises(ModelError, match="a quantized type outside of an operation"):
        import_stablehlo(text)
