"""Floats rounded to what few bits hold, as training for integers does it, and their gradients."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frontends.torch.comparison import check, torch

pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.tensor([[-9.0, -0.4, 0.25, 0.35, 40.0], [0.05, -0.15, 1.0, 3.0, -2.0]])
SCALES, ZEROS = torch.tensor([0.1, 0.5]), torch.tensor([3, -1], dtype=torch.int32)


def test_one_scale_for_all_elements() -> None:
    aten = torch.ops.aten

    def function(x: Any) -> Any:
        return aten.fake_quantize_per_tensor_affine_cachemask(x, 0.1, 3, 0, 255)

    check(function, X)
    check(function, X.double())


def test_a_scale_for_each_channel() -> None:
    def function(x: Any, scales: Any, zeros: Any) -> Any:
        return torch.fake_quantize_per_channel_affine(x, scales, zeros, 0, -8, 7)

    check(function, X, SCALES, ZEROS)


@pytest.mark.parametrize("enabled", [0, 1])
def test_a_scale_that_is_a_tensor_may_be_switched_off(enabled: int) -> None:
    step = torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams

    def function(x: Any, scale: Any, zero: Any, on: Any) -> Any:
        return step(x, scale, zero, on, -8, 7)

    check(function, X, SCALES[:1], ZEROS[:1], torch.tensor([enabled]))


def test_gradients_pass_where_elements_are_in_range() -> None:
    def function(x: Any) -> Any:
        return torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255)

    ours, theirs = (X.clone().requires_grad_() for _ in range(2))
    compiled = torch.compile(function, backend="modelcc", options={"cache": None})
    compiled(ours).sum().backward()
    function(theirs).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
