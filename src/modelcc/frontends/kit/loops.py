"""Loops whose bodies are graphs: their counters, states and conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from modelcc.frontends.kit.body import Body
from modelcc.frontends.kit.conversion import Conversion
from modelcc.frontends.kit.emit import Emitter
from modelcc.frontends.kit.errors import unsupported
from modelcc.ir.index import Bounds, Index, Range, Sym, compare, symbols
from modelcc.ir.types import BOOL, I64, TensorType
from modelcc.ops.control import Loop
from modelcc.ops.elementwise import And, Less
from modelcc.ops.generate import Indices
from modelcc.ops.shape import Reshape
from modelcc.ops.slicing import Slice


def scalar(emitter: Emitter, value: str) -> str:
    """A scalar of a value of one element."""
    return value if emitter.type_of(value).rank == 0 else emitter.emit(Reshape(()), value)


def new_counter(bounds: Bounds, stem: str) -> str:
    """A symbol that is not in use."""
    number = 0
    while f"{stem}.step{number}" in bounds:
        number += 1
    return f"{stem}.step{number}"


def with_states(
    call: Conversion, body: Body, first: int, initial: Sequence[str], counter: str
) -> Body:
    """``body`` with states (its outputs from ``first`` on) of loop-invariant types.

    Extents that may differ are compared in each iteration.
    """
    outputs = list(body.outputs)
    for place, name in enumerate(initial, first):
        wanted, found = call.type_of(name), body.emitter.type_of(outputs[place])
        if wanted == found:
            continue
        pairs = list(zip(found.shape, wanted.shape, strict=False))
        never = any(compare(a, "!=", b, body.emitter.bounds) for a, b in pairs)
        moving = any(counter in symbols(a) for a, _ in pairs)
        if wanted.dtype != found.dtype or wanted.rank != found.rank or never or moving:
            unsupported(f"a state is {wanted} at first and {found} after an iteration")
        body.emitter.require([(a, "==", b) for a, b in pairs], call.source, True)
        outputs[place] = body.emitter.emit(Reshape(wanted.shape), outputs[place])
    return replace(body, outputs=tuple(outputs))


def conditional_loop(
    call: Conversion, body: Body, counter: str, trips: Index | None, most: str | None, first: str,
    initial: Sequence[str],
) -> tuple[str, ...]:  # fmt: skip
    """A loop that runs while the first result of ``body`` holds, at most ``trips`` or ``most``
    iterations.

    ``first`` is the condition of the first iteration.  Iterations are counted if results are
    stacked.
    """
    going = scalar(body.emitter, body.outputs[0])
    following = body.emitter.emit(Indices((Sym(counter) + 1,), (), I64))
    if trips is None and most is not None:
        limit = scalar(call.emitter, call.emitter.stored(most))
        inside = body.capture(limit)
        going = body.emitter.emit(And(), going, body.emitter.emit(Less(), following, inside))
        any_at_all = call.emit(Less(), call.constant(np.array(0, np.int64)), limit)
        first = call.emit(And(), first, any_at_all)
    made = body.graph([going, following, *body.outputs[1:]])
    inputs = {"going": TensorType((), BOOL), "count": TensorType((), I64)}
    made = replace(made, inputs=(*inputs, *made.inputs), types={**made.types, **inputs})
    slices = len(body.outputs) - 1 - len(initial)
    states, places = 2 + len(initial), ((0,) * slices, (False,) * slices)
    op = Loop(made, counter, trips, states, True, *places)
    nothing = call.constant(np.array(0, np.int64))
    _, count, *results = call.add(op, first, nothing, *initial, *body.captured)
    if not slices or trips is None:
        return tuple(results)
    (rows,) = call.emitter.read_sizes(count, "iterations", Range(0, trips), (), call.source)
    stacked = (_first_rows(call, name, rows) for name in results[len(initial) :])
    return (*results[: len(initial)], *stacked)


def _first_rows(call: Conversion, value: str, rows: Index) -> str:
    """The first ``rows`` elements along axis 0."""
    shape = call.type_of(value).shape
    none, single = (0,) * len(shape), (1,) * len(shape)
    return call.emit(Slice(none, (rows, *shape[1:]), single), value)
