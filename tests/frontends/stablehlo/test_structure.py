"""Operations of StableHLO that move elements or change their type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax: Any = pytest.importorskip("jax")

import modelcc  # noqa: E402
import modelcc.jax  # noqa: E402
from modelcc.frontends.stablehlo import import_stablehlo  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_floats_that_are_no_integer_become_the_nearest(dtype: str) -> None:
    def whole(x: Any) -> Any:
        return [x.astype(integer) for integer in INTEGERS]

    numbers = [0.5, -0.5, 1.9, -1.9, 300, -300, 3e9, -3e9, 2147483648, np.nan, np.inf, -np.inf]
    x = jax.numpy.array(numbers, dtype)
    for found, wanted in zip(modelcc.jax.jit(whole, cache=None)(x), jax.jit(whole)(x), strict=True):
        np.testing.assert_array_equal(found, wanted)


SLICED = """
func.func @main(%from: tensor<i32>, %x: tensor<5x4xf32>) -> tensor<2x4xf32> {
  %none = stablehlo.constant dense<0> : tensor<1xi32>
  %limits = stablehlo.constant dense<[5, 4]> : tensor<2xi32>
  %steps = stablehlo.constant dense<1> : tensor<2xi32>
  %row = stablehlo.reshape %from : (tensor<i32>) -> tensor<1xi32>
  %starts = stablehlo.concatenate %row, %none, dim = 0
    : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %y = stablehlo.real_dynamic_slice %x, %starts, %limits, %steps
    : (tensor<5x4xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<2x4xf32>
  return %y : tensor<2x4xf32>
}
"""


def test_starts_of_a_slice_that_come_at_run_time() -> None:
    net = modelcc.compile(import_stablehlo(SLICED), cache=None)
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    np.testing.assert_array_equal(net(np.int32(3), x), x[3:])
    with pytest.raises(modelcc.RunError, match="at most 3"):
        net(np.int32(4), x)
