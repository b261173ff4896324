"""Selects layers that stay unquantised, so that errors or bytes are within a budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from modelcc.ir.errors import ModelError
from modelcc.quantization.plan import QuantizedLayer
from modelcc.report.formats import byte_text


@dataclass(frozen=True)
class Budget:
    """Limits on the ``error`` of the outputs and the ``bytes`` of constants, None for no limit."""

    error: float | None
    bytes: int | None


@dataclass(frozen=True)
class Costs:
    """Per layer, by its node's result: the error that it alone causes, and the bytes that it saves;
    ``bytes`` of the unquantised model."""

    errors: Mapping[str, float]
    saved: Mapping[str, int]
    bytes: int


def kept_for_bytes(budget: Budget, costs: Costs, floats: bool) -> frozenset[str]:
    """Layers that can stay unquantised within the budget: those with most error per
    saved byte.

    Without ``floats`` none can, and only the size is checked.  :class:`ModelError` reports the
    attainable size if that is too large.
    """
    if budget.bytes is None:
        return frozenset()
    saving = [name for name, saved in costs.saved.items() if saved > 0]
    order = sorted(saving, key=lambda name: costs.errors[name] ** 2 / costs.saved[name])
    left, size = list(order), costs.bytes
    while (size > budget.bytes or not floats) and left:
        size -= costs.saved[left.pop(0)]
    if size > budget.bytes:
        what = f"with every layer quantised, constants take {byte_text(size)} ({size} bytes)"
        hint = f"give at least {size}, or weights of fewer bits"
        raise ModelError(f"{what}, more than the budget of {budget.bytes}", (), hint)
    return frozenset(left)


def kept_for_error(
    budget: Budget,
    costs: Costs,
    layers: Sequence[QuantizedLayer],
    error_of: Callable[[frozenset[str]], float],
) -> frozenset[str]:
    """The fewest layers, in order of descending errors, that must stay unquantised.

    ``error_of`` measures the outputs with these; :class:`ModelError` has the nearest figure.
    """
    if budget.error is None:
        return frozenset()
    names = [layer.node.outputs[0] for layer in layers]
    order = sorted(names, key=lambda name: -costs.errors[name])
    errors: dict[int, float] = {}

    def fits(count: int) -> bool:
        errors[count] = error_of(frozenset(order[:count]))
        return errors[count] <= budget.error if budget.error is not None else True

    low, high = 0, len(order)
    if not fits(high):
        raise too_inexact(min(errors.values()), budget.error)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    return frozenset(order[:high])


def too_inexact(nearest: float, budget: float) -> ModelError:
    """The error that a budget cannot be met, with the attainable one."""
    what = f"the error of the outputs is {nearest:.3g} at least, and the budget is {budget:.3g}"
    return ModelError(what, (), f"give at least {nearest:.3g}, more bytes, or fallback='float'")
