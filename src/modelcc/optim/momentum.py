"""Optimisers that move along a running mean of gradients: SGD and Lion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modelcc.ir.errors import ModelError
from modelcc.ir.types import F64
from modelcc.numpy import where
from modelcc.optim.optimizer import Moment, PerParameter, Rate
from modelcc.tensor.tensor import Tensor


@dataclass(frozen=True)
class SGD(PerParameter):
    """Gradient descent, with momentum (Sutskever et al. 2013) if that is not 0; as torch's."""

    learning_rate: Rate = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        if self.nesterov and (self.momentum <= 0 or self.dampening):
            raise ModelError("nesterov needs a momentum and no dampening", (type(self).__name__,))

    def slots(self) -> Mapping[str, float]:
        return {"momentum_buffer": 0.0} if self.momentum else {}

    def rule(
        self, at: Moment, param: Tensor, grad: Tensor, kept: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        rate = at.rate_as(param.dtype)
        if self.weight_decay:
            grad = grad + param * self.weight_decay
        if not self.momentum:
            return param - grad * rate, {}
        fresh = grad
        if self.dampening:  # the first gradient is not dampened
            share = where(at.count <= 1.0, Tensor(1.0, F64), Tensor(1.0 - self.dampening, F64))
            fresh = grad * share.astype(param.dtype)
        buffer = kept["momentum_buffer"] * self.momentum + fresh
        way = grad + buffer * self.momentum if self.nesterov else buffer
        return param - way * rate, {"momentum_buffer": buffer}


@dataclass(frozen=True)
class Lion(PerParameter):
    """The sign of a mean of gradients (Chen et al., "Symbolic discovery of optimization
    algorithms", 2023), with decoupled weight decay."""

    learning_rate: Rate = 1e-4
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0

    def slots(self) -> Mapping[str, float]:
        return {"exp_avg": 0.0}

    def rule(
        self, at: Moment, param: Tensor, grad: Tensor, kept: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        rate, mean = at.rate_as(param.dtype), kept["exp_avg"]
        way = mixed(mean, grad, self.betas[0])
        if self.weight_decay:
            param = param * (1.0 - rate * self.weight_decay)
        param = param - way.sign() * rate
        return param, {"exp_avg": mixed(mean, grad, self.betas[1])}


def mixed(mean: Tensor, fresh: Tensor, decay: float) -> Tensor:
    """``decay`` times the running mean plus ``1 - decay`` times ``fresh``."""
    return mean + (fresh - mean) * (1.0 - decay)
