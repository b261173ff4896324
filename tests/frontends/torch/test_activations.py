"""Activations of 16 bits are rounded once, as PyTorch does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from modelcc.torch import backend  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
fn = torch.nn.functional

CASES: dict[str, Callable[[Any], Any]] = {
    "gelu": fn.gelu,
    "gelu(tanh)": lambda x: fn.gelu(x, approximate="tanh"),
    "silu": fn.silu,
    "mish": fn.mish,
    "hardswish": fn.hardswish,
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_are_rounded_once(dtype: Any) -> None:
    torch._dynamo.reset()
    x = torch.linspace(-8, 8, 2001).to(dtype)

    def all_of(x: Any) -> Any:
        return [case(x) for case in CASES.values()]

    fast = torch.compile(all_of, backend=backend, options={"threads": 1, "cache": None})
    for name, found in zip(CASES, fast(x), strict=True):
        exact = CASES[name](x.double())
        step = exact.abs().clamp(min=2e-3) * torch.finfo(dtype).eps
        cancelled = 2e-6  # by sums with 1, of 32 bits
        assert ((found.double() - exact).abs() <= 0.6 * step + cancelled).all(), name
