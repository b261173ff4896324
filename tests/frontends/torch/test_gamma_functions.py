"""Functions around gamma, and Airy's, give what SciPy and PyTorch give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontends.torch.comparison import check, compiled, torch

special: Any = pytest.importorskip("scipy.special")
pytestmark = pytest.mark.filterwarnings("ignore")
F64 = torch.float64
ODD = [0.0, 1.0, float("inf"), float("nan"), -1.0, 2.5]
PAIRS = torch.cartesian_prod(torch.tensor(ODD, dtype=F64), torch.tensor(ODD, dtype=F64)).T


def test_incomplete_gamma_functions() -> None:
    a = torch.logspace(-3, 3, 40, dtype=F64)[:, None]
    x = torch.logspace(-3, 3, 41, dtype=F64)[None, :]
    for function, wanted in (
        (torch.special.gammainc, special.gammainc),
        (torch.special.gammaincc, special.gammaincc),
    ):
        found = compiled(function, (a, x))(a.numpy(), x.numpy())
        np.testing.assert_allclose(found, wanted(a.numpy(), x.numpy()), 1e-10, 1e-250)
        check(function, PAIRS[0], PAIRS[1])


def test_zeta() -> None:
    x = torch.tensor([1.0, 1.5, 2.0, 30.0, 0.5, float("nan")], dtype=F64)[:, None]
    q = torch.tensor([0.1, 1.0, 7.5, 1e6, -0.5, -2.0, 0.0], dtype=F64)[None, :]
    check(torch.special.zeta, x, q)
    whole = compiled(lambda x: torch.special.zeta(x, 1.0), (x,))(x.numpy())
    np.testing.assert_allclose(whole, special.zeta(x.numpy(), 1.0), 1e-13)


@pytest.mark.parametrize("order", [1, 2, 5])
def test_polygamma(order: int) -> None:
    x = torch.tensor([-3.7, -1.2, -0.5, 0.1, 0.5, 1.0, 4.2, 40.0, 1e4])
    check(lambda x: torch.polygamma(order, x), x)
    check(lambda x: torch.polygamma(order, x), x.double())


@pytest.mark.parametrize("lower", [True, False])
def test_incomplete_gamma_functions_of_large_numbers(lower: bool) -> None:
    rng = np.random.default_rng(0)
    a = np.concatenate([10 ** rng.uniform(4, 12, 200), [1e30, 1e300]])
    x = np.abs(a + 3 * rng.normal(size=a.size) * np.sqrt(a))
    ours, theirs = (
        (torch.special.gammainc, special.gammainc)
        if lower
        else (torch.special.gammaincc, special.gammaincc)
    )
    found = compiled(ours, (torch.tensor(a), torch.tensor(x)))(a, x)
    # SciPy's own are off by that much where they change from one expansion to another.
    np.testing.assert_allclose(found, theirs(a, x), 0, 3e-6)
    # By quadrature with 40 digits, where SciPy has 6.2e-7.
    a, x = np.array([1248377658.005717]), np.array([1248216660.1598845])
    found = compiled(torch.special.gammainc, (torch.tensor(a), torch.tensor(x)))(a, x)
    np.testing.assert_allclose(found, 2.596309693467223e-06, 1e-9)


@pytest.mark.parametrize("order", [2, 3, 5])
def test_polygamma_of_anything_ends(order: int) -> None:
    """Far below zero, where sums of terms would not, and of what is no number."""
    safe = torch.tensor([-0.3, -1.5, -7.3, -100.25, 0.3, 2.5, 1e3], dtype=F64)
    check(lambda x: torch.polygamma(order, x), safe)
    x = np.array([-1e6 + 0.5, -1e30, -np.inf, np.nan, np.inf, 1e30, 0.0])
    found = compiled(lambda x: torch.polygamma(order, x), (torch.tensor(x),))(x)
    assert np.isnan(found[3]) and np.isinf(found[[1, 2, 6]]).all() and np.isfinite(found[0])
    np.testing.assert_allclose(found[4:6], 0, atol=1e-50)


def test_airy() -> None:
    x = torch.linspace(-30, 12, 200, dtype=F64)
    found = compiled(torch.special.airy_ai, (x,))(x.numpy())
    np.testing.assert_allclose(found, torch.special.airy_ai(x).numpy(), 1e-9, 1e-12)
    # PyTorch's own is off by that much left of -2.09, where its series ends.
    np.testing.assert_allclose(found, special.airy(x.numpy())[0], 0, 3e-6)
    check(torch.special.airy_ai, torch.tensor([float("inf"), float("nan"), 200.0, 0.0], dtype=F64))
