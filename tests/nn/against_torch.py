"""Layers and functions beside those of PyTorch: results, and gradients by parameters and inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import modelcc
from modelcc import Tensor, nn
from modelcc.ir.types import Array
from modelcc.nn.functional.values import summed

torch: Any = pytest.importorskip("torch")

TOLERANCE = 1e-9
"""Of f64, relative to the greatest element."""


def leaves(tree: Any) -> list[Any]:
    """Tensors of a result, ours or PyTorch's; None is none."""
    if isinstance(tree, tuple | list):
        return [leaf for part in tree for leaf in leaves(part)]
    return [] if tree is None else [tree]


def assert_close(ours: Any, theirs: Any, what: str, tolerance: float = TOLERANCE) -> None:
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape, f"{what}: {ours.shape} and {theirs.shape}"
    scale = max(1.0, float(np.abs(theirs).max(initial=0)))
    np.testing.assert_allclose(ours, theirs, atol=tolerance * scale, rtol=0, err_msg=what)


def check(
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    arrays: Mapping[str, Array],
    tolerance: float = TOLERANCE,
) -> None:
    """Both functions of arrays by name: results, and gradients by all floats."""
    tensors = {n: torch.tensor(a, requires_grad=a.dtype.kind == "f") for n, a in arrays.items()}
    expected = leaves(theirs(**tensors))
    rng = np.random.default_rng(7)
    weights = [rng.uniform(0.5, 1.5, tuple(e.shape)) for e in expected]
    total = sum((e * torch.tensor(w)).sum() for e, w in zip(expected, weights, strict=True))
    total.backward()

    def loss(chosen: dict[str, Tensor]) -> tuple[Tensor, list[Tensor]]:
        given = {n: chosen[n] if n in chosen else Tensor(a) for n, a in arrays.items()}
        results = leaves(ours(**given))
        sums = [summed(r * Tensor(w)) for r, w in zip(results, weights, strict=True)]
        return sum(sums[1:], sums[0]), results

    floats = {n: Tensor(a) for n, a in arrays.items() if a.dtype.kind == "f"}
    (_, results), found = modelcc.value_and_grad(loss, has_aux=True)(floats)
    for i, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        assert_close(result, wanted.detach(), f"result {i}", tolerance)
    for name, gradient in found.items():
        wanted = tensors[name].grad
        wanted = np.zeros(arrays[name].shape) if wanted is None else wanted
        assert_close(gradient, wanted, f"gradient by {name}", tolerance)


def check_layer(
    ours: nn.Module, theirs: Any, *inputs: Array, tolerance: float = TOLERANCE, **options: Any
) -> None:
    """Both modules with the parameters of PyTorch's, in f64, and buffers afterwards."""
    theirs = theirs.double()
    ours = ours.astype("f64")
    state = theirs.state_dict()
    assert {n: tuple(t.shape) for n, t in state.items()} == {
        n: t.shape for n, t in ours.state_dict().items()
    }
    ours.load_state_dict(state)
    parameters = {n: p.detach().numpy().copy() for n, p in theirs.named_parameters()}
    assert set(parameters) == set(ours.parameters())
    kept: list[nn.Module] = []

    def split(arrays: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        own = {n: a for n, a in arrays.items() if n in parameters}
        return own, [arrays[f"input{i}"] for i in range(len(inputs))]

    def mine(**arrays: Any) -> Any:
        own, given = split(arrays)
        module = ours.with_parameters(own)
        kept[:] = [module]
        return module(*given, **options)

    def their(**arrays: Any) -> Any:
        own, given = split(arrays)
        return torch.func.functional_call(theirs, own, tuple(given), options)

    named = {f"input{i}": array for i, array in enumerate(inputs)}
    check(mine, their, {**parameters, **named}, tolerance)
    buffers = dict(theirs.named_buffers())
    for name, tensor in kept[0].buffers().items():
        if name in buffers:
            assert_close(tensor, buffers[name], name, tolerance)


def normal(*shape: int, seed: int = 0) -> Array:
    """Numbers of f64."""
    return np.random.default_rng((seed, *shape)).normal(size=shape)


def table(*rows: tuple[Any, ...]) -> Sequence[Any]:
    """Cases of a matrix, the first of each row its name."""
    return [pytest.param(*row[1:], id=row[0]) for row in rows]
