"""Compiled loops: a trip count, slices in and slices out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, Range, Sym
from modelcc.ir.types import I64, TensorType
from modelcc.ops.control import Loop
from modelcc.ops.generate import Indices
from modelcc.ops.slicing import At
from modelcc.tensor.bodies import (
    Outcome,
    body_of,
    counter_for,
    is_traced,
    outcome,
    placeholders,
    same_types,
    unique_op,
)
from modelcc.tensor.control import while_loop
from modelcc.tensor.lazy import apply, callers_line
from modelcc.tensor.tensor import Tensor


def scan(
    body: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: Any = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """``carry, y = body(carry, x)`` for each ``x`` of ``xs``: the last carry, and all ``y``.

    ``xs`` is a tree of tensors [length, …] or None, and so are the results stacked: ``y`` of
    iteration ``t`` is at ``t``.  With ``reverse`` the last ``x`` comes first.  The carry is a tree
    of fixed form, shapes and types.  ``body`` is traced once, and may capture tensors.
    """
    given = outcome(xs)
    trips = _trips(given, length)
    slices = placeholders("x", [TensorType(t.shape[1:], t.dtype) for t in given.types()])

    def step(carry: Any, _: Tensor) -> Any:
        return body(carry, given.rebuilt(slices))

    return _iterated("scan", step, outcome(init), trips, _ReadSlices(given, slices), reverse)


def fori_loop(lower: Any, upper: Any, body: Callable[[Any, Any], Any], init: Any) -> Any:
    """``state = body(i, state)`` for ``i`` from ``lower`` on below ``upper``, an i64.

    Bounds are integers, or tensors; bounds that are traced have no gradient (see
    :func:`~modelcc.tensor.control.while_loop`).
    """
    if is_traced((lower, upper)):
        first = (lower if isinstance(lower, Tensor) else Tensor(lower, "i64"), init)
        return while_loop(lambda s: s[0] < upper, lambda s: (s[0] + 1, body(*s)), first)[1]
    start, end = (int(b) if isinstance(b, Tensor) else b for b in (lower, upper))
    trips = end - start
    trips = max(trips, 0) if isinstance(trips, int) else trips

    def step(state: Any, index: Tensor) -> tuple[Any, tuple[()]]:
        return body(index, state), ()

    nothing = _ReadSlices(outcome(()), [], start)
    return _iterated("fori_loop", step, outcome(init), trips, nothing, False)[0]


def map(function: Callable[[Any], Any], xs: Any) -> Any:
    """``function`` of each slice of ``xs`` along the first axis, stacked: a loop."""
    return scan(lambda carry, x: (carry, function(x)), (), xs)[1]


@dataclass(frozen=True)
class _ReadSlices:
    """Slices that iterations read; their index begins at ``start``."""

    given: Outcome
    slices: Sequence[Tensor]
    start: Index = 0


def _iterated(
    what: str,
    step: Callable[[Any, Tensor], tuple[Any, Any]],
    first: Outcome,
    trips: Index,
    read: _ReadSlices,
    reverse: bool,
) -> tuple[Any, Any]:
    own = placeholders("carry", first.types())
    index = Tensor.placeholder("index", TensorType((), I64))
    carry, y = _pair(what, step(first.rebuilt(own), index))
    after, stacked = outcome(carry), outcome(y)
    same_types(f"the carry of {what} changes", first, after, ("the first", "the next"))
    inner = [*own, *read.slices, index]
    body = body_of([*after.results, *stacked.results], inner, moved_out=True)
    counter = counter_for(body)
    build = GraphBuilder("iteration", {counter: Range(0, None)})
    names = {id(x): build.input(f"carry{i}", x.type) for i, x in enumerate(own)}
    place = trips - 1 - Sym(counter) if reverse else Sym(counter)
    for i, (x, whole) in enumerate(zip(read.slices, read.given.types(), strict=True)):
        names[id(x)] = build.emit(At(0, place), build.input(f"x{i}", whole))
    names[id(index)] = build.emit(Indices((Sym(counter) + read.start,), (), I64))
    graph = body.graph(build, names, body.captured)
    count = len(stacked.results)
    axes, backwards = (0,) * count, (reverse,) * count
    loop = Loop(graph, counter, trips, len(own), axes=axes, backwards=backwards)
    operands = [*first.results, *read.given.results, *body.captured]
    made = apply(Tensor, unique_op(loop), operands)
    return after.rebuilt(made[: len(own)]), stacked.rebuilt(made[len(own) :])


def _pair(what: str, result: Any) -> tuple[Any, Any]:
    if isinstance(result, tuple):
        parts = cast("tuple[Any, ...]", result)
        if len(parts) == 2:
            return parts[0], parts[1]
    raise ModelError(
        f"the body of {what} must return a pair of the next carry and a slice",
        callers_line(),
        "return (carry, None) if nothing is to be stacked",
    )


def _trips(xs: Outcome, length: Any) -> Index:
    """The extent of the first axis of all ``xs``."""
    for type in xs.types():
        if not type.shape:
            raise ModelError(f"scan goes along the first axis, and xs has {type}", callers_line())
    found = [type.shape[0] for type in xs.types()]
    if length is not None:
        found.append(int(length) if isinstance(length, Tensor) else length)
    if not found:
        raise ModelError("scan without xs needs a length", callers_line())
    if any(extent != found[0] for extent in found):
        given = f"{xs}" + ("" if length is None else f", length: {length}")
        raise ModelError(f"xs of scan differ in their first extent: {given}", callers_line())
    return found[0]
