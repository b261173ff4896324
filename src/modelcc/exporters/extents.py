"""Sources of the sizes of named dimensions: extents of inputs."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from modelcc.ir.graph import Graph
from modelcc.ir.index import Index, Sym, floordiv, split_affine, symbols


class NamedExtent(NamedTuple):
    """The symbolic ``extent`` of an input along ``axis``."""

    extent: Index
    input: str
    axis: int

    def solved(self, name: str, known: Container[str]) -> tuple[str, Index] | None:
        """The dimension that it determines given the ``known`` ones, and its size in terms of the
        symbol ``name`` for the extent; None if it determines none."""
        unknown = [n for n in sorted(symbols(self.extent)) if n not in known]
        split = split_affine(self.extent, unknown) if len(unknown) == 1 else None
        if split is None:
            return None
        scale, offset = split[0][unknown[0]], split[1]
        return unknown[0], floordiv(Sym(name) - offset, scale)


def named_extents(graph: Graph) -> list[NamedExtent]:
    """Symbolic extents of the inputs, single symbols first."""
    found = [
        NamedExtent(extent, name, axis)
        for name in graph.inputs
        for axis, extent in enumerate(graph.types[name].shape)
        if not isinstance(extent, int)
    ]
    return sorted(found, key=lambda each: not isinstance(each.extent, Sym))
