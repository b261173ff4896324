"""The interface of optimisers: an initial state, and an update of parameters and state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from modelcc.ir.errors import ModelError
from modelcc.ir.types import F64, I64, DType
from modelcc.ops.generate import Full
from modelcc.tensor.tensor import Tensor

Tensors = Mapping[str, Tensor]
"""Tensors by path: parameters, gradients, moments."""

State = dict[str, Any]
"""A nested dict of tensors: ``step``, and a dict by path for each kind of moment."""

Rate = float | Callable[[Tensor], Tensor]
"""A learning rate, or a schedule: a function of the number of updates so far, an i64 scalar."""


class Optimizer(Protocol):
    """Anything with :meth:`init` and :meth:`update`."""

    def init(self, params: Tensors) -> State:
        """The state before the first update of ``params``."""
        ...

    def update(
        self, grads: Tensors, state: State, params: Tensors
    ) -> tuple[dict[str, Tensor], State]:
        """Parameters and state after one update; neither argument changes."""
        ...


@dataclass(frozen=True)
class Moment:
    """The scalars of one update, f64: the learning ``rate`` and ``count``, 1 at the first one."""

    rate: Tensor
    count: Tensor

    def rate_as(self, dtype: DType) -> Tensor:
        """The learning rate as a number of ``dtype``."""
        return self.rate.astype(dtype)


@dataclass(frozen=True)
class PerParameter(ABC):
    """Base of optimisers that update each parameter independently, by a :meth:`rule`."""

    learning_rate: Rate = 1e-3

    def slots(self) -> Mapping[str, float]:
        """Names of the state tensors of each parameter, and their initial values."""
        return {}

    @abstractmethod
    def rule(
        self, at: Moment, param: Tensor, grad: Tensor, kept: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The parameter and its slots after an update."""

    def init(self, params: Tensors) -> State:
        """The state before the first update of ``params``, which are floats."""
        for path, param in params.items():
            _require_float(path, param)
        state: State = {"step": Tensor(0, I64)}
        for slot, value in self.slots().items():
            state[slot] = {path: _filled(p, value) for path, p in params.items()}
        return state

    def update(
        self, grads: Tensors, state: State, params: Tensors
    ) -> tuple[dict[str, Tensor], State]:
        """Parameters and state after one update; parameters without a gradient are unchanged."""
        _require_known(grads, params)
        step: Tensor = state["step"]
        at = Moment(rate_at(self.learning_rate, step), step.astype(F64) + 1.0)
        made: dict[str, Tensor] = {}
        slots: dict[str, dict[str, Tensor]] = {slot: {} for slot in self.slots()}
        for path, param in params.items():
            kept: dict[str, Tensor] = {slot: state[slot][path] for slot in slots}
            if path in grads:
                made[path], kept = self.rule(at, param, grads[path].astype(param.dtype), kept)
            else:
                made[path] = param
            for slot, value in kept.items():
                slots[slot][path] = value
        return made, {"step": step + 1, **slots}


def rate_at(rate: Rate, step: Tensor) -> Tensor:
    """The learning rate at ``step``, an f64 scalar."""
    return rate(step).astype(F64) if callable(rate) else Tensor(rate, F64)


def _filled(like: Tensor, value: float) -> Tensor:
    return like.result(Full(like.shape, value, like.dtype))


def _require_float(path: str, param: Tensor) -> None:
    if not param.dtype.is_float:
        hint = "keep it as a buffer, or cast it"
        raise ModelError(f"parameter {path!r} is {param.type}, which has no gradient", (), hint)


def _require_known(grads: Tensors, params: Tensors) -> None:
    unknown = [path for path in grads if path not in params]
    if unknown:
        known = ", ".join(params) or "none"
        raise ModelError(f"there is a gradient of {unknown[0]!r}, which is no parameter", (),
                         f"parameters: {known}")  # fmt: skip
