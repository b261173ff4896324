"""Bits of XLA's generators, and other calls that jax makes of its own, against jax."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

jax: Any = pytest.importorskip("jax")

import modelcc.jax  # noqa: E402
from modelcc.frontends.stablehlo import import_stablehlo  # noqa: E402
from modelcc.ir.graph_interpreter import interpret  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True, scope="module")
def wide() -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.mark.parametrize(
    ("dtype", "shape"), [("uint8", ()), ("uint16", (5,)), ("uint32", (2, 3, 7)), ("uint64", (4, 3))]
)
@pytest.mark.parametrize("algorithm", ["RNG_THREE_FRY", "RNG_PHILOX"])
def test_bits(algorithm: str, shape: tuple[int, ...], dtype: str) -> None:
    kind = getattr(jax.lax.RandomAlgorithm, algorithm)
    state = np.array([0x123456789ABCDEF, 2**64 - 3], np.uint64)

    def drawn(state: Any) -> Any:
        return jax.lax.rng_bit_generator(state, shape, dtype, algorithm=kind)

    found = modelcc.jax.compile(drawn, state, cache=None, threads=1)(state)
    for ours, theirs in zip(found, drawn(state), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", ["approx_max_k", "approx_min_k"])
def test_approximate_top_k_is_exact(name: str) -> None:
    x = np.random.default_rng(0).normal(size=(3, 50)).astype(np.float32)
    function = getattr(jax.lax, name)
    found = modelcc.jax.compile(lambda x: function(x, 5), x, cache=None, threads=1)(x)
    for ours, theirs in zip(found, function(x, 5), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_tuples_are_their_elements() -> None:
    text = """func.func @main(%x: tensor<2xf32>, %y: tensor<i32>) -> (tensor<i32>, tensor<2xf32>) {
      %0 = stablehlo.tuple %y : tuple<tensor<i32>>
      %1 = stablehlo.tuple %x, %0 : tuple<tensor<2xf32>, tuple<tensor<i32>>>
      %2 = stablehlo.get_tuple_element %1[1]
        : (tuple<tensor<2xf32>, tuple<tensor<i32>>>) -> tuple<tensor<i32>>
      %3 = stablehlo.get_tuple_element %2[0] : (tuple<tensor<i32>>) -> tensor<i32>
      %4 = stablehlo.get_tuple_element %1[0]
        : (tuple<tensor<2xf32>, tuple<tensor<i32>>>) -> tensor<2xf32>
      return %3, %4 : tensor<i32>, tensor<2xf32>
    }"""
    graph = import_stablehlo(text)
    x, y = np.ones(2, np.float32), np.array(7, np.int32)
    found = interpret(graph, dict(zip(graph.inputs, (x, y), strict=True)))
    assert [v.tolist() for v in found.values()] == [7, [1, 1]]


def test_a_constant_is_read_at_a_size() -> None:
    def last(x: Any) -> Any:
        table = np.arange(8, dtype=np.float32)
        return jax.lax.dynamic_index_in_dim(table, x.shape[0] - 1, keepdims=False) + x

    (n,) = jax.export.symbolic_shape("n")
    net = modelcc.jax.compile(last, jax.ShapeDtypeStruct((n,), "float32"), cache=None)
    np.testing.assert_array_equal(net(np.zeros(3, np.float32)), np.full(3, 2, np.float32))
