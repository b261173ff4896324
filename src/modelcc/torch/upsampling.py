"""Linear interpolation in traced graphs: operators that are not decomposed, forward and backward.

PyTorch's own decompositions compute ``a + (b - a) * w``, which is NaN between equal infinities and
where ``b - a`` overflows; its kernels compute a weighted sum.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import fx
from torch._dispatch.python import no_python_dispatcher

_aten = torch.ops.aten
_LINEAR: dict[tuple[str, int], Any] = {
    ("linear", 1): _aten.upsample_linear1d.default,
    ("bilinear", 2): _aten.upsample_bilinear2d.default,
}
"""Operators by mode and number of axes."""


def keep_upsampling(module: fx.GraphModule) -> None:
    """Makes the linear interpolations of ``module`` be traced as operators."""
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target is torch.nn.functional.interpolate:
            node.target = _interpolate
    module.recompile()


def _interpolate(
    x: torch.Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> torch.Tensor:  # fmt: skip
    """As ``torch.nn.functional.interpolate``, which has checked the arguments while tracing.

    For symbolic extents, gradients need PyTorch's decompositions.
    """
    rank = x.dim() - 2
    factors, sizes = _each(scale_factor, rank), _each(size, rank)
    operator = None if antialias or recompute_scale_factor else _LINEAR.get((mode, rank))
    known = all(isinstance(e, int | float) for e in (*x.size(), *(sizes or factors or ())))
    if operator is None or not known or not x.is_floating_point():
        return torch.nn.functional.interpolate(
            x, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
        )
    shape = sizes or [int(e * f) for e, f in zip(x.shape[2:], factors or (), strict=True)]
    with no_python_dispatcher():  # PyTorch's decompositions depend on it, below autograd and in it
        return operator(x, shape, bool(align_corners), *(factors or [None] * rank))


def _each(given: Any, rank: int) -> list[Any] | None:
    if given is None:
        return None
    many = cast(Iterable[Any], given)
    return list(many) if isinstance(given, list | tuple) else [given] * rank
