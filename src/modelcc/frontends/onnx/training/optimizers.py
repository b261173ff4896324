"""Handlers of ai.onnx.preview.training: optimizers, which update several tensors at once."""

from __future__ import annotations

from modelcc.frontends.onnx.call import Call, table
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import Greater, where


def _value(call: Call, name: str) -> Value:
    return Value(call.emitter, name)


def _groups(call: Call, count: int) -> list[list[Value]]:
    """The operands after rate and step in ``count`` groups of one per tensor."""
    names = call.inputs[2:]
    if len(names) % count:
        call.fail(f"{len(names)} operands do not divide into {count} groups")
    size = len(names) // count
    return [[_value(call, n) for n in names[i * size : (i + 1) * size]] for i in range(count)]


def _rate_and_step(call: Call) -> tuple[Value, Value]:
    """The learning rate, and the number of updates so far as a float."""
    rate = _value(call, call.input(0))
    if call.has(2) and call.dtype(2) != rate.type.dtype:
        rate = of(ew.Cast(call.dtype(2)), rate)
    return rate, of(ew.Cast(rate.type.dtype), _value(call, call.input(1)))


def _regularised(call: Call, x: Value, gradient: Value) -> Value:
    return x * call.attrs.number("norm_coefficient", 0.0) + gradient


def adagrad(call: Call) -> tuple[str, ...]:
    """Duchi et al. 2011: rates decrease with the sum of squared past gradients."""
    rate, step = _rate_and_step(call)
    rate = rate / (step * call.attrs.number("decay_factor", 0.0) + 1.0)
    epsilon = call.attrs.number("epsilon", 0.0)
    tensors: list[str] = []
    sums: list[str] = []
    for x, gradient, squares in zip(*_groups(call, 3), strict=True):
        g = _regularised(call, x, gradient)
        total = squares + g * g
        tensors.append((x - rate * g / (of(ew.Sqrt(), total) + epsilon)).name)
        sums.append(total.name)
    return (*tensors, *sums)


def momentum(call: Call) -> tuple[str, ...]:
    """Gradient descent with momentum, Nesterov's or plain."""
    rate, step = _rate_and_step(call)
    alpha, beta = call.attrs.number("alpha"), call.attrs.number("beta")
    mode = call.attrs.text("mode")
    if mode not in ("standard", "nesterov"):
        call.fail(f"unknown mode {mode!r}")
    weight = where(of(Greater(), step, step.lift(0.0)), step.lift(beta), 1.0)
    tensors: list[str] = []
    moments: list[str] = []
    for x, gradient, moment in zip(*_groups(call, 3), strict=True):
        g = _regularised(call, x, gradient)
        updated = moment * alpha + weight * g
        direction = updated if mode == "standard" else g + updated * alpha
        tensors.append((x - rate * direction).name)
        moments.append(updated.name)
    return (*tensors, *moments)


def adam(call: Call) -> tuple[str, ...]:
    """Kingma and Ba 2015; averages are bias-corrected, but not at the first step."""
    rate, step = _rate_and_step(call)
    attrs = call.attrs
    alpha, beta = attrs.number("alpha", 0.9), attrs.number("beta", 0.999)
    epsilon, post = attrs.number("epsilon", 0.0), attrs.number("norm_coefficient_post", 0.0)

    def remaining(base: float) -> Value:
        return step.lift(1.0) - of(ew.Pow(), step.lift(base), step)

    later = of(Greater(), step, step.lift(0.0))
    corrected = of(ew.Sqrt(), remaining(beta)) / remaining(alpha)
    rate = rate * where(later, corrected, 1.0)
    tensors: list[str] = []
    means: list[str] = []
    squares: list[str] = []
    for x, gradient, mean, square in zip(*_groups(call, 4), strict=True):
        g = _regularised(call, x, gradient)
        first = mean * alpha + g * (1.0 - alpha)
        second = square * beta + g * g * (1.0 - beta)
        moved = x - rate * first / (of(ew.Sqrt(), second) + epsilon)
        tensors.append((moved * (1.0 - post)).name)
        means.append(first.name)
        squares.append(second.name)
    return (*tensors, *means, *squares)


TRAINING = table(Adagrad=adagrad, Momentum=momentum, Adam=adam)
