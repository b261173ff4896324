"""A batch in equal parts, one after the other, as if it were one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from modelcc.ir.errors import ModelError
from modelcc.ops.generate import Full
from modelcc.tensor.loops import scan
from modelcc.tensor.tensor import Tensor
from modelcc.tensor.trees import mapped
from modelcc.training.objective import Batch, BatchOutcome, Loss, differentiated
from modelcc.training.parts import ModelParts

Carry = tuple[dict[str, Tensor], dict[str, Tensor]]
"""Sums of gradients, and buffers."""


def accumulated(
    loss: Loss, parts: ModelParts, tensors: Mapping[str, Tensor], batch: Batch, count: int
) -> tuple[BatchOutcome, dict[str, Tensor]]:
    """As :func:`differentiated`, of ``count`` parts along axis 0 in a loop: means of all but
    buffers, which pass from part to part."""
    if count == 1:
        return differentiated(loss, parts, tensors, batch)
    reached: set[str] = set()

    def body(carry: Carry, part: tuple[Any, Any]) -> tuple[Carry, dict[str, Tensor]]:
        sums, buffers = carry
        found, grads = differentiated(loss, parts, {**tensors, **buffers}, Batch(*part))
        reached.update(grads)
        sums = {path: sums[path] + grads[path] if path in grads else sums[path] for path in sums}
        return (sums, found.buffers), found.reported

    zeros = {path: _zeros(tensors[path]) for path in parts.params}
    before = {path: tensors[path] for path in parts.buffers}
    slices = mapped(partial(_cut, count=count), (tuple(batch.args), dict(batch.kwargs)))
    (sums, buffers), reported = scan(body, (zeros, before), slices)
    means = {name: values.mean(0) for name, values in reported.items()}
    grads = {path: sums[path] * (1.0 / count) for path in sums if path in reached}
    return BatchOutcome(means.pop("loss"), means, buffers), grads


def _zeros(like: Tensor) -> Tensor:
    return like.result(Full(like.shape, 0, like.dtype))


def _cut(x: Tensor, count: int) -> Tensor:
    """``x`` as ``[count, n / count, …]``."""
    extent = x.shape[0] if x.ndim else None
    if not isinstance(extent, int) or extent % count:
        what = f"a batch of {x.type} cannot be cut into {count} equal parts"
        raise ModelError(what, ("accumulate",), f"give multiples of {count} on axis 0")
    return x.reshape(count, extent // count, *x.shape[1:])
