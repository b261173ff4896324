"""NaN and infinities where PyTorch says what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.frontends.torch.comparison import torch

F = torch.nn.functional


def special(*shape: int) -> Any:
    """Numbers, of which a tenth is NaN and a tenth infinite."""
    x = torch.randn(shape)
    for value in (torch.nan, torch.inf, -torch.inf):
        x[torch.rand(shape) < (0.1 if value != value else 0.05)] = value
    return x


def agree(function: Callable[..., Any], *xs: Any) -> None:
    """Results and gradients of ``torch.compile`` are those of eager execution."""
    torch._dynamo.reset()
    found = [results(f, xs) for f in (torch.compile(function, backend="modelcc"), function)]
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, 2e-5, 1e-6, equal_nan=True)


def results(function: Callable[..., Any], xs: tuple[Any, ...]) -> list[np.ndarray]:
    leaves = [x.clone().requires_grad_() for x in xs]
    made = function(*leaves)
    made = made if isinstance(made, tuple) else (made,)
    weights = torch.arange(made[0].numel()).remainder(7).reshape(made[0].shape)
    made[0].backward(weights.to(made[0].dtype))
    return [t.detach().numpy() for t in (*made, *(x.grad for x in leaves))]


POOLS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "padded": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), (2, 16, 17, 18)),
    "values alone": (lambda x: F.max_pool2d(x, 3, 2, 1), (2, 3, 17, 18)),
    "side by side": (lambda x: F.max_pool2d(x, 2, return_indices=True), (2, 3, 12, 40)),
    "line": (lambda x: F.max_pool1d(x, 3, 2, 1), (2, 3, 20)),
    "volume": (lambda x: F.max_pool3d(x, 3, 2, 1, return_indices=True), (1, 2, 8, 8, 8)),
    "even": (lambda x: F.adaptive_max_pool2d(x, 4, return_indices=True), (2, 3, 12, 8)),
    "uneven": (lambda x: F.adaptive_max_pool2d(x, 4, return_indices=True), (2, 3, 17, 18)),
}


@pytest.mark.parametrize("name", POOLS)
def test_max_pools_keep_nan(name: str) -> None:
    torch.manual_seed(0)
    function, shape = POOLS[name]
    agree(function, special(*shape))


def test_fractional_max_pools_keep_nan() -> None:
    torch.manual_seed(0)
    u = torch.rand(2, 3, 2)

    def pool(x: Any) -> Any:
        return F.fractional_max_pool2d(x, 3, output_size=6, return_indices=True, _random_samples=u)

    agree(pool, special(2, 3, 20, 20))


@pytest.mark.parametrize("shape", [(2, 3, 17, 18), (2, 3, 12, 18)], ids=["both axes", "one axis"])
def test_averages_of_uneven_windows_see_their_own_elements(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    x[0, 0, 3, 4], x[1, 2, 0, 0], x[1, 1, 5, 5] = torch.inf, torch.nan, -torch.inf
    agree(lambda x: F.adaptive_avg_pool2d(x, 4), x)


EDGES = (torch.nan, torch.inf, -torch.inf, 3e38, -3e38, 20.0, -20.0, 0.5, -0.5, 0.0)


def at_edges() -> Any:
    """Full vectors of each value: PyTorch computes what is left over by other rules."""
    return torch.tensor(EDGES).repeat_interleave(64)


ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "softshrink": F.softshrink,
    "elu": lambda x: F.elu(x, 0.7),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 1.3),
    "mish": F.mish,
    "silu": F.silu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "tanh": torch.tanh,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_and_their_gradients_at_edges(name: str) -> None:
    agree(ACTIVATIONS[name], at_edges())


def test_the_gradient_of_hardswish_at_edges() -> None:
    """PyTorch's result for 3e38 overflows on the way."""
    x = at_edges()
    agree(F.hardswish, x[x.abs() != 3e38])


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("beta", [1.0, 0.3])
def test_the_gradient_of_a_smooth_loss_at_edges(reduction: str, beta: float) -> None:
    x, target = torch.meshgrid(torch.tensor(EDGES), torch.tensor(EDGES), indexing="ij")
    kept = ~((x.abs() == 3e38) & (target.abs() == 3e38))

    def loss(x: Any, target: Any) -> Any:
        return F.smooth_l1_loss(x, target, reduction=reduction, beta=beta)

    agree(loss, x[kept], target[kept])


@pytest.mark.parametrize(
    ("mode", "shape"), [("linear", (2, 4, 17)), ("bilinear", (2, 4, 9, 11))], ids=["line", "image"]
)
def test_interpolation_keeps_infinities(mode: str, shape: tuple[int, ...]) -> None:
    """Those that are next to each other, and numbers whose difference overflows.

    At borders PyTorch multiplies the neighbour by 0, which is NaN where it is infinite.
    """
    torch.manual_seed(0)
    x = torch.randn(shape)
    x[0, 0], x[0, 1, ..., ::2], x[0, 1, ..., 1::2] = torch.inf, 3e38, -3e38
    x[1, 0, ..., 3], x[1, 1, ..., 4] = -torch.inf, torch.nan

    def doubled(x: Any) -> Any:
        return F.interpolate(x, scale_factor=2, mode=mode)

    torch._dynamo.reset()
    ours, theirs = (results(f, (x,)) for f in (torch.compile(doubled, backend="modelcc"), doubled))
    wanted = ~np.isnan(theirs[0])
    assert wanted[0, ..., 2:-2].mean() > 0.7
    np.testing.assert_allclose(ours[0][wanted], theirs[0][wanted], 2e-5, 1e-6)
    np.testing.assert_allclose(ours[1], theirs[1], 2e-5, 1e-6)
