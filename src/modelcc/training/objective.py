"""Objectives: a function of the model and a batch, and its reported values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from modelcc.ir.errors import ModelError
from modelcc.tensor.gradients import recorded
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.reverse import gradients
from modelcc.tensor.tensor import Tensor
from modelcc.training.parts import ModelParts

Loss = Callable[..., Any]
"""``loss(model, *batch)``: one float, or a pair of it and a dict of metrics."""


@dataclass(frozen=True)
class BatchOutcome:
    """Results for a batch: the ``loss``, metrics by name, and the model's updated buffers."""

    loss: Tensor
    metrics: dict[str, Tensor]
    buffers: dict[str, Tensor]

    @property
    def reported(self) -> dict[str, Tensor]:
        """The values for the caller."""
        return {"loss": self.loss, **self.metrics}


@dataclass(frozen=True)
class Batch:
    """Arguments of a loss after the model."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]


def outcome(loss: Loss, parts: ModelParts, model: Any, batch: Batch) -> BatchOutcome:
    """The ``loss`` of ``model``, an unshared copy; :class:`ModelError` if it is not a loss."""
    result = loss(model, *batch.args, **batch.kwargs)
    value, metrics = _pair(result)
    if not isinstance(value, Tensor) or value.shape or not value.dtype.is_float:
        given = value.type if isinstance(value, Tensor) else type(value).__name__
        raise ModelError(f"a loss is one float, and the function returned {given}",
                         callers_line(), "take the mean or the sum of it")  # fmt: skip
    return BatchOutcome(value, _metrics(metrics), parts.buffers_of(model))


def _pair(result: Any) -> tuple[Any, Any]:
    return cast("tuple[Any, Any]", result) if isinstance(result, tuple) else (result, {})


def _metrics(given: Any) -> dict[str, Tensor]:
    if not isinstance(given, dict) or "loss" in given:
        raise ModelError(f"metrics are a dict by name, and the function returned {given!r}",
                         callers_line(), 'return loss, {"accuracy": …}')  # fmt: skip
    metrics = cast("dict[str, Any]", given)
    return {name: x if isinstance(x, Tensor) else Tensor(x) for name, x in metrics.items()}


def differentiated(
    loss: Loss, parts: ModelParts, tensors: Mapping[str, Tensor], batch: Batch
) -> tuple[BatchOutcome, dict[str, Tensor]]:
    """The outcome of the model with ``tensors``, and gradients of its trainable parameters."""
    params = {path: recorded(tensors[path]) for path in parts.params}
    found = outcome(loss, parts, parts.rebuilt({**tensors, **params}), batch)
    one = Tensor(1.0, found.loss.dtype)
    grads = gradients([found.loss], [one], list(params.values()))
    pairs = zip(params, grads, strict=True)
    return found, {path: grad for path, grad in pairs if grad is not None}
