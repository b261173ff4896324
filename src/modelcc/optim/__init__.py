"""Optimisers, learning rates and clipping: pure functions of dicts of tensors by their paths.

>>> from modelcc import Tensor, optim
>>> rule = optim.SGD(0.5)
>>> params = {"weight": Tensor([1.0, 2.0])}
>>> state = rule.init(params)
>>> params, state = rule.update({"weight": Tensor([2.0, 0.0])}, state, params)
>>> params["weight"]
Tensor([0., 2.], dtype=float32)
"""

from modelcc.optim.adaptive import Adagrad, Adam, AdamW, RMSprop
from modelcc.optim.clipping import ClipGlobalNorm, ClipNorm, ClipValue, global_norm
from modelcc.optim.groups import Groups
from modelcc.optim.momentum import SGD, Lion
from modelcc.optim.optimizer import Optimizer, PerParameter, Rate, State, Tensors
from modelcc.optim.schedules import (
    Constant,
    Cosine,
    Exponential,
    OneCycle,
    Piecewise,
    Polynomial,
    StepDecay,
    Warmup,
)

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "ClipGlobalNorm",
    "ClipNorm",
    "ClipValue",
    "Constant",
    "Cosine",
    "Exponential",
    "Groups",
    "Lion",
    "OneCycle",
    "Optimizer",
    "PerParameter",
    "Piecewise",
    "Polynomial",
    "RMSprop",
    "Rate",
    "State",
    "StepDecay",
    "Tensors",
    "Warmup",
    "global_norm",
]
