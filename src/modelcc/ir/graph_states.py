"""Declaring inputs and outputs of a graph as states, which the compiled model keeps.

A training step has its parameters and the optimizer's moments as states, a decoder its cache::

    build = GraphBuilder("step")
    w, dw = build.input("w", matrix), …
    after = build.emit(Sub(), w, dw)
    graph = with_states(build.build([loss, after]), {"w": ("w", after)}, {"w": first})
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from modelcc.ir.constant import Constant
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.region_verifier import verify_states
from modelcc.ir.structure import Interface, ModelState, leaves_of, states_of
from modelcc.ir.types import Array


def with_states(
    graph: Graph, states: Mapping[str, tuple[str, str]], initial: Mapping[str, Array] | None = None
) -> Graph:
    """``graph`` with more states, by name: an input is its value before a call and an output that
    after it; neither is part of the caller's interface any more.

    ``initial`` gives values before the first call, zeros by default.
    :class:`ModelError` unless input and output have the same type of fixed size.
    """
    first = {name: Constant(array) for name, array in (initial or {}).items() if array.any()}
    kept = {name: ModelState(*pair, name in first) for name, pair in states.items()}
    seen = graph.interface or Interface({n: n for n in graph.inputs}, {n: n for n in graph.outputs})
    before, after = ({pair[side] for pair in states.values()} for side in (0, 1))
    interface = replace(
        seen,
        inputs={n: s for n, s in seen.inputs.items() if before.isdisjoint(leaves_of(s))},
        outputs={n: s for n, s in seen.outputs.items() if after.isdisjoint(leaves_of(s))},
        states={**seen.states, **kept},
    )
    result = replace(graph, interface=interface, initial={**graph.initial, **first})
    verify_graph_states(result)
    return result


def verify_graph_states(graph: Graph) -> None:
    """:class:`ModelError` if the states of ``graph`` are not well formed."""
    states = states_of(graph.interface)
    pairs = {state.output: state.input for state in states.values()}
    if len(pairs) < len(states):
        raise ModelError("an output is that of two states", (graph.name,))
    verify_states(pairs, graph.inputs, graph.outputs, graph.types, (graph.name,))
    for name, state in states.items():
        type, first = graph.types[state.input], graph.initial.get(name)
        if not type.is_static:
            raise ModelError(f"state {name!r}, {type}, has no fixed size", (graph.name,))
        if state.given != (first is not None):
            raise ModelError(f"nothing says what state {name!r} is at first", (graph.name,))
        if first is not None and first.type != type.with_layout(None):
            message = f"state {name!r} is {type}, but {first.type} at first"
            raise ModelError(message, (graph.name,))
    unknown = graph.initial.keys() - states.keys()
    if unknown:
        raise ModelError(f"there is no state {min(unknown)!r}", (graph.name,))
