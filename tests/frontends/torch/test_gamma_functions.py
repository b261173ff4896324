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


def test_airy() -> None:
    x = torch.linspace(-30, 12, 200, dtype=F64)
    found = compiled(torch.special.airy_ai, (x,))(x.numpy())
    np.testing.assert_allclose(found, torch.special.airy_ai(x).numpy(), 1e-9, 1e-12)
    # PyTorch's own is off by that much left of -2.09, where its series ends.
    np.testing.assert_allclose(found, special.airy(x.numpy())[0], 0, 3e-6)
    check(torch.special.airy_ai, torch.tensor([float("inf"), float("nan"), 200.0, 0.0], dtype=F64))
