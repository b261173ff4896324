"""The meaning of a graph: every op's ``reference``, node by node, on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from modelcc.ir.dimensions import bind_dimensions, bind_type
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph, Node
from modelcc.ir.graph_verifier import node_place
from modelcc.ir.index import Index, Sym, substitute
from modelcc.ir.types import Array, TensorType, dtype_of

Observer = Callable[[Node, tuple[Array, ...]], None]
"""Called with each node and its results, in execution order."""


def interpret(
    graph: Graph, feeds: Mapping[str, Array], observe: Observer | None = None
) -> dict[str, Array]:
    """Outputs of ``graph`` for ``feeds``, one array per input name.

    Named dimensions take their values from the shapes of the inputs.  Values are dropped after
    their last use.  :class:`ModelError` if feeds do not fit the inputs, or if an op's result does
    not have the type the graph says.
    """
    env: dict[str, Index] = dict(bind_feeds(graph, feeds))
    values: dict[str, Array] = {n: np.asarray(feeds[n]) for n in graph.inputs}
    values |= {n: c.data for n, c in graph.constants.items()}
    last_use = _last_uses(graph)
    for position, node in enumerate(graph.nodes):
        operands = tuple(values[n] if n else None for n in node.inputs)
        results = run_node(node, operands, env)
        env |= _bound_values(graph, node, operands, env)
        for name, result in zip(node.outputs, results, strict=True):
            _check_result(node, name, graph.types[name], result, env)
            values[name] = result
        if observe is not None:
            observe(node, results)
        for name in (*node.inputs, *node.outputs):
            if name and last_use.get(name, -1) <= position:
                values.pop(name, None)
    return {n: values[n] for n in graph.outputs}


def bind_feeds(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, int]:
    """Named dimensions of ``graph`` for ``feeds``; :class:`ModelError` if they do not fit."""
    missing = [n for n in graph.inputs if n not in feeds]
    unknown = [n for n in feeds if n not in graph.inputs]
    if missing or unknown:
        wrong = f"input {missing[0]!r} is not given" if missing else f"no input {unknown[0]!r}"
        raise ModelError(f"{wrong}; {graph.name!r} takes {', '.join(graph.inputs) or 'nothing'}")
    for name in graph.inputs:
        given, wanted = dtype_of(np.asarray(feeds[name])), graph.types[name].dtype
        if given != wanted:
            raise ModelError(f"input {name!r} must be {wanted}, but the array is {given}")
    actual = ((n, graph.types[n], np.shape(feeds[n])) for n in graph.inputs)
    return bind_dimensions(actual, graph.dims)


def run_node(
    node: Node, operands: tuple[Array | None, ...], env: Mapping[str, Index]
) -> tuple[Array, ...]:
    """Results of one node under the dimension values ``env``."""
    op = node.op.substitute(env) if env else node.op
    with np.errstate(all="ignore"):
        results = op.reference(*operands)
    return tuple(map(np.asarray, results if isinstance(results, tuple) else (results,)))


def _bound_values(
    graph: Graph, node: Node, operands: tuple[Array | None, ...], env: Mapping[str, Index]
) -> Mapping[str, int]:
    """Symbols that the node gives a value; :class:`ModelError` if one is out of bounds."""
    bound = node.op.bound_values(*operands)
    for name, value in bound.items():
        known = graph.dims[name]
        low, high = (
            None if end is None else substitute(end, {**env, **bound})
            for end in (known.lo, known.hi)
        )
        if (isinstance(low, int) and value < low) or (isinstance(high, int) and value > high):
            span = f"{'' if low is None else low}..{'' if high is None else high}"
            raise ModelError(f"size {name!r} is {value}, outside of {span}", node_place(node))
    return bound


def _last_uses(graph: Graph) -> dict[str, int]:
    last = {n: i for i, node in enumerate(graph.nodes) for n in node.inputs}
    return last | dict.fromkeys(graph.outputs, len(graph.nodes))


def _check_result(
    node: Node, name: str, type: TensorType, result: Array, env: dict[str, Index]
) -> None:
    bound = bind_type(type, env)
    if len(bound.shape) == result.ndim:
        fresh = zip(bound.shape, result.shape, strict=True)
        env |= {want.name: got for want, got in fresh if isinstance(want, Sym)}
        bound = bind_type(bound, env)
    if bound.shape != result.shape or bound.dtype != dtype_of(result):
        found = f"{dtype_of(result)}{list(result.shape)}"
        raise ModelError(
            f"{node.op.mnemonic()} computed {found} for {name!r}, whose type is {type}",
            node_place(node),
        )
