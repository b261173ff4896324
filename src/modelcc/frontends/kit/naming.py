"""Gives the values of a graph the names they have in the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from modelcc.ir.graph import Graph
from modelcc.ir.naming import Names


def renamed(graph: Graph, wanted: Mapping[str, str]) -> Graph:
    """``graph`` with values named as in ``wanted`` where the name is free.

    Outputs take precedence: their names are part of the interface.  Inputs keep theirs.
    """
    names = Names(graph.inputs)
    mapping = {name: name for name in graph.inputs}
    for name in graph.outputs:
        if name not in mapping:
            mapping[name] = names.claim(wanted.get(name, name))
    for name in (*wanted, *graph.values()):
        if name in graph.types and name not in mapping:
            mapping[name] = names.fresh(wanted.get(name, name))
    nodes = tuple(
        replace(
            node,
            inputs=tuple(mapping[n] if n else "" for n in node.inputs),
            outputs=tuple(mapping[n] for n in node.outputs),
        )
        for node in graph.nodes
    )
    return replace(
        graph,
        outputs=tuple(mapping[n] for n in graph.outputs),
        nodes=nodes,
        types=MappingProxyType({mapping[n]: t for n, t in graph.types.items()}),
        constants=MappingProxyType({mapping[n]: c for n, c in graph.constants.items()}),
    )
