"""Handlers of torch.cond, while_loop, scan and map, and of sub-graphs that are called inline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from modelcc.frontends.kit.body import Body
from modelcc.frontends.kit.branches import chosen
from modelcc.frontends.kit.emit import Emitter
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.loops import conditional_loop, new_counter, scalar, with_states
from modelcc.frontends.kit.shapes import is_symbolic
from modelcc.frontends.torch.aten import Aten, Handler, Subgraph, table
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.index import Bounds, Index, Range, Sym
from modelcc.ir.types import BOOL
from modelcc.ops.arithmetic import Value
from modelcc.ops.control import At, Loop
from modelcc.ops.views import cast

Operands = Sequence[Value | Index]


def cond(
    call: Aten, predicate: Value | bool, then: Subgraph, other: Subgraph, operands: Operands
) -> Sequence[Value]:
    """The branch taken, inlined, if the predicate is known; else both."""
    if not isinstance(predicate, Value):
        return _values(call, (then if predicate else other)(call.emitter, _names(operands)))
    known = call.emitter.contents(predicate.name)
    if known is not None and not is_symbolic(known):
        return cond(call, bool(known.reshape(-1)[0]), then, other, operands)
    bodies = [_body(call, call.bounds) for _ in range(2)]
    first, second = (
        replace(body, outputs=tuple(graph(body.emitter, _captured(body, operands))))
        for body, graph in zip(bodies, (then, other), strict=True)
    )
    flag = scalar(call.emitter, cast(predicate, BOOL).name)
    labels = [f"result {n}" for n in range(len(first.outputs))]
    return _values(call, chosen(call, flag, first, second, labels))


def while_loop(
    call: Aten, condition: Subgraph, step: Subgraph, carried: Operands, extra: Operands
) -> Sequence[Value]:
    initial = _tensors(carried)
    (first,) = condition(call.emitter, [*initial, *_names(extra)])
    counter = new_counter(call.bounds, "while")
    body = _body(call, {**call.bounds, counter: Range(0, None)})
    states = [body.input(f"state{n}", call.type_of(name)) for n, name in enumerate(initial)]
    around = _captured(body, extra)
    after = step(body.emitter, [*states, *around])
    going = condition(body.emitter, [*after, *around])
    whole = with_states(call, replace(body, outputs=(*going, *after)), 1, initial, counter)
    start = scalar(call.emitter, first)
    return _values(call, conditional_loop(call, whole, counter, None, None, start, initial))


def scan(
    call: Aten, step: Subgraph, init: Operands, xs: Operands, extra: Operands
) -> Sequence[Value]:
    """States updated by each row of ``xs``; the other results of each row are stacked."""
    initial, rows = _tensors(init), _tensors(xs)
    trips = call.type_of(rows[0]).shape[0]
    counter = new_counter(call.bounds, "scan")
    body = _body(call, {**call.bounds, counter: Range(0, trips - 1)})
    states = [body.input(f"state{n}", call.type_of(name)) for n, name in enumerate(initial)]
    own = [body.emitter.emit(At(0, Sym(counter)), body.capture(name)) for name in rows]
    results = step(body.emitter, [*states, *own, *_captured(body, extra)])
    whole = with_states(call, replace(body, outputs=tuple(results)), 0, initial, counter)
    slices = len(results) - len(initial)
    made = whole.graph(whole.outputs)
    places = (0,) * slices, (False,) * slices
    op = Loop(made, counter, trips, len(initial), False, *places)
    return _values(call, call.add(op, *initial, *whole.captured))


def mapped(call: Aten, step: Subgraph, xs: Operands, extra: Operands) -> Sequence[Value]:
    return scan(call, step, (), xs, extra)


def in_place(position: int) -> Handler:
    """The operator's sub-graph, argument ``position``, inlined on all arguments after it."""

    def handler(call: Aten, *args: Any) -> Sequence[Value]:
        graph: Subgraph = args[position]
        return _values(call, graph(call.emitter, _names(args[position + 1 :])))

    return handler


def _body(call: Aten, bounds: Bounds) -> Body:
    return Body(call.emitter, Emitter(GraphBuilder("body", bounds), bounds, inner=True))


def _captured(body: Body, operands: Operands) -> list[str | Index]:
    return [body.capture(x.name) if isinstance(x, Value) else x for x in operands]


def _names(operands: Operands) -> list[str | Index]:
    return [x.name if isinstance(x, Value) else x for x in operands]


def _tensors(operands: Operands) -> list[str]:
    if not all(isinstance(x, Value) for x in operands):
        unsupported("a number that it carries along; make it a tensor")
    return [x.name for x in operands if isinstance(x, Value)]


def _values(call: Aten, names: Sequence[str]) -> list[Value]:
    return [Value(call, name) for name in names]


CONTROL = table(
    cond=cond,
    while_loop=while_loop,
    scan=scan,
    map_impl=mapped,
    wrap_with_set_grad_enabled=in_place(1),
    wrap_with_autocast=in_place(4),
)
