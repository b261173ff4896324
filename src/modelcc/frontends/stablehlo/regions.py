"""Regions as expressions of their arguments, to recognise reductions and sorts."""

from __future__ import annotations

from modelcc.frontends.stablehlo.module import HloBlock, Operation


def spelled(region: HloBlock) -> tuple[str, ...]:
    """The results of a region as expressions of its arguments ``a0``, ``a1`` …

    A comparison is named by its direction, any other operation by its name without the dialect.
    """
    texts = {number: f"a{n}" for n, number in enumerate(region.arguments)}
    for op in region.operations:
        operands = ",".join(texts.get(number, "?") for number in op.operands)
        for number in op.results:
            texts[number] = f"{_name(op)}({operands})"
    return tuple(texts.get(number, "?") for number in region.results)


def _name(op: Operation) -> str:
    direction = op.attributes.get("comparison_direction")
    return str(direction or op.name.rpartition(".")[2])


def single(region: HloBlock) -> str:
    """The single operation that a region of two arguments consists of; else empty."""
    (text, *more) = spelled(region)
    name, _, operands = text.partition("(")
    return name if operands in ("a0,a1)", "a1,a0)") and not more else ""


def extreme(region: HloBlock) -> str:
    """``GT`` or ``LT`` if a region on (value, index) pairs selects the extremum, and of equal ones
    that of the lower index; NaN precedes any number.  Else empty."""
    found = spelled(region)
    for direction in ("GT", "LT"):
        better = f"{direction}(a0,a2)"
        for first in (f"or({better},NE(a0,a0))", better):
            before = "and(EQ(a0,a2),LT(a1,a3))"
            if found == (f"select({first},a0,a2)", f"select(or({first},{before}),a1,a3)"):
                return direction
    return ""
