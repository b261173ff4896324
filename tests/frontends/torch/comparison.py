"""A function of tensors compiled through torch.export, beside eager execution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import modelcc

torch: Any = pytest.importorskip("torch")

from modelcc.frontends.torch import import_exported  # noqa: E402
from modelcc.frontends.torch.dtypes import array_of  # noqa: E402

__all__ = ["array_of", "check", "compare", "compiled", "torch"]


class Function(torch.nn.Module):
    """A module of a plain function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *xs: Any) -> Any:
        return self._function(*xs)


def compiled(function: Callable[..., Any], xs: Sequence[Any], named: Any = None) -> Any:
    """``function`` as a compiled model; ``named`` are dynamic shapes of ``torch.export``."""
    shapes = None if named is None else (tuple(named),)
    program = torch.export.export(Function(function), tuple(xs), dynamic_shapes=shapes)
    return modelcc.compile(import_exported(program), cache=None)


def check(function: Callable[..., Any], *xs: Any, rtol: float = 2e-5) -> None:
    """What is compiled gives what eager execution gives: types, shapes and elements."""
    compare(compiled(function, xs), function, xs, rtol)


def compare(net: Any, function: Callable[..., Any], xs: Sequence[Any], rtol: float = 2e-5) -> None:
    found, wanted = net(*(x.numpy() for x in xs)), function(*xs)
    leaves = torch.utils._pytree.tree_leaves
    for ours, theirs in zip(leaves(found), leaves(wanted), strict=True):
        expected = theirs.contiguous().numpy()
        assert (ours.dtype, ours.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(ours, expected, rtol=rtol, atol=1e-6, equal_nan=True)
