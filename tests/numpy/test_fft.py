"""Fourier transforms against NumPy's: values, shapes and types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import modelcc.numpy as mnp
from modelcc import ComplexTensor, ModelError, jit, trace
from modelcc.ir.types import Array
from modelcc.tensor.evaluation import evaluate
from modelcc.tensor.spec import Input
from modelcc.tensor.tensor import Tensor
from modelcc.tensor.trees import flatten

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 6))
Z = X + 1j * RNG.normal(size=(3, 6))
LONG = RNG.normal(size=20)

CASES: tuple[tuple[str, Array, dict[str, Any]], ...] = (
    ("fft", LONG.astype(np.float32), {}),
    ("fft", Z, {"n": 5, "axis": 0, "norm": "forward"}),
    ("ifft", X, {"norm": "ortho"}),
    ("ifft", Z.astype(np.complex64), {"n": 4, "norm": "forward"}),
    ("rfft", X.astype(np.float16), {"n": 7}),
    ("rfft", X, {"norm": "ortho"}),
    ("irfft", LONG + 1j, {"n": 31}),
    ("irfft", X.astype(np.float32), {"n": 9}),
    ("irfft", Z.astype(np.complex64), {"n": 8, "axis": 0, "norm": "forward"}),
    ("hfft", Z, {"norm": "ortho"}),
    ("ihfft", X, {}),
    ("fftn", Z, {}),
    ("fft2", np.arange(18).reshape(3, 6), {"s": (4, 9)}),
    ("ifft2", Z, {"norm": "ortho"}),
    ("rfftn", X, {}),
    ("irfftn", Z, {"s": (3, 9), "axes": (0, 1)}),
    ("rfft2", X, {"norm": "forward"}),
    ("fftshift", X, {}),
    ("ifftshift", Z, {"axes": 1}),
)


def test_transforms() -> None:
    """In one evaluation."""
    found = [getattr(mnp.fft, name)(x, **options) for name, x, options in CASES]
    evaluate([part for y in found for part in flatten(y)[0]])
    for (name, x, options), y in zip(CASES, found, strict=True):
        expected = getattr(np.fft, name)(x, **options)
        case = f"{name}({x.dtype}{list(x.shape)}, {options})"
        assert y.numpy().dtype == expected.dtype and y.shape == expected.shape, case
        atol = (1e-6 if y.dtype.name in ("f32", "c64") else 1e-14) * np.abs(expected).max()
        np.testing.assert_allclose(y.numpy(), expected, 0, atol, err_msg=case)


def test_frequencies() -> None:
    np.testing.assert_allclose(mnp.fft.fftfreq(9, 0.5), np.fft.fftfreq(9, 0.5), 1e-6)
    np.testing.assert_array_equal(mnp.fft.rfftfreq(8, dtype="f64"), np.fft.rfftfreq(8))
    assert mnp.fft.fftfreq(9).dtype.name == "f32"


def test_functions_of_numpy_give_tensors() -> None:
    assert isinstance(np.fft.fft(Tensor([1.0, 2.0])), ComplexTensor)


def test_a_batch_may_have_a_name() -> None:
    @jit(shapes={"x": ("batch", 6)})
    def spectrum(x: Tensor) -> Any:
        return mnp.fft.rfft(x)

    for rows in (1, 3):
        np.testing.assert_allclose(spectrum(Tensor(X[:rows])), np.fft.rfft(X[:rows]), 0, 1e-13)
    assert len(spectrum.models) == 1


def test_refusals() -> None:
    with pytest.raises(ModelError, match=r"rfft of complex numbers\n.*use fft"):
        mnp.fft.rfft(Z)
    with pytest.raises(ModelError, match="transform of 0 elements"):
        mnp.fft.fft(mnp.ones(0))
    with pytest.raises(ModelError, match="along an axis of n elements"):
        trace(mnp.fft.fft, Input(("n",)))
    with pytest.raises(ModelError, match="norm='half'"):
        mnp.fft.fft(X, norm="half")  # pyright: ignore[reportArgumentType]
