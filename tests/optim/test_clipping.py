"""Gradients kept within bounds, against NumPy and torch."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc import Tensor, optim

GRADS = {
    "a": np.array([[3.0, -4.0], [0.5, 0.0]], np.float32),
    "b": np.array([12.0], np.float32),
    "c": np.array(0.01, np.float32),
}


def clipped(clip: optim.ClipValue | optim.ClipNorm | optim.ClipGlobalNorm) -> dict[str, np.ndarray]:
    return {p: g.numpy() for p, g in clip({p: Tensor(g) for p, g in GRADS.items()}).items()}


def test_values() -> None:
    for path, found in clipped(optim.ClipValue(1.5)).items():
        np.testing.assert_array_equal(found, np.clip(GRADS[path], -1.5, 1.5))


def test_norms_one_by_one() -> None:
    for path, found in clipped(optim.ClipNorm(1.0)).items():
        norm = np.linalg.norm(GRADS[path])
        np.testing.assert_allclose(found, GRADS[path] * min(1.0, 1.0 / norm), 1e-5)


@pytest.mark.parametrize("limit", [1.0, 100.0])
def test_the_norm_of_all_is_clipped_as_torch_does(limit: float) -> None:
    torch = pytest.importorskip("torch")
    params = {path: torch.zeros(g.shape, requires_grad=True) for path, g in GRADS.items()}
    for path, grad in GRADS.items():
        params[path].grad = torch.tensor(grad)
    norm = torch.nn.utils.clip_grad_norm_(params.values(), limit)
    np.testing.assert_allclose(
        optim.global_norm({p: Tensor(g) for p, g in GRADS.items()}), norm, 1e-6
    )
    for path, found in clipped(optim.ClipGlobalNorm(limit)).items():
        np.testing.assert_allclose(found, params[path].grad, 1e-6)


def test_narrow_floats_are_summed_as_wide_ones() -> None:
    grads = {"a": Tensor(np.full(1000, 300.0), "f16")}
    assert float(optim.global_norm(grads)) == pytest.approx(300 * 1000**0.5, 1e-3)
    found = optim.ClipGlobalNorm(1.0)(grads)["a"]
    assert str(found.dtype) == "f16"
    np.testing.assert_allclose(found.astype("f32"), np.full(1000, 1000**-0.5), 1e-2)


def test_no_gradients_have_no_norm() -> None:
    assert optim.ClipGlobalNorm(1.0)({}) == {}
    assert float(optim.global_norm({})) == 0.0
