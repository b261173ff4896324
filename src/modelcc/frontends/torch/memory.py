"""Memory layouts of tensors, from PyTorch's strides."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true


def memory_order(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Axes of ``tensor`` from the outermost to the innermost; None if it is not dense.

    If extents or strides are symbolic, it is dense if that holds for all of their values.
    """
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    plain = tuple(range(len(shape)))
    hints = [hint(s) for s in strides]
    if None in hints:
        return plain if _is_dense(plain, shape, strides) else None
    order = tuple(sorted(plain, key=lambda axis: -cast(int, hints[axis])))
    return next((o for o in (plain, order) if _is_dense(o, shape, strides)), None)


def _is_dense(order: tuple[int, ...], shape: tuple[Any, ...], strides: tuple[Any, ...]) -> bool:
    expected: Any = 1
    for axis in reversed(order):
        single = statically_known_true(shape[axis] == 1)
        if not single and not statically_known_true(strides[axis] == expected):
            return False
        expected = expected * shape[axis]
    return True


def hint(size: Any) -> int | None:
    """The value that a size or stride had during tracing, if known."""
    return size if isinstance(size, int) else size.node.hint


def inverted(order: tuple[int, ...]) -> tuple[int, ...]:
    """The inverse permutation of ``order``."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))
