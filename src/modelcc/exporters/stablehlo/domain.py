"""Values over the iteration domain of a stage: each has the axes that it depends on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

from modelcc.exporters.stablehlo.builder import Hlo, HloBuilder
from modelcc.exporters.stablehlo.text import type_text
from modelcc.frontends.kit.errors import unsupported
from modelcc.ir.index import (
    Bounds,
    FloorDiv,
    FloorMod,
    Index,
    IndexMax,
    IndexMin,
    Sym,
    compare,
    loop_range,
)
from modelcc.ir.tensor import Axis
from modelcc.ir.types import I64, TensorType


@dataclass(frozen=True)
class Along:
    """A tensor with these axes of a stage, in this order."""

    hlo: Hlo
    axes: tuple[str, ...]


Integer: TypeAlias = int | Along


class Domain:
    """The axes of a stage; ``symbols`` are the other symbols of its index expressions."""

    def __init__(self, hlo: HloBuilder, axes: Sequence[Axis], dims: Bounds) -> None:
        self.hlo = hlo
        self.order = tuple(axis.name for axis in axes)
        self.extents = {axis.name: axis.extent for axis in axes}
        self.bounds: Bounds = {**dims, **{a.name: loop_range(a.extent) for a in axes}}
        self.symbols: dict[str, Along] = {n: Along(v, ()) for n, v in hlo.symbols.items()}

    def type(self, axes: Sequence[str], like: Hlo) -> TensorType:
        """The type of a tensor over ``axes``."""
        return TensorType(tuple(self.extents[a] for a in axes), like.dtype)

    def union(self, values: Sequence[Along]) -> tuple[str, ...]:
        """The union of the axes of ``values``."""
        found = {name for value in values for name in value.axes}
        return tuple(name for name in self.order if name in found)

    def spread(self, value: Along, axes: Sequence[str]) -> Hlo:
        """``value`` broadcast along those of ``axes`` that it lacks."""
        ordered = [name for name in axes if name in value.axes]
        turned = self.hlo.transpose(value.hlo, [value.axes.index(name) for name in ordered])
        if len(ordered) == len(axes):
            return turned
        places = [list(axes).index(name) for name in ordered]
        return self.broadcast(turned, places, self.type(axes, turned))

    def broadcast(self, x: Hlo, places: Sequence[int], type: TensorType) -> Hlo:
        """Axis ``n`` of ``x`` becomes axis ``places[n]``; it is broadcast along the others."""
        static = type.is_static and x.type.is_static
        if static:
            return self.hlo.convert_by(f"broadcast_in_dim {x.name}, dims = {list(places)}", type, x)
        shape = self.shape(type.shape)
        spelling = f"dynamic_broadcast_in_dim {x.name}, {shape.name}, dims = {list(places)}"
        return self.hlo.convert_by(spelling, type, x, shape)

    def reshape(self, x: Hlo, shape: Sequence[Index]) -> Hlo:
        """A row-major reshape."""
        type = TensorType(tuple(shape), x.dtype)
        if x.type == type or (type.is_static and x.type.is_static):
            return self.hlo.reshape_by(x, type)
        sizes = self.shape(shape)
        return self.hlo.convert_by(f"dynamic_reshape {x.name}, {sizes.name}", type, x, sizes)

    def slice(
        self, x: Hlo, starts: Sequence[Index], extents: Sequence[Index], steps: Sequence[int]
    ) -> Hlo:
        """A slice of ``extents`` elements from ``starts`` with ``steps``."""
        parts = list(zip(starts, extents, steps, strict=True))
        ends = [start + (extent - 1) * step + 1 for start, extent, step in parts]
        type = TensorType(tuple(extents), x.dtype)
        if all(isinstance(e, int) for e in (*starts, *ends)):
            pairs = zip(parts, ends, strict=True)
            ranges = [f"{p[0]}:{end}" + (f":{p[2]}" if p[2] > 1 else "") for p, end in pairs]
            return self.hlo.convert_by(f"slice {x.name} [{', '.join(ranges)}]", type, x)
        sizes = [self.shape(values) for values in (starts, ends, steps)]
        names = ", ".join(v.name for v in (x, *sizes))
        return self.hlo.convert_by(f"real_dynamic_slice {names}", type, x, *sizes)

    def iota(self, name: str) -> Along:
        """The index along an axis; a size that no operand has is not supported."""
        if name not in self.extents:
            unsupported(f"size {name!r} is not that of an input")
        if self.extents[name] == 1:
            return Along(self.hlo.scalar(0, I64), ())
        return Along(self.counted(TensorType((self.extents[name],), I64), 0), (name,))

    def counted(self, type: TensorType, axis: int) -> Hlo:
        """Each element is its index along ``axis``."""
        if type.is_static:
            return self.hlo.emit(f"stablehlo.iota dim = {axis} : {type_text(type)}", type)
        sizes = self.shape(type.shape)
        return self.hlo.convert_by(f"dynamic_iota {sizes.name}, dim = {axis}", type, sizes)

    def shape(self, extents: Sequence[Index]) -> Hlo:
        """Extents as a one-dimensional tensor."""
        values = [self.index(e) for e in extents]
        return self.hlo.extents([v if isinstance(v, int) else v.hlo for v in values])

    # --- index expressions

    def index(self, e: Index) -> Integer:
        """The value of an index expression."""
        match e:
            case int():
                return e
            case Sym(name):
                return self.symbols[name] if name in self.symbols else self.iota(name)
            case FloorDiv(dividend, divisor) | FloorMod(dividend, divisor):
                sides = [self.along(self.index(side)) for side in (dividend, divisor)]
                positive = compare(dividend, ">=", 0, self.bounds) is True
                return self._divided(isinstance(e, FloorMod), positive, *sides)
            case IndexMin(args) | IndexMax(args):
                operation = "minimum" if isinstance(e, IndexMin) else "maximum"
                return self._total(operation, map(self.index, args))
            case _:
                products = (
                    self._total("multiply", ([c] if c != 1 else []) + [*map(self.index, atoms)])
                    for c, atoms in e.terms.values()
                )
                return self._total("add", [*products, *([e.const] if e.const else [])])

    def _total(self, operation: str, values: Iterable[Integer]) -> Integer:
        return reduce(
            lambda a, b: self.apply(operation, self.along(a), self.along(b)),
            map(self.along, values),
        )

    def _divided(self, rest: bool, positive: bool, left: Along, right: Along) -> Along:
        """Floor division or its remainder, which differ from StableHLO's for negative dividends."""
        if positive:
            return self.apply("remainder" if rest else "divide", left, right)
        remainder = self.apply("remainder", left, right)
        below = self.compare("LT", remainder, self.along(0))
        if rest:
            return self.select(below, self.apply("add", remainder, right), remainder)
        quotient = self.apply("divide", left, right)
        return self.select(below, self.apply("subtract", quotient, self.along(1)), quotient)

    def along(self, value: Integer) -> Along:
        """``value``, numbers as constants."""
        return Along(self.hlo.scalar(value, I64), ()) if isinstance(value, int) else value

    def apply(self, operation: str, *values: Along) -> Along:
        """An elementwise operation."""
        axes = self.union(values)
        spread = [self.spread(v, axes) for v in values]
        return Along(self.hlo.elementwise(operation, *spread), axes)

    def compare(self, direction: str, x: Along, y: Along) -> Along:
        """Bools of an elementwise comparison."""
        axes = self.union((x, y))
        one, other = self.spread(x, axes), self.spread(y, axes)
        return Along(self.hlo.compare(direction, one, other), axes)

    def select(self, condition: Along, then: Along, other: Along) -> Along:
        """``then`` where ``condition``, else ``other``."""
        values = (condition, then, other)
        axes = self.union(values)
        return Along(self.hlo.select(*(self.spread(v, axes) for v in values)), axes)


def conjunction(domain: Domain, values: Sequence[Along]) -> Along:
    """The conjunction of ``values``."""
    return reduce(lambda a, b: domain.apply("and", a, b), values)
