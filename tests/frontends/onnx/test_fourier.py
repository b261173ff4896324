"""Fourier transforms of any length, given or named, against NumPy's in double precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import modelcc
from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array
from modelcc.runtime.errors import InputError, RunError
from tests.frontends.onnx.onnx_models import parsed
from tests.machines import chosen_options

LENGTHS = (*range(1, 36), 60, 64, 97, 100, 121, 128, 243, 256, 338, 360, 486, 1000, 1009, 1024)
GIVEN = (7, 10, 17, 18, 34, 60, 97, 243, 1024)
BODY = (
    "main ({type}[r, {n}, {parts}] x) => ({type}[r, k, p] y) "
    '{{ a = Constant<value_int = 1>() y = DFT<inverse = {i}, onesided = {o}>(x, "", a) }}'
)


def parts(values: Any) -> Array:
    """Real and imaginary parts, last."""
    return np.stack([values.real, values.imag], -1)


def numbers(x: Array) -> Any:
    """The complex numbers of an array with one or two parts, in double precision."""
    wide = x.astype(np.float64)
    return wide[..., 0] + (1j * wide[..., 1] if x.shape[-1] == 2 else 0)


def halves(x: Any) -> Array:
    """The numbers that half of a spectrum is of."""
    return np.fft.irfft(x, 2 * (x.shape[1] - 1))[..., None]


KINDS: Mapping[str, tuple[int, bool, bool, Callable[[Any], Array]]] = MappingProxyType(
    {
        "complex": (2, False, False, lambda x: parts(np.fft.fft(x))),
        "inverse": (2, True, False, lambda x: parts(np.fft.ifft(x))),
        "real": (1, False, False, lambda x: parts(np.fft.fft(x))),
        "half of real": (1, False, True, lambda x: parts(np.fft.rfft(x.real))),
        "half of complex": (
            2,
            False,
            True,
            lambda x: parts(np.fft.fft(x)[:, : x.shape[1] // 2 + 1]),
        ),
        "inverse of real": (1, True, False, lambda x: parts(np.fft.ifft(x))),
        "inverse of half": (2, True, True, halves),
    }
)


def net(kind: str, n: int | str, type: str = "float", threads: int = 1) -> modelcc.Model:
    count, inverse, onesided, _ = KINDS[kind]
    body = BODY.format(n=n, parts=count, i=int(inverse), o=int(onesided), type=type)
    options = chosen_options(threads=threads)
    return modelcc.compile(parsed(body, 20), options=options, cache=None)


def check(model: modelcc.Model, kind: str, n: int, rows: int, dtype: str, error: float) -> None:
    count, *_, wanted = KINDS[kind]
    x = np.random.default_rng(n).standard_normal((rows, n, count)).astype(dtype)
    expected = wanted(numbers(x))
    found = np.asarray(model(x))
    assert found.shape == expected.shape and found.dtype == x.dtype, n
    # Errors of a transform grow with the logarithm of its length (Higham 2002, 24.1).
    limit = error * np.log2(2 * n) * np.sqrt(np.mean(np.abs(expected) ** 2) + 1e-30)
    np.testing.assert_allclose(found, expected, rtol=0, atol=limit, err_msg=f"{kind} {n}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_named_length(kind: str) -> None:
    """And a run with none of it ends, though 0 is divided by any number for ever."""
    model = net(kind, "n")
    for n in LENGTHS:
        if kind != "inverse of half" or n > 1:
            check(model, kind, n, 2, "float32", 4e-7)
    with pytest.raises((RunError, InputError), match="at least"):
        model(np.zeros((2, 0, KINDS[kind][0]), np.float32))


@pytest.mark.parametrize("kind", ["complex", "half of real"])
def test_a_given_length(kind: str) -> None:
    for n in GIVEN:
        if kind != "inverse of half" or n > 1:
            check(net(kind, n), kind, n, 3, "float32", 4e-7)


@pytest.mark.parametrize("n", [1 << 22, (1 << 21) - 9])
def test_a_length_whose_tables_would_be_large(n: int, tmp_path: Path) -> None:
    model = net("half of real", n)
    model.save(tmp_path / "net.mcc")
    assert (tmp_path / "net.mcc").stat().st_size < 4 * n
    check(model, "half of real", n, 1, "float32", 4e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_no_numbers_have_no_transform(kind: str) -> None:
    """As in NumPy, and as of a named length that is 0."""
    with pytest.raises(ModelError, match=r"a transform of (0|-2) numbers"):
        net(kind, 0)


@pytest.mark.share(2, "type", "n", "kind")
@pytest.mark.parametrize(("type", "dtype", "error"), [
    ("double", "float64", 8e-16), ("float16", "float16", 1e-3),
])  # fmt: skip
@pytest.mark.parametrize("n", ["n", 202])
@pytest.mark.parametrize("kind", ["inverse", "half of real"])
def test_other_types(type: str, dtype: str, error: float, n: int | str, kind: str) -> None:
    model = net(kind, n, type)
    for length in (20, 62) if n == "n" else (n,):
        check(model, kind, int(length), 2, dtype, error)


@pytest.mark.parametrize("n", ["n", 512])
def test_many_rows_on_two_threads(n: int | str) -> None:
    one, two = (net("half of real", n, threads=threads) for threads in (1, 2))
    length = 512 if n == "n" else int(n)
    check(two, "half of real", length, 67, "float32", 4e-7)
    x = np.random.default_rng(1).standard_normal((67, length, 1)).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(one(x)), np.asarray(two(x)))
