"""What is computed when a value is looked at, and how often."""

from __future__ import annotations

import numpy as np

from modelcc.tensor import evaluation
from modelcc.tensor.evaluation import evaluate
from modelcc.tensor.tensor import Tensor

A = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_what_somebody_holds_is_computed_with_what_hangs_on_it() -> None:
    x = Tensor(A)
    y = x + 1.0
    z = y * y
    z.numpy()
    assert y.held is not None
    np.testing.assert_array_equal(y.held, A + 1)


def test_what_nobody_holds_is_not_kept() -> None:
    x = Tensor(A)
    z = (x + 2.0) * 3.0 - 1.0
    found = evaluation._Pending()  # pyright: ignore[reportPrivateUsage]
    found.visit([z])
    found.choose([z])
    assert len(found.outputs) == 1
    assert found.outputs[0] is z


def test_operands_of_two_operations_that_nobody_holds_are_not_kept() -> None:
    y = Tensor(A) + 3.0
    z = y * y + y
    del y
    found = evaluation._Pending()  # pyright: ignore[reportPrivateUsage]
    found.visit([z])
    found.choose([z])
    assert len(found.outputs) == 1
    np.testing.assert_array_equal(z.numpy(), (A + 3) * (A + 3) + (A + 3))


def test_one_structure_is_compiled_once() -> None:
    def step(x: Tensor, factor: float) -> Tensor:
        return x * factor + 1.5

    step(Tensor(A), 0.25).numpy()
    before = evaluation._program.cache_info().misses  # pyright: ignore[reportPrivateUsage]
    for factor in (0.5, 0.75, 2.0):
        found = step(Tensor(A), factor).numpy()
        np.testing.assert_allclose(found, A * factor + 1.5)
    assert evaluation._program.cache_info().misses == before  # pyright: ignore


def test_places_of_slices_are_operands_of_one_program() -> None:
    """The first places have a program of their own, all others one together."""
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    before = evaluation._program.cache_info().misses  # pyright: ignore[reportPrivateUsage]
    for row in range(5):
        y = Tensor(x) * 3.0
        part = y[row, 1:3] + y[row : row + 2, -1] + y[:, 0].sum() - y[::2][1, 2]
        changed = y.at[row, 2:].set(part)
        del y, part
        expected = x * 3
        sums = expected[row, 1:3] + expected[row : row + 2, -1] + expected[:, 0].sum()
        expected[row, 2:] = sums - expected[2, 2]
        np.testing.assert_allclose(changed.numpy(), expected)
    assert evaluation._program.cache_info().misses == before + 2  # pyright: ignore


def test_a_program_kept_keeps_no_arrays() -> None:
    x = Tensor(A)
    y = x - 7.25
    key = evaluation.Key((1, 2), found_of(y))
    assert key.structure().steps
    assert key._found is None  # pyright: ignore[reportPrivateUsage]


def found_of(wanted: Tensor) -> evaluation._Pending:  # pyright: ignore[reportPrivateUsage]
    found = evaluation._Pending()  # pyright: ignore[reportPrivateUsage]
    found.visit([wanted])
    found.choose([wanted])
    return found


def test_several_are_computed_together() -> None:
    x = Tensor(A)
    pair = [x * 2.0, x.sum(), x * 2.0]
    evaluate(pair)
    assert all(tensor.held is not None for tensor in pair)


def test_all_results_of_an_operation() -> None:
    values, places = (Tensor(A) * -1.0).top_k(2)
    assert places.tolist() == [[0, 1], [0, 1]]
    assert values.tolist() == [[0, -1], [-3, -4]]


def test_long_chains() -> None:
    x = Tensor(np.zeros(3, np.float32))
    for _ in range(300):
        x = x + 1.0
    assert x.tolist() == [300.0] * 3


def test_negative_zero_is_not_zero() -> None:
    zeros = Tensor(np.zeros(2, np.float32))
    assert (zeros * 0.0).tolist() == [0, 0]
    assert np.signbit((zeros * -0.0).numpy()).all()


def test_one_is_not_true() -> None:
    x = Tensor(np.array([2, 3]))
    assert (x * 1).dtype == (x * True).dtype == x.dtype
    assert (Tensor(np.array([True])) + 1).dtype.name == "i64"
    assert (Tensor(np.array([True])) + True).dtype.name == "bool"
