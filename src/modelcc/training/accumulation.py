"""A batch in equal parts, one after the other, as if it were one."""

from __future__ import annotations

from collections.abc import Mapping

from modelcc.ir.errors import ModelError
from modelcc.tensor.tensor import Tensor
from modelcc.tensor.trees import mapped
from modelcc.training.objective import Batch, Loss, Outcome, differentiated
from modelcc.training.parts import Parts


def accumulated(
    loss: Loss, parts: Parts, tensors: Mapping[str, Tensor], batch: Batch, count: int
) -> tuple[Outcome, dict[str, Tensor]]:
    """As :func:`differentiated`, of ``count`` parts along axis 0: means of all but buffers, which
    pass from part to part."""
    found, grads = differentiated(loss, parts, tensors, _part(batch, 0, count))
    totals, now = found.reported, dict(tensors)
    for number in range(1, count):
        now |= found.buffers
        found, fresh = differentiated(loss, parts, now, _part(batch, number, count))
        totals = {name: totals[name] + x for name, x in found.reported.items()}
        grads = {path: grads[path] + x for path, x in fresh.items()}
    means = {name: total / count for name, total in totals.items()}
    mean_grads = {path: grad * (1.0 / count) for path, grad in grads.items()}
    return Outcome(means.pop("loss"), means, found.buffers), mean_grads


def _part(batch: Batch, number: int, count: int) -> Batch:
    if count == 1:
        return batch

    def taken(x: Tensor) -> Tensor:
        extent = x.shape[0] if x.ndim else None
        if not isinstance(extent, int) or extent % count:
            what = f"a batch of {x.type} cannot be cut into {count} equal parts"
            raise ModelError(what, ("accumulate",), f"give multiples of {count} on axis 0")
        size = extent // count
        return x[size * number : size * (number + 1)]

    args, kwargs = mapped(taken, (tuple(batch.args), dict(batch.kwargs)))
    return Batch(args, kwargs)
