"""Operators on lists of tensors, as used by optimizers, applied tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import MappingProxyType
from typing import Any, cast

import torch

_ALIKE = (
    *("abs", "neg", "sign", "reciprocal", "sqrt", "rsqrt", "exp", "expm1", "erf", "erfc", "lgamma"),
    *("log", "log10", "log1p", "log2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh"),
    *("tanh", "sigmoid", "ceil", "floor", "round", "trunc", "frac"),
    *("add", "sub", "mul", "div", "pow", "lerp", "clamp_min", "clamp_max", "maximum", "minimum"),
)
"""Operators with a counterpart for single tensors that has the same name and arguments."""


def _added(fn: Callable[..., Any], x: Any, first: Any, second: Any, value: Any = 1) -> Any:
    return fn(x, first, second, value=value)


def _norm(x: torch.Tensor, order: Any = 2, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.linalg.vector_norm(x, order, dtype=dtype)


def _copied(x: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    del non_blocking
    return source.to(x.dtype).expand(x.shape)


_OTHERS = MappingProxyType[str, Callable[..., Any]](
    {
        "maximum.Scalar": torch.ops.aten.clamp_min,
        "maximum.ScalarList": torch.ops.aten.clamp_min,
        "minimum.Scalar": torch.ops.aten.clamp_max,
        "minimum.ScalarList": torch.ops.aten.clamp_max,
        "addcmul.Scalar": partial(_added, torch.ops.aten.addcmul),
        "addcmul.ScalarList": partial(_added, torch.ops.aten.addcmul),
        "addcdiv.Scalar": partial(_added, torch.ops.aten.addcdiv),
        "addcdiv.ScalarList": partial(_added, torch.ops.aten.addcdiv),
        "norm.Scalar": _norm,
        "zero.default": torch.zeros_like,
        "clone.default": torch.ops.aten.clone,
        "copy.default": _copied,
    }
)
"""The single-tensor form of the others, by names and overloads."""


def foreach_rules() -> dict[Any, Callable[..., list[torch.Tensor]]]:
    """A decomposition of each functional operator on lists of tensors."""
    return {op: partial(_by_tensor, single) for op, single in _operators()}


def _operators() -> Iterator[tuple[Any, Callable[..., Any]]]:
    names = dict.fromkeys((*_ALIKE, *(name.partition(".")[0] for name in _OTHERS)))
    for name in names:
        packet: Any = getattr(torch.ops.aten, f"_foreach_{name}", None)  # of later versions
        for overload in () if packet is None else packet.overloads():
            op, alike = getattr(packet, overload), getattr(torch.ops.aten, name, None)
            single = _OTHERS.get(f"{name}.{overload}", alike if name in _ALIKE else None)
            if single is not None and not op._schema.is_mutable:
                yield op, single


def _by_tensor(single: Callable[..., Any], *given: Any, **named: Any) -> list[torch.Tensor]:
    """``single`` applied to corresponding elements of the list arguments; other arguments are
    passed as they are."""
    count = next(len(cast("list[Any]", a)) for a in given if isinstance(a, list | tuple))
    return [
        single(*(a[n] if isinstance(a, list | tuple) else a for a in given), **named)
        for n in range(count)
    ]
