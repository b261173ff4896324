"""Lower bounds of dimensions, from the extents that depend on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType

from modelcc.ir.graph import Graph
from modelcc.ir.index import Index, Range, evaluate, symbols


@dataclass(frozen=True)
class BoundDimensions:
    """Raises lower bounds of dimensions until no extent computed from one alone is negative.

    A convolution without padding, say, needs as many elements as its kernel has.  Smaller inputs
    are then rejected when the model is called.  Bounds above ``most`` are not searched for.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<1x1x?xf32, ["t"]>):
          %w = "mcc.constant"() {digest = "w"} : () -> tensor<2x1x3xf32>
          %y = "mcc.Conv"(%x, %w)
              {strides = [1], pads_before = [0], pads_after = [0], dilations = [1]}
          "mcc.return"(%y)
        }) {name = "main", dims = {t = [1, unit]}} : () -> ()

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<1x1x?xf32, ["t"]>):
          %w = "mcc.constant"() {digest = "w"} : () -> tensor<2x1x3xf32>
          %y = "mcc.Conv"(%x, %w)
              {strides = [1], pads_before = [0], pads_after = [0], dilations = [1]}
          "mcc.return"(%y)
        }) {name = "main", dims = {t = [2, unit]}} : () -> ()
    """

    most: int = 1 << 30

    def __call__(self, graph: Graph) -> Graph:
        extents = dict.fromkeys(chain.from_iterable(t.shape for t in graph.types.values()))
        alone: dict[frozenset[str], list[Index]] = {}
        for extent in extents:
            alone.setdefault(symbols(extent), []).append(extent)
        ranges: dict[str, Range] = {}
        for name, bounds in graph.dims.items():
            low = self._least(name, bounds, alone.get(frozenset((name,)), ()))
            ranges[name] = bounds if low is None else replace(bounds, lo=low)
        return replace(graph, dims=MappingProxyType(ranges))

    def _least(self, name: str, bounds: Range, extents: Iterable[Index]) -> int | None:
        """The least value that all ``extents`` allow; None if the current bound suffices.

        Extents grow with their dimension, so the value is found by binary search.
        """
        low = bounds.lo
        if not isinstance(low, int):
            return None
        start = low
        for extent in extents:
            low = self._least_for(name, low, extent)
        return low if low != start else None

    def _least_for(self, name: str, low: int, extent: Index) -> int:
        def fits(value: int) -> bool:
            return evaluate(extent, {name: value}) >= 0

        if fits(low) or not fits(self.most):
            return low
        high = self.most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle, high)
        return high
