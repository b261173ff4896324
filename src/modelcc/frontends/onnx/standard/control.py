"""Handlers of control flow: If, Loop, Scan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import GraphProto

from modelcc.frontends.kit.body import Body
from modelcc.frontends.kit.branches import chosen
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.loops import conditional_loop, new_counter, scalar, with_states
from modelcc.frontends.kit.shapes import Contents, is_symbolic
from modelcc.frontends.onnx.call import Call, table
from modelcc.frontends.onnx.standard.sequence import stacked
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.index import Index, Range, Sym, compare, maximum
from modelcc.ir.types import BOOL, I64, TensorType
from modelcc.ops.control import At, Loop

MOST_STEPS = 1024
"""A longer loop would unroll to too much code."""


def if_(call: Call) -> tuple[str, ...]:
    """The branch taken, inlined, if the condition is known; else both.

    ``squeeze(-1)`` of PyTorch is exported as a branch on an extent being 1.  As its results differ
    in rank, the rest of the model is valid for one of them only: that of the equality, which each
    run then checks.
    """
    branches = [call.attrs.graph(name) for name in ("then_branch", "else_branch")]
    first, second = (len(branch.output) for branch in branches)
    if first != second:
        call.fail(f"its branches give {first} and {second} results, not as many")
    condition = call.known(0)
    if condition is not None and not is_symbolic(condition):
        return call.inline(branches[0] if condition.reshape(-1)[0] else branches[1])
    then, other = (call.body(graph, call.bounds, lambda _: ()) for graph in branches)
    equality = call.emitter.equality(call.inputs[0])
    if equality and _differ_in_rank(then, other):
        call.emitter.require([(equality[0], "==", equality[1])], call.source, always=True)
        return call.inline(branches[0])
    names = [output.name for output in branches[0].output]
    return chosen(call, scalar(call.emitter, call.inputs[0]), then, other, names)


def _differ_in_rank(then: Body, other: Body) -> bool:
    """Whether a result is a tensor whose rank differs between the branches."""
    pairs = zip(then.outputs, other.outputs, strict=True)
    return any(
        then.emitter.type_of(a).rank != other.emitter.type_of(b).rank
        for a, b in pairs
        if then.emitter.find_group(a) is None and other.emitter.find_group(b) is None
    )


def numbered(index: Index, graph: GraphProto, position: int) -> Contents:
    """An index as the contents of an input that may be declared with an axis."""
    shape = graph.input[position].type.tensor_type.shape.dim
    contents = np.empty((1,) * len(shape), object)
    contents[...] = index
    return contents


def loop(call: Call) -> tuple[str, ...]:
    """Iterations while a condition holds, at most a number of times.

    It is unrolled if it carries sequences or optional values.
    """
    if carries_groups(call):
        return unrolled(call)
    graph = call.attrs.graph("body")
    initial = call.inputs[2:]
    begins = call.known(1) if call.has(1) else np.array(True)
    known_trips = not call.has(0) or call.known(0) is not None
    slices = len(graph.output) - 1 - len(initial)
    trips = _trips(call) if call.has(0) and (known_trips or slices) else None
    counter = new_counter(call.bounds, "loop")
    bounds = {**call.bounds, counter: Range(0, None if trips is None else trips - 1)}

    def inputs(body: Body) -> list[str]:
        step = body.emitter.note(numbered(Sym(counter), graph, 0), I64)
        going = body.emitter.note(np.full(numbered(0, graph, 1).shape, True), BOOL)
        states = [body.input(f"state{n}", call.type_of(name)) for n, name in enumerate(initial)]
        return [step, going, *states]

    body = call.body(graph, bounds, inputs)
    going = body.emitter.contents(body.outputs[0])
    always = going is not None and bool(going.reshape(-1)[0])
    starts = begins is not None and bool(begins.reshape(-1)[0])
    body = with_states(call, body, 1, initial, counter)
    if always and starts and trips is not None:
        made = body.graph(body.outputs[1:])
        op = Loop(made, counter, trips, len(initial), False, (0,) * slices, (False,) * slices)
        return call.add(op, *initial, *body.captured)
    first = scalar(call.emitter, call.inputs[1]) if call.has(1) else call.constant(np.array(True))
    limit = call.inputs[0] if call.has(0) else None
    return conditional_loop(call, body, counter, trips, limit, first, initial)


def _trips(call: Call) -> Index:
    """The maximum number of iterations; none if negative."""
    count = call.index(0, "trip count")
    return count if compare(count, ">=", 0, call.bounds) else maximum(count, 0)


def scan(call: Call) -> tuple[str, ...]:
    """A loop over slices of tensors, stacking others."""
    if call.opset < 9:
        return _batched_scan(call)
    count = call.attrs.integer("num_scan_inputs")
    states, scanned = call.inputs[: len(call.inputs) - count], call.inputs[-count:]
    graph = call.attrs.graph("body")
    slices = len(graph.output) - len(states)
    given = call.attrs.integers("scan_input_axes", (0,) * count)
    axes = [call.normal(axis, call.type_of(n).rank) for axis, n in zip(given, scanned, strict=True)]
    trips = call.type_of(scanned[0]).shape[axes[0]]
    counter = new_counter(call.bounds, "scan")
    turned = call.attrs.integers("scan_input_directions", (0,) * count)

    def inputs(body: Body) -> list[str]:
        found = [body.input(f"state{n}", call.type_of(name)) for n, name in enumerate(states)]
        for name, axis, back in zip(scanned, axes, turned, strict=True):
            place = trips - 1 - Sym(counter) if back else Sym(counter)
            found.append(body.emitter.emit(At(axis, place), body.capture(name)))
        return found

    body = call.body(graph, {**call.bounds, counter: Range(0, trips - 1)}, inputs)
    body = with_states(call, body, 0, states, counter)
    ranks = [type.rank + 1 for type in body.types()[len(states) :]]
    places = call.attrs.integers("scan_output_axes", (0,) * slices)
    outputs = tuple(call.normal(a, rank) for a, rank in zip(places, ranks, strict=True))
    backwards = tuple(bool(d) for d in call.attrs.integers("scan_output_directions", (0,) * slices))
    made = body.graph(body.outputs)
    op = Loop(made, counter, trips, len(states), False, outputs, backwards)
    return call.add(op, *states, *body.captured)


def _batched_scan(call: Call) -> tuple[str, ...]:
    """The first form: axis 0 of all operands and results is the batch, axis 1 the scan axis."""
    if call.has(0):
        unsupported("lengths of sequences in the form of operator set 8")
    count = call.attrs.integer("num_scan_inputs")
    operands = call.inputs[1:]
    states, scanned = operands[: len(operands) - count], operands[-count:]
    graph = call.attrs.graph("body")
    slices = len(graph.output) - len(states)
    batch, trips = call.type_of(scanned[0]).shape[:2]
    row, step = new_counter(call.bounds, "batch"), new_counter(call.bounds, "scan")
    bounds = {**call.bounds, row: Range(0, batch - 1), step: Range(0, trips - 1)}
    turned = call.attrs.integers("directions", (0,) * count)

    def inputs(body: Body) -> list[str]:
        found: list[str] = []
        for n, name in enumerate(states):
            type = call.type_of(name)
            found.append(body.input(f"state{n}", TensorType(type.shape[1:], type.dtype)))
        for name, back in zip(scanned, turned, strict=True):
            place = trips - 1 - Sym(step) if back else Sym(step)
            own = body.emitter.emit(At(0, Sym(row)), body.capture(name))
            found.append(body.emitter.emit(At(0, place), own))
        return found

    body = call.body(graph, bounds, inputs)
    inner = Loop(
        body.graph(body.outputs), step, trips, len(states), False, (0,) * slices, (False,) * slices
    )
    rows = _over_rows(call, inner, states, tuple(body.captured), row)
    total = len(states) + slices
    op = Loop(rows, row, batch, 0, False, (0,) * total, (False,) * total)
    return call.add(op, *states, *body.captured)


def _over_rows(
    call: Call, inner: Loop, states: Sequence[str], captured: Sequence[str], row: str
) -> Graph:
    """``inner`` for one row of the batch, its states taken from those of all rows."""
    build = GraphBuilder("rows", {**call.bounds, row: Range(0, None)})
    wholes = [build.input(f"states{n}", call.type_of(name)) for n, name in enumerate(states)]
    around = [build.input(f"around{n}", call.type_of(name)) for n, name in enumerate(captured)]
    own = [build.emit(At(0, Sym(row)), whole) for whole in wholes]
    return build.build(build.add(inner, *own, *around))


def carries_groups(call: Call) -> bool:
    """Whether a loop-carried value is a sequence or an optional value."""
    return any(call.find_group(i) is not None for i in range(2, len(call.inputs)))


def unrolled(call: Call) -> tuple[str, ...]:
    """``Loop`` unrolled; the number of iterations must be known."""
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
        unsupported("it carries a sequence along, and its condition depends on data")
    return bool(known.reshape(-1)[0])


def _nothing(call: Call) -> tuple[tuple[str, ...], ...]:
    if len(call.wanted) > len(call.inputs) - 2:
        unsupported("it collects results of no step at all")
    return ()


CONTROL = table(If=if_, Loop=loop, Scan=scan)
