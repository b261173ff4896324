"""Histograms against NumPy's; ranges against a search over all of them."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir.types import I4, I8, I16, U8, Array
from modelcc.quantization.histogram import Histogram
from modelcc.quantization.ranges import chosen_rounding, entropy, least_error, percentile, rounding
from modelcc.quantization.settings import QuantizationSettings


def seen(*parts: Array) -> Histogram:
    found = Histogram()
    for part in parts:
        found.add(part)
    return found


def long_tailed(seed: int = 0) -> Array:
    return np.random.default_rng(seed).laplace(size=20000).astype(np.float32) ** 3


def test_a_histogram_that_grows_counts_as_one_of_all() -> None:
    x = long_tailed()
    found = seen(*np.split(np.sort(np.abs(x)), 10), -x)
    everything = np.concatenate([np.abs(x), -x])
    counts, _ = np.histogram(everything, len(found.counts), (-found.limit, found.limit))
    assert (found.low, found.high) == (everything.min(), everything.max())
    away = np.abs(found.centres) > 1  # tiny numbers are on either side of 0
    assert np.abs(found.counts - counts)[away].sum() <= 4  # what lies on an edge
    merged = seen(np.abs(x)).merged(seen(-x))
    np.testing.assert_array_equal(merged.counts, found.counts)


def test_nothing_and_zeros_have_a_range() -> None:
    for values in (np.zeros(0, np.float32), np.zeros(4, np.float32)):
        found = chosen_rounding(seen(values), I8, QuantizationSettings())
        assert found.scale > 0 and found(np.zeros(1))[0] == 0


@pytest.mark.parametrize("dtype", [I8, U8, I16])
@pytest.mark.parametrize("symmetric", [False, True])
def test_ends_and_zero_are_met(dtype: type, symmetric: bool) -> None:
    found = rounding(-1.0, 3.0, dtype, symmetric)  # type: ignore[arg-type]
    ends = np.array([-1.0, 0.0, 3.0])
    np.testing.assert_allclose(found(ends), ends, atol=float(found.scale) / 1.9)
    assert found(ends)[1] == 0


def test_a_percentile_leaves_out_what_numpys_does() -> None:
    x = long_tailed()
    low, high = percentile(seen(x), 99.0)
    np.testing.assert_allclose((low, high), np.percentile(x, [0.5, 99.5]), rtol=0.1)


def test_least_error_is_that_of_a_search() -> None:
    x = np.cbrt(long_tailed()).astype(np.float32)  # of few bits, so that it pays to cut off

    def error(low: float, high: float) -> float:
        found = rounding(low, high, I4, False)
        return float(((found(x.astype(np.float64)) - x) ** 2).sum())

    shares = np.geomspace(1, 1 / 64, 40)
    best = min(error(x.min() * a, x.max() * b) for a in shares[::2] for b in shares[::2])
    assert error(*least_error(seen(x), I4, False)) <= 1.02 * best < error(x.min(), x.max())


def test_entropy_cuts_off_outliers_and_keeps_what_is_uniform() -> None:
    rng = np.random.default_rng(0)
    uniform = rng.uniform(-1, 1, 20000).astype(np.float32)
    assert entropy(seen(uniform), 256)[1] > 0.9
    with_outliers = np.append(rng.standard_normal(20000).astype(np.float32), [60, -60])
    low, high = entropy(seen(with_outliers), 256)
    assert -40 < low < -2 and 2 < high < 40
