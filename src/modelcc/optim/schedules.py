"""Learning rate schedules: functions of the number of updates so far, an i64 scalar tensor.

They compute in f64, as a schedule of a million steps needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi

from modelcc.ir.errors import ModelError
from modelcc.ir.types import F64
from modelcc.numpy import where
from modelcc.optim.optimizer import Rate, rate_at
from modelcc.tensor.tensor import Tensor


@dataclass(frozen=True)
class Constant:
    """``rate`` at any step."""

    rate: float

    def __call__(self, step: Tensor) -> Tensor:
        return rate_at(self.rate, step)


@dataclass(frozen=True)
class StepDecay:
    """``rate`` times ``factor`` after each ``every`` steps."""

    rate: float
    every: int
    factor: float = 0.1

    def __call__(self, step: Tensor) -> Tensor:
        return self.factor ** (step.astype(F64) // self.every) * self.rate


@dataclass(frozen=True)
class Exponential:
    """``rate * factor ** (step / every)``."""

    rate: float
    factor: float
    every: int = 1

    def __call__(self, step: Tensor) -> Tensor:
        return self.factor ** (step.astype(F64) / self.every) * self.rate


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from ``rate`` to ``end`` in ``steps`` steps (Loshchilov and Hutter 2017)."""

    rate: float
    steps: int
    end: float = 0.0

    def __call__(self, step: Tensor) -> Tensor:
        return annealed(self.rate, self.end, (step.astype(F64) / self.steps).minimum(1.0))


@dataclass(frozen=True)
class Polynomial:
    """From ``rate`` to ``end`` in ``steps`` steps, as a power of the remaining share; 1: linear."""

    rate: float
    steps: int
    power: float = 1.0
    end: float = 0.0

    def __call__(self, step: Tensor) -> Tensor:
        left = 1.0 - (step.astype(F64) / self.steps).minimum(1.0)
        return left**self.power * (self.rate - self.end) + self.end


@dataclass(frozen=True)
class Warmup:
    """``schedule``, after a linear warmup to its first rate in ``steps`` steps.

    The warmup begins at ``start`` times that rate.
    """

    schedule: Rate
    steps: int
    start: float = 0.0

    def __call__(self, step: Tensor) -> Tensor:
        first = rate_at(self.schedule, Tensor(0, "i64"))
        done = step.astype(F64) / self.steps
        line = first * (done * (1.0 - self.start) + self.start)
        later = rate_at(self.schedule, (step - self.steps).maximum(0))
        return where(step < self.steps, line, later)


@dataclass(frozen=True)
class OneCycle:
    """Up to ``rate`` in a share ``warm`` of ``steps``, then down (Smith and Topin 2018).

    It begins at ``rate / divisor`` and ends at a ``final`` part of that; cosines, as torch's
    ``OneCycleLR``.
    """

    rate: float
    steps: int
    warm: float = 0.3
    divisor: float = 25.0
    final: float = 1e4

    def __call__(self, step: Tensor) -> Tensor:
        first = self.rate / self.divisor
        top, last = self.warm * self.steps - 1.0, self.steps - 1.0
        place = step.astype(F64).minimum(last)
        up = annealed(first, self.rate, place / top)
        down = annealed(self.rate, first / self.final, (place - top) / (last - top))
        return where(place <= top, up, down)


@dataclass(frozen=True)
class Piecewise:
    """``rates[i]`` until step ``boundaries[i]``, then the last one."""

    boundaries: Sequence[int]
    rates: Sequence[float]

    def __post_init__(self) -> None:
        ordered = list(self.boundaries) == sorted(self.boundaries)
        if len(self.rates) != len(self.boundaries) + 1 or not ordered:
            raise ModelError(
                f"{len(self.rates)} rates for {len(self.boundaries)} boundaries", ("Piecewise",),
                "give boundaries in order, and one more rate than boundaries",
            )  # fmt: skip

    def __call__(self, step: Tensor) -> Tensor:
        found = Tensor(self.rates[-1], F64)
        for boundary, rate in reversed(list(zip(self.boundaries, self.rates[:-1], strict=True))):
            found = where(step < boundary, Tensor(rate, F64), found)
        return found


def annealed(start: float, end: float, done: Tensor) -> Tensor:
    """Cosine interpolation between ``start`` and ``end``, at the fraction ``done``."""
    cosine = (done * pi).cos()
    return (cosine + 1.0) * (0.5 * (start - end)) + end
