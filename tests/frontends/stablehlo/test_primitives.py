"""Cases of jax's primitives, one of each, against jax."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

jax: Any = pytest.importorskip("jax")
pytest.importorskip("absl")

from conformance.jax_primitives import harnesses, outcome  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

REFUSED = ("@lapack_", "complex numbers", "greatest or least")
"""What is refused: LAPACK and devices have no counterpart, complex numbers no order, pools of bools
no gradient."""


@pytest.fixture(autouse=True, scope="module")
def wide() -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def _cases() -> list[Any]:
    """The first case of each primitive and kind of element."""
    found: dict[tuple[str, str], Any] = {}
    for harness in harnesses():
        name = str(harness.dtype.__name__ if hasattr(harness.dtype, "__name__") else harness.dtype)
        found.setdefault((harness.group_name, name.rstrip("0123456789")), harness)
    return list(found.values())


@pytest.mark.parametrize("harness", _cases(), ids=lambda harness: harness.fullname)
def test_it_is_what_jax_computes_or_refused(harness: Any) -> None:
    kind, reason = outcome(harness)
    refused = kind == "unsupported" and any(word in reason for word in REFUSED)
    assert kind == "ok" or refused, reason
