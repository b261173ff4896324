"""Optimisers that scale each element by its gradient history: Adam, AdamW, Adagrad, RMSprop.

Defaults and formulas are torch's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modelcc.optim.momentum import mixed
from modelcc.optim.optimizer import Moment, PerParameter, Rate
from modelcc.tensor.tensor import Tensor


@dataclass(frozen=True)
class Adam(PerParameter):
    """Kingma and Ba, "Adam" (2015), with bias correction; ``amsgrad``: Reddi et al. (2018).
    ``weight_decay`` is added to the gradient."""

    learning_rate: Rate = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False

    def slots(self) -> Mapping[str, float]:
        names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
        return dict.fromkeys(names if self.amsgrad else names[:2], 0.0)

    def rule(
        self, at: Moment, param: Tensor, grad: Tensor, kept: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        param, grad = self.decayed(at, param, grad)
        squares = kept["exp_avg_sq"] * self.betas[1] + grad * grad * (1.0 - self.betas[1])
        now = {"exp_avg": mixed(kept["exp_avg"], grad, self.betas[0]), "exp_avg_sq": squares}
        if self.amsgrad:
            squares = now["max_exp_avg_sq"] = kept["max_exp_avg_sq"].maximum(squares)
        first = 1.0 - self.betas[0] ** at.count
        second = (1.0 - self.betas[1] ** at.count).sqrt()
        scale = squares.sqrt() / second.astype(param.dtype) + self.eps
        return param - now["exp_avg"] / scale * (at.rate / first).astype(param.dtype), now

    def decayed(self, at: Moment, param: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Parameter and gradient with weight decay."""
        return param, grad + param * self.weight_decay if self.weight_decay else grad


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with weight decay on the parameter itself (Loshchilov and Hutter 2019)."""

    weight_decay: float = 1e-2

    def decayed(self, at: Moment, param: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        kept = (1.0 - at.rate * self.weight_decay).astype(param.dtype)
        return param * kept if self.weight_decay else param, grad


@dataclass(frozen=True)
class Adagrad(PerParameter):
    """Duchi et al. (2011): rates fall with the sum of the squares of past gradients."""

    learning_rate: Rate = 1e-2
    lr_decay: float = 0.0
    weight_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10

    def slots(self) -> Mapping[str, float]:
        return {"sum": self.initial_accumulator_value}

    def rule(
        self, at: Moment, param: Tensor, grad: Tensor, kept: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        if self.weight_decay:
            grad = grad + param * self.weight_decay
        rate = at.rate / (1.0 + (at.count - 1.0) * self.lr_decay) if self.lr_decay else at.rate
        total = kept["sum"] + grad * grad
        scaled = grad / (total.sqrt() + self.eps)
        return param - scaled * rate.astype(param.dtype), {"sum": total}


@dataclass(frozen=True)
class RMSprop(PerParameter):
    """Hinton's running mean of squares; ``centered``: by the variance (Graves 2013)."""

    learning_rate: Rate = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False

    def slots(self) -> Mapping[str, float]:
        names = ["square_avg"]
        names += ["grad_avg"] if self.centered else []
        names += ["momentum_buffer"] if self.momentum else []
        return dict.fromkeys(names, 0.0)

    def rule(
        self, at: Moment, param: Tensor, grad: Tensor, kept: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        if self.weight_decay:
            grad = grad + param * self.weight_decay
        squares = kept["square_avg"] * self.alpha + grad * grad * (1.0 - self.alpha)
        now, spread = {"square_avg": squares}, squares
        if self.centered:
            mean = now["grad_avg"] = mixed(kept["grad_avg"], grad, self.alpha)
            spread = squares - mean * mean
        way = grad / (spread.sqrt() + self.eps)
        if self.momentum:
            way = now["momentum_buffer"] = kept["momentum_buffer"] * self.momentum + way
        return param - way * at.rate_as(param.dtype), now
