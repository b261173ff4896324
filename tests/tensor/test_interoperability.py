"""Tensors among arrays of NumPy, of torch, in pickles, and as text."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import modelcc.numpy as mnp
from modelcc.tensor.lazy import TracingError
from modelcc.tensor.tensor import Tensor
from modelcc.tensor.tracing import jit

A = np.arange(3.0)


def test_an_array_and_a_tensor_give_a_tensor() -> None:
    x = Tensor([1.0, 2.0, 3.0])
    for found, expected in (
        (A + x, np.array([1.0, 3.0, 5.0])),
        (x - A, [1, 1, 1]),
        (np.exp(x), np.exp([1, 2, 3])),
        (np.add(A, x), np.array([1.0, 3.0, 5.0])),
        (A @ x, 8),
        (x < A, [False] * 3),
        (np.float64(2) * x, [2, 4, 6]),
        (np.concatenate([A, x]), [0, 1, 2, 1, 2, 3]),
        (np.sum(x), 6),
        (np.linalg.norm(x), np.sqrt(14)),
        (np.where(x > 1, x, 0), [0, 2, 3]),
    ):
        assert isinstance(found, Tensor)
        np.testing.assert_allclose(found.numpy(), expected, 1e-6)


def test_other_functions_of_numpy_give_arrays() -> None:
    x = Tensor([1.0, 2.0, 3.0])
    assert np.interp(1.5, A, x) == 2.5
    assert np.add.reduce(x) == 6
    target = A.copy()
    target += x
    np.testing.assert_array_equal(target, [1, 3, 5])


def test_arrays_of_tensors() -> None:
    x = Tensor([1.0, 2.0])
    assert np.asarray(x).dtype == np.float32
    assert np.array(x, np.float64).dtype == np.float64
    assert not np.asarray(x).flags.writeable
    assert np.array(x, copy=True).flags.writeable
    assert np.from_dlpack(x).tolist() == [1, 2]


def test_tensors_of_arrays_are_copies() -> None:
    array = np.ones(3, np.float32)
    x = Tensor(array)
    array[0] = 5
    assert x.tolist() == [1, 1, 1]


def test_numbers_and_lists_are_f32_arrays_keep_their_type() -> None:
    assert Tensor(1.5).dtype.name == Tensor([[1.5]]).dtype.name == "f32"
    assert Tensor(A).dtype.name == "f64"
    assert Tensor(1).dtype.name == "i64"
    assert Tensor(True).dtype.name == "bool"
    assert Tensor([1, 2], "u8").dtype.name == "u8"


def test_pickles_and_copies() -> None:
    x = Tensor(A) * 2
    again = pickle.loads(pickle.dumps(x))
    assert again.dtype == x.dtype
    assert again.tolist() == [0, 2, 4]
    assert copy.copy(x) is copy.deepcopy(x) is x.copy() is x


def test_text() -> None:
    assert str(Tensor([[1.0, 2.5]])) == "Tensor([[1. , 2.5]], dtype=float32)"
    assert f"{Tensor(2.0):.3f} {Tensor([1])}" == "2.000 Tensor([1], dtype=int64)"
    texts: list[str] = []

    def shown(x: Tensor) -> Tensor:
        texts.append(str(x))
        return x

    jit(shown)(Tensor([1.0]))
    assert texts == ["Tensor(tensor<1xf32>, traced)"] or "traced" in texts[0]


def test_equality_is_of_elements_and_hashes_are_of_objects() -> None:
    x, y = Tensor([1, 2]), Tensor([1, 3])
    assert (x == y).tolist() == [True, False]
    assert (x != y).tolist() == [False, True]
    assert len({x, y, x}) == 2
    assert 2 in x
    assert 5 not in x


def test_numbers_of_python() -> None:
    assert int(Tensor(3)) == 3
    assert float(Tensor(0.5)) == 0.5
    assert bool(Tensor(0)) is False
    assert [10, 20, 30][Tensor(1)] == 20
    assert Tensor([7]).item() == 7
    with pytest.raises(ValueError, match="ambiguous"):
        bool(Tensor([1, 2]))


def test_what_has_no_contents_says_so() -> None:
    def looks(x: Tensor) -> Any:
        return np.interp(1.5, A, x)

    with pytest.raises(TracingError, match="'x', which has no contents"):
        jit(looks)(Tensor([1.0, 2.0, 3.0]))
    with pytest.raises(TracingError, match="no contents"):
        jit(lambda x: pickle.dumps(x))(Tensor(1.0))


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    x = Tensor([1.0, 2.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns once that it must not write to the memory
        assert torch.from_dlpack(x).tolist() == [1, 2]
    assert Tensor(torch.ones(2)).tolist() == [1, 1]
    assert mnp.asarray(torch.arange(2)).dtype.name == "i64"
