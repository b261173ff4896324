"""Loops over sequences: unrolled, as a sequence has no tensor that could be carried along."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.shapes import is_symbolic
from modelcc.frontends.onnx.call import Call
from modelcc.frontends.onnx.standard.sequence import stacked

MOST_STEPS = 1024
"""A longer loop would become more code than anybody wants."""


def carries_groups(call: Call) -> bool:
    """Whether some carried value is a sequence or an optional value."""
    return any(call.find_group(i) is not None for i in range(2, len(call.inputs)))


def unrolled(call: Call) -> tuple[str, ...]:
    """``Loop`` with its body once for each step; how many there are must be known."""
    body, steps = call.attrs.graph("body"), _steps(call)
    carried = call.inputs[2:]
    condition = call.input(1) if call.has(1) else call.constant(np.array(True))
    rows: list[tuple[str, ...]] = []
    for step in range(steps):
        if not _holds(call, condition):
            break
        condition, *results = call.inline(body, call.constant(np.array(step)), condition, *carried)
        carried = tuple(results[: len(carried)])
        rows.append(tuple(results[len(carried) :]))
    columns = zip(*rows, strict=True) if rows else _nothing(call)
    return (*carried, *(stacked(call, tuple(column), 0) for column in columns))


def _steps(call: Call) -> int:
    kinds = {g.kind for i in range(2, len(call.inputs)) if (g := call.find_group(i))}
    known = call.known(0) if call.has(0) else None
    if known is None or is_symbolic(known):
        unsupported(
            f"it carries {' and '.join(sorted(kinds))} along, and its number of steps "
            f"({call.labels[0]!r}) is not known before the model runs"
        )
    steps = int(known.reshape(-1)[0])
    if steps > MOST_STEPS:
        unsupported(f"it carries {' and '.join(sorted(kinds))} along for {steps} steps")
    return steps


def _holds(call: Call, condition: str) -> bool:
    known = call.emitter.contents(condition)
    if known is None or is_symbolic(known):
        unsupported("it carries a sequence along, and its condition hangs on data")
    return bool(known.reshape(-1)[0])


def _nothing(call: Call) -> tuple[tuple[str, ...], ...]:
    if len(call.wanted) > len(call.inputs) - 2:
        unsupported("it collects results of no step at all")
    return ()
