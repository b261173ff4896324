"""Channels that were removed from layers because no result depends on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from modelcc.ir.graph import Graph, Node


@dataclass(frozen=True)
class ChannelSaving:
    """``removed`` of a layer's ``channels``, and ``bytes`` of the constants of the user's nodes
    ``source``, including channels of operands that are no longer read."""

    source: tuple[str, ...]
    removed: int
    channels: int
    bytes: int

    def __str__(self) -> str:
        place = ", ".join(self.source) or "the compiler"
        return f"{self.removed} of {self.channels} channels, {self.bytes} bytes of {place}"


def channel_savings(before: Graph, after: Graph) -> tuple[ChannelSaving, ...]:
    """Savings by layer, from a graph before and after channel removal."""
    old, parts = before.producers(), dict[tuple[str, ...], list[tuple[Node, Node]]]()
    for node in after.nodes:
        earlier = old.get(node.outputs[0]) if node.outputs else None
        if earlier is not None and earlier is not node:
            parts.setdefault(node.source, []).append((earlier, node))
    found = (_saving(before, after, source, pairs) for source, pairs in parts.items())
    return tuple(saving for saving in found if saving.bytes)


def _saving(
    before: Graph, after: Graph, source: tuple[str, ...], pairs: list[tuple[Node, Node]]
) -> ChannelSaving:
    taken = (_bytes(graph, [pair[n] for pair in pairs]) for n, graph in enumerate((before, after)))
    result = pairs[0][1].outputs[0]
    shapes = before.types[result].shape, after.types[result].shape
    extents = zip(*shapes, strict=True)
    counts = ((a, b) for a, b in extents if a != b and isinstance(a, int) and isinstance(b, int))
    channels, left = next(counts, (0, 0))
    whole, rest = taken
    return ChannelSaving(source, channels - left, channels, whole - rest)


def _bytes(graph: Graph, nodes: list[Node]) -> int:
    names = {name for node in nodes for name in node.inputs if name in graph.constants}
    return sum(graph.constants[name].nbytes for name in names)


def savings_rows(savings: tuple[ChannelSaving, ...]) -> Iterator[str]:
    """A line for the total, and one for each layer."""
    if savings:
        bytes = sum(saving.bytes for saving in savings)
        removed = sum(saving.removed for saving in savings)
        yield f"{removed} channels and {bytes} bytes that no result depends on are left out"
    yield from map(str, savings)
