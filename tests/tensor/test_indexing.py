"""Subscripts and updates, as NumPy has them, in the imperative mode and in traced functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array
from modelcc.tensor.declared import Graph
from modelcc.tensor.evaluation import evaluate
from modelcc.tensor.lazy import TracingError
from modelcc.tensor.subscripts import SubscriptError
from modelcc.tensor.tensor import Tensor
from modelcc.tensor.tracing import jit

X = np.random.default_rng(0).normal(size=(4, 5, 6)).astype(np.float32)
K, J = np.array([[0, 2], [3, -1]]), np.array([1, 3])
MASK = X[:, :, 0] > 0

BASIC: tuple[Any, ...] = (
    *(np.s_[1], np.s_[-1, 2:], np.s_[..., None, ::2], np.s_[::-1, ::-2, 1:-1], np.s_[2:2]),
    *(np.s_[...], np.s_[3:0:-2, None, 9:1:-3], np.s_[:, -1, None, ..., 2], np.s_[1:99]),
)
ADVANCED: tuple[Any, ...] = (
    *(np.s_[K], np.s_[:, K], np.s_[K, J], np.s_[:, J, J], np.s_[J, :, J], np.s_[1, :, J]),
    *(np.s_[:, 1, J], np.s_[None, J, 1:3, J], np.s_[1:3, J, None], np.s_[J, None, J], np.s_[[]]),
    *(X > 0, MASK, np.s_[MASK, 1], np.s_[1:, J, ::-2], np.s_[:, None, J, 1], np.s_[[0, 1]]),
    *(np.s_[:, [True, False, True, False, True]], np.s_[np.array(1)], np.s_[..., J]),
)
WAYS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {"add": np.add, "multiply": np.multiply, "max": np.maximum, "min": np.minimum}
)


def text(subscript: Any) -> str:
    return str(subscript).replace("\n", "")[:60]


def test_parts_of_what_is_pending() -> None:
    x = Tensor(X) * 1
    found = [x[s] for s in (*BASIC, *ADVANCED)]
    evaluate(found)
    for subscript, tensor in zip((*BASIC, *ADVANCED), found, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), X[subscript], text(subscript))


@pytest.mark.parametrize("subscript", BASIC, ids=text)
def test_parts_of_what_is_computed_are_no_operations(subscript: Any) -> None:
    part = Tensor(X)[subscript]
    assert part.held is not None
    np.testing.assert_array_equal(part.numpy(), X[subscript])
    assert part.shape == X[subscript].shape


@pytest.mark.parametrize("how", ["set", *WAYS])
def test_updates(how: str) -> None:
    x, rng = Tensor(X) * 1, np.random.default_rng(1)
    found: list[Tensor] = []
    wanted: list[Array] = []
    for subscript in (*BASIC, *ADVANCED):
        values = rng.normal(size=X[subscript].shape[-1:]).astype(np.float32)
        found.append(getattr(x.at[subscript], how)(values))
        wanted.append(updated(how, subscript, values))
    evaluate(found)
    for subscript, tensor, expected in zip((*BASIC, *ADVANCED), found, wanted, strict=True):
        np.testing.assert_allclose(tensor.numpy(), expected, 1e-6, err_msg=text(subscript))


def updated(how: str, subscript: Any, values: Array) -> Array:
    result = X.copy()
    if how == "set":
        result[subscript] = values
    else:
        function: Any = WAYS[how]
        function.at(result, subscript, np.broadcast_to(values, X[subscript].shape))
    return result


def test_repeated_indices_count_each() -> None:
    x = Tensor(np.zeros(3, np.float32)).at[np.array([0, 0, 2])].add(1.0)
    assert x.tolist() == [2, 0, 1]


def test_named_extents() -> None:
    """Subscripts of tensors whose extents have names until the model runs."""
    graph = Graph("g")
    x = graph.input("x", ("batch", "seq", 6))
    cases: tuple[Any, ...] = (
        *(np.s_[1:], np.s_[:, -1], np.s_[::-1], np.s_[..., None, :2], np.s_[:, ::2]),
        *(np.s_[:-1, 1:], np.s_[J], np.s_[:, J, J], np.s_[0, :, J], np.s_[:, :, 5:1:-2]),
    )
    for k, subscript in enumerate(cases):
        graph.output(x[subscript], f"get{k}")
    graph.output(x.at[0].set(1.0), "set")
    graph.output(x.at[:, J].add(2.0), "add")
    found = graph.compile().run({"x": X})
    for k, subscript in enumerate(cases):
        np.testing.assert_array_equal(found[f"get{k}"], X[subscript], text(subscript))
    first, added = X.copy(), X.copy()
    first[0] = 1
    added[:, J] += 2
    np.testing.assert_array_equal(found["set"], first)
    np.testing.assert_array_equal(found["add"], added)


def test_places_that_are_tensors() -> None:
    def rows(x: Tensor, places: Tensor) -> Tensor:
        return x[places, 1:3]

    found = jit(rows)(Tensor(X), Tensor(J))
    np.testing.assert_array_equal(found.numpy(), X[J, 1:3])


def test_a_mask_without_contents_has_no_shape() -> None:
    def positive(x: Tensor) -> Tensor:
        return x[x > 0]

    with pytest.raises(TracingError, match=r"test_indexing\.py.*mask.*\n.*where"):
        jit(positive)(Tensor(X))


WRONG = (
    (np.s_[4], "index 4 for axis 0 of extent 4"),
    (np.s_[:, -6], "index -6 for axis 1 of extent 5"),
    (np.s_[0, 0, 0, 0], "4 indices for 3 axes"),
    (np.s_[..., ...], "several"),
    (np.s_[::0], "step 0"),
    (np.s_[[0.5]], "an index of type f64"),
    (np.s_[True], "a bool"),
)


@pytest.mark.parametrize(("subscript", "message"), WRONG, ids=[m for _, m in WRONG])
def test_wrong_subscripts(subscript: Any, message: str) -> None:
    with pytest.raises(SubscriptError, match=f"test_indexing.py:.*{message}"):
        (Tensor(X) * 1)[subscript]


def test_indices_out_of_range_are_found_when_they_are_used() -> None:
    with pytest.raises(Exception, match="9"):
        (Tensor(X) * 1)[np.array([9])].numpy()


def test_tensors_do_not_change() -> None:
    x = Tensor([1.0, 2.0])
    with pytest.raises(TypeError, match=r"x\.at"):
        x[0] = 3.0
    with pytest.raises(ValueError, match="read-only"):
        x.numpy()[0] = 3.0


def test_iteration() -> None:
    assert [row.tolist() for row in Tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    assert all(row.held is not None for row in Tensor([[1, 2], [3, 4]]) * 2)
    assert len(Tensor([[1, 2], [3, 4]])) == 2
    with pytest.raises(TypeError, match="without axes"):
        iter(Tensor(1.0))


def test_updates_of_other_shapes_are_refused() -> None:
    with pytest.raises(ModelError, match=r"test_indexing\.py"):
        Tensor(X).at[0].set(np.ones(7, np.float32))
