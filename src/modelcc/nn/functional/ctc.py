"""Connectionist temporal classification: a loss for sequences without alignments.

Graves et al., "Connectionist temporal classification", 2006.  A target of S classes has 2 S + 1
states, blanks between and around its classes; the probability of all alignments that end in a state
is summed step by step (the forward algorithm).
"""

from __future__ import annotations

from typing import Any

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index
from modelcc.ir.types import BOOL, I64
from modelcc.nn.functional.losses import Reduction, reduced
from modelcc.nn.functional.values import (
    as_tensor,
    expanded,
    filled,
    joined,
    of,
    part,
    reshaped,
    where,
)
from modelcc.ops.arithmetic import Value
from modelcc.ops.arithmetic import of as made
from modelcc.ops.comparison import Max
from modelcc.ops.comparison import where as choose
from modelcc.ops.gather_elements import GatherElements
from modelcc.ops.generate import Full, Iota
from modelcc.ops.iteration import Iteration, iterated
from modelcc.ops.shape import Concat
from modelcc.ops.transcendental import Exp, Log
from modelcc.ops.views import part as view
from modelcc.tensor.builder import TensorBuilder
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.tensor import Tensor

NEVER = -1e30
"""The logarithm of probability 0, far enough from infinity to be added to."""
IMPOSSIBLE = NEVER / 2
"""Logarithms below are treated as impossible."""


def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: Reduction = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """``-log`` of the probability of targets ``[N, S]``, given log_probs ``[T, N, C]``.

    Lengths are ``[N]``.  The mean is over the batch, of losses divided by target lengths.  The loss
    of impossible alignments is infinite, with ``zero_infinity`` 0.
    """
    log_probs, targets = as_tensor(log_probs), as_tensor(targets).cast(I64)
    input_lengths = as_tensor(input_lengths).cast(I64)
    target_lengths = as_tensor(target_lengths).cast(I64)
    _check(log_probs, targets, input_lengths, target_lengths)
    last = _over_time(log_probs, targets, input_lengths, target_lengths, blank)
    costs = -_ending(last, target_lengths)
    possible = costs < -IMPOSSIBLE
    costs = where(possible, costs, 0.0 if zero_infinity else float("inf"))
    if reduction != "mean":
        return reduced(costs, reduction)
    counts = where(target_lengths > 1, target_lengths, 1).cast(costs.dtype)
    return reduced(costs / counts, "mean")


def _check(log_probs: Tensor, targets: Tensor, *lengths: Tensor) -> None:
    if log_probs.ndim != 3 or targets.ndim != 2 or any(x.ndim != 1 for x in lengths):
        raise ModelError(
            f"ctc_loss of {log_probs.type}, targets {targets.type} and lengths "
            f"{' and '.join(str(x.type) for x in lengths)}",
            callers_line(),
            "give [time, batch, classes], [batch, length], [batch] and [batch]",
        )


def _over_time(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int
) -> Tensor:
    """Log-probabilities of each state ``[N, 2 S + 1]`` at the end of each sequence."""
    time, batch, _ = log_probs.shape
    states = targets.shape[1] * 2 + 1
    labels = _labels(targets, target_lengths, blank)
    places = expanded(reshaped(labels, 1, batch, states), time, batch, states)
    emitted = of(GatherElements(2, signed=False), log_probs, places)
    skips = where(_skips(labels, blank), filled(log_probs, 0.0, 1, 1), NEVER)
    clock = log_probs.result(Iota((time, 1, 1), 0, 0, 1, I64))
    alive = clock < reshaped(input_lengths, 1, batch, 1)
    place = log_probs.result(Iota((batch, states), 1, 0, 1, I64))
    before = where(place == 0, filled(log_probs, 0.0, 1, 1), NEVER)
    return _iterated(time, before, {"emitted": emitted, "skips": skips, "alive": alive})


def _labels(targets: Tensor, lengths: Tensor, blank: int) -> Tensor:
    """Classes of the states ``[N, 2 S + 1]``, blanks beyond a target."""
    batch, size = targets.shape
    place = targets.result(Iota((1, size), 1, 0, 1, I64))
    own = where(place < reshaped(lengths, batch, 1), targets, blank)
    blanks = expanded(reshaped(targets.of_number(blank, I64), 1, 1), batch, size)
    pairs = joined([reshaped(blanks, batch, size, 1), reshaped(own, batch, size, 1)], 2)
    whole = reshaped(pairs, batch, size * 2)
    return joined([whole, part(blanks, 1, 0, 1)], 1)


def _skips(labels: Tensor, blank: int) -> Tensor:
    """Whether a state may follow the one two before: a class different from the previous one."""
    batch, states = labels.shape
    before = part(labels, 1, 0, states - 2)
    own = part(labels, 1, 2, states - 2)
    never = labels.result(Full((batch, 2), False, BOOL))
    return joined([never, (own != blank) & (own != before)], 1)


def _iterated(time: Index, before: Tensor, given: dict[str, Tensor]) -> Tensor:
    build = TensorBuilder(Tensor)
    captured = {name: Value(build, build.name(tensor)) for name, tensor in given.items()}
    first = Value(build, build.name(before))
    (last,) = iterated(build, time, [first], captured, _step, (), "ctc.step")
    return build.tensor(last.name)


def _step(at: Iteration, states: list[Value]) -> tuple[list[Value], list[Value]]:
    """States after one more step; those of ended sequences are kept."""
    (old,) = states
    ways = (old, _moved(old, 1), _moved(old, 2) + at["skips"])
    greatest = made(Max(), made(Max(), *ways[:2]), ways[2])
    powers = [made(Exp(), way - greatest) for way in ways]
    total = made(Log(), powers[0] + powers[1] + powers[2]) + greatest
    return [choose(at.now("alive"), total + at.now("emitted"), old)], []


def _moved(states: Value, by: int) -> Value:
    """States shifted ``by`` positions, impossible before the first."""
    batch, count = states.type.shape
    never = Value(states.build, states.build.emit(Full((batch, by), NEVER, states.type.dtype)))
    return made(Concat(1), never, view(states, 1, 0, count - by))


def _ending(last: Tensor, lengths: Tensor) -> Tensor:
    """Log-probability to end in the last blank, or in the last class."""
    (batch,) = lengths.shape
    final = reshaped(lengths * 2, batch, 1)
    blank = of(GatherElements(1, signed=False), last, final)
    place = where(final > 0, final - 1, 0)
    own = where(final > 0, of(GatherElements(1, signed=False), last, place), NEVER)
    greatest = of(Max(), blank, own)
    total = of(Exp(), blank - greatest) + of(Exp(), own - greatest)
    return reshaped(of(Log(), total) + greatest, batch)
