"""Operations of StableHLO that move elements or change their type."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

jax: Any = pytest.importorskip("jax")

import modelcc  # noqa: E402
import modelcc.jax  # noqa: E402
from modelcc.frontends.stablehlo import import_stablehlo  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
jnp = jax.numpy

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


@pytest.mark.parametrize("name", ["float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
                                  "float4_e2m1fn"])  # fmt: skip
def test_small_floats(name: str) -> None:
    def computed(x: Any) -> Any:
        return (jnp.float32(1.37) * x.astype(jnp.float32)).astype(name), jnp.sort(x)

    bits = np.arange(256 if "8" in name else 16, dtype=np.uint8)
    x = bits.view(getattr(ml_dtypes, name))
    x = x[np.isfinite(x.astype(np.float32))]
    for found, wanted in zip(modelcc.jax.jit(computed, cache=None)(x), jax.jit(computed)(x),
                             strict=True):  # fmt: skip
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(np.float32(found), np.float32(wanted))


@pytest.mark.parametrize(
    ("shape", "own", "to"),
    [
        ((5,), "int8", "int4"),
        ((5, 2), "int4", "int8"),
        ((5,), "int4", "uint4"),
        ((5,), "float4_e2m1fn", "uint4"),
        ((5,), "int4", "int2"),
        ((5, 2), "uint2", "int4"),
        ((5,), "float32", "uint2"),
    ],
)
def test_bits_as_another_type(shape: tuple[int, ...], own: str, to: str) -> None:
    def cast(x: Any) -> Any:
        return jax.lax.bitcast_convert_type(x.astype(own), to)

    x = np.random.default_rng(0).integers(0, 4, shape).astype(np.float32)
    found, wanted = modelcc.jax.jit(cast, cache=None)(x), jax.jit(cast)(x)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(np.float32(found), np.float32(wanted))


DIFFERENCES = """
func.func @main(%n: tensor<i64>, %x: tensor<?xf32>) -> tensor<?xf32> {
  %none = stablehlo.constant dense<0> : tensor<1xi64>
  %step = stablehlo.constant dense<1> : tensor<1xi64>
  %from = stablehlo.reshape %n : (tensor<i64>) -> tensor<1xi64>
  %to = stablehlo.add %from, %from : tensor<1xi64>
  %all = stablehlo.concatenate %x, %x, dim = 0 : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %a = stablehlo.real_dynamic_slice %all, %from, %to, %step
    : (tensor<?xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<?xf32>
  %y = stablehlo.multiply %a, %x : tensor<?xf32>
  return %y : tensor<?xf32>
}
"""


def test_slices_between_sizes_meet_named_extents() -> None:
    net = modelcc.compile(DIFFERENCES, cache=None)
    x = np.arange(1, 4, dtype=np.float32)
    np.testing.assert_array_equal(net(np.int64(3), x), x * x)
