"""Cases of jax's primitives, one of each, against jax."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

jax: Any = pytest.importorskip("jax")
pytest.importorskip("absl")

from conformance.jax_primitives import harnesses, outcome  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

LINEAR_ALGEBRA = ("eig", "eigh", "lu", "qr", "schur", "svd", "tridiagonal_solve",
                  "householder_product", "hessenberg")  # fmt: skip
"""Primitives that jax computes by LAPACK, which modelcc has no counterpart of."""


@pytest.fixture(autouse=True, scope="module")
def wide() -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def _cases() -> list[Any]:
    """The first case of each primitive and kind of element, of those that are one of 12."""
    found: dict[tuple[str, str], Any] = {}
    for harness in harnesses():
        name = str(harness.dtype.__name__ if hasattr(harness.dtype, "__name__") else harness.dtype)
        found.setdefault((harness.group_name, name.rstrip("0123456789")), harness)
    return [h for h in found.values() if not h.group_name.startswith(LINEAR_ALGEBRA)]


@pytest.mark.parametrize("harness", _cases(), ids=lambda harness: harness.fullname)
def test_it_is_what_jax_computes_or_refused(harness: Any) -> None:
    kind, reason = outcome(harness)
    assert kind == "ok", reason
