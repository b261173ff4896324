"""Tensor-level stages as StableHLO: the fallback for any op with a definition by stages.

An elementwise body becomes elementwise operations, reads become slices, transpositions and gathers,
a reduction ``reduce``; a product of two reads under a sum is ``dot_general``.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence

from modelcc.exporters.stablehlo.builder import Hlo, HloBuilder
from modelcc.exporters.stablehlo.domain import Along, Domain, conjunction
from modelcc.exporters.stablehlo.reading import read, split_places, stacked
from modelcc.exporters.stablehlo.scalars import apply_function, bitcast, cast, number
from modelcc.frontends.kit.errors import unsupported
from modelcc.ir.condition import Condition
from modelcc.ir.index import Bounds, Sym
from modelcc.ir.scalar import COMBINE_FUNCTION, Combine, identity
from modelcc.ir.tensor import (
    Apply,
    Bind,
    Bitcast,
    Cast,
    Guard,
    IndexValue,
    Number,
    Read,
    Scalar,
    Scatter,
    Select,
    Stage,
)
from modelcc.ir.types import BOOL, I64, TensorType

COMBINES: Mapping[str, str] = {
    "add": "add", "mul": "multiply", "max": "maximum", "min": "minimum", "and": "and", "or": "or",
    "maximum": "maximum", "minimum": "minimum",
}  # fmt: skip
_DIRECTIONS = {"<": "LT", "<=": "LE", "==": "EQ", "!=": "NE", ">": "GT", ">=": "GE"}


def export_stages(
    hlo: HloBuilder,
    stages: Sequence[Stage | Scatter],
    types: Mapping[str, TensorType],
    values: MutableMapping[str, Hlo],
    dims: Bounds,
) -> None:
    """Adds the results of ``stages`` to ``values``."""
    for stage in stages:
        item = stage.stage if isinstance(stage, Scatter) else stage
        type = types[item.output]
        if 0 in type.shape:
            values[item.output] = empty(hlo, type)
            continue
        writer = _StageWriter(hlo, item, values, dims)
        initial = values[stage.initial] if isinstance(stage, Scatter) else values.get(item.output)
        values[item.output] = writer.result(type, initial)


def empty(hlo: HloBuilder, type: TensorType) -> Hlo:
    """An empty tensor."""
    domain = Domain(hlo, (), {})
    return domain.broadcast(hlo.scalar(0, type.dtype), (), type)


class _StageWriter:
    """Export of one stage: its domain, and the tensors that it may read."""

    def __init__(
        self, hlo: HloBuilder, stage: Stage, values: Mapping[str, Hlo], dims: Bounds
    ) -> None:
        self.hlo, self.stage, self.values = hlo, stage, values
        self.domain = Domain(hlo, (*stage.axes, *stage.reduce), dims)
        self.axes = tuple(a.name for a in stage.axes)

    def result(self, type: TensorType, initial: Hlo | None) -> Hlo:
        """The tensor that is written, with the remaining elements of ``initial``."""
        body = self.stage.body
        while initial is not None and isinstance(body, Bind):
            self.domain.symbols[body.symbol] = self.scalar(Cast(body.value, I64))
            body = body.body
        if any(axis.extent == 0 for axis in self.stage.axes) and initial is not None:
            return initial
        value = self._combined(body)
        write = self.stage.write
        extents = tuple(axis.extent for axis in self.stage.axes)
        if initial is None and write == tuple(map(Sym, self.axes)) and extents == type.shape:
            return value
        return self._scattered(value, type, initial)

    # --- reductions

    def _combined(self, body: Scalar) -> Hlo:
        stage, domain = self.stage, self.domain
        if not stage.reduce or stage.combine is None:
            return domain.spread(self.scalar(body), self.axes)
        start = identity(stage.combine, body.dtype)
        if any(axis.extent == 0 for axis in stage.reduce):
            return domain.spread(number(domain, start, body.dtype), self.axes)
        product = self._product(body)
        if product is not None:
            return product
        value, summed = self.scalar(body), [axis.name for axis in stage.reduce]
        if not set(summed) <= set(value.axes):
            order = tuple(n for n in domain.order if n in value.axes or n in summed)
            value = Along(domain.spread(value, order), order)
        whole, first = value.hlo, self.hlo.scalar(start, body.dtype)
        places = sorted(value.axes.index(name) for name in summed)
        kept = tuple(name for name in value.axes if name not in summed)
        type = domain.type(kept, whole)
        function = COMBINES[COMBINE_FUNCTION[stage.combine]]
        names = f"({whole.name} init: {first.name})"
        spelling = f"reduce{names} applies stablehlo.{function} across dimensions = {places}"
        found = self.hlo.convert_by(spelling, type, whole, first)
        return domain.spread(Along(found, kept), self.axes)

    def _product(self, body: Scalar) -> Hlo | None:
        """A contraction, if the body is a product of two factors that both depend on all reduction
        axes."""
        if self.stage.combine != "sum" or not isinstance(body, Apply) or body.function != "mul":
            return None
        if body.dtype == BOOL:
            return None
        x, y = map(self.scalar, body.args)
        summed = [axis.name for axis in self.stage.reduce]
        if not all(name in v.axes for name in summed for v in (x, y)):
            return None
        batch = [name for name in self.axes if name in x.axes and name in y.axes]
        made = [*batch, *(n for v in (x, y) for n in v.axes if n not in (*batch, *summed))]
        lists = [[[v.axes.index(n) for n in names] for v in (x, y)] for names in (batch, summed)]
        result = self.domain.type(made, x.hlo)
        batching = f"batching_dims = {lists[0][0]} x {lists[0][1]}, " if batch else ""
        spelling = (
            f"dot_general {x.hlo.name}, {y.hlo.name}, {batching}contracting_dims = "
            f"{lists[1][0]} x {lists[1][1]}, precision = [HIGHEST, HIGHEST]"
        )
        found = self.hlo.convert_by(spelling, result, x.hlo, y.hlo)
        ordered = [name for name in self.axes if name in made]
        turned = self.hlo.transpose(found, [made.index(name) for name in ordered])
        return self.domain.spread(Along(turned, tuple(ordered)), self.axes)

    # --- writing

    def _scattered(self, value: Hlo, type: TensorType, initial: Hlo | None) -> Hlo:
        """``value`` scattered to the written indices, the rest from ``initial`` or zero."""
        domain, hlo = self.domain, self.hlo
        if initial is None:
            initial = domain.broadcast(hlo.scalar(0, type.dtype), (), type)
        plain, places = split_places(domain, type.shape, self.stage.write)
        axes = tuple(n for n in self.axes if n not in plain.values())
        order = (*axes, *plain.values())
        updates = hlo.transpose(value, [self.axes.index(name) for name in order])
        indices = stacked(domain, list(places.values()), axes)
        windows = list(range(len(axes), len(order)))
        lists = {"update_window_dims": windows, "inserted_window_dims": list(places)}
        lists["scatter_dims_to_operand_dims"] = list(places)
        numbers = ", ".join(f"{name} = {places}" for name, places in lists.items() if places)
        attributes = {
            "indices_are_sorted": "false",
            "scatter_dimension_numbers": (
                f"#stablehlo.scatter<{numbers}, index_vector_dim = {len(axes)}>"
            ),
            "unique_indices": "false",
        }
        region = _update(hlo, type, self.stage.combine)
        operands = (initial, indices, updates)
        return hlo.generic("scatter", operands, (type,), attributes, region)[0]

    # --- expressions

    def scalar(self, e: Scalar) -> Along:
        """An expression over all points of the axes that it depends on."""
        domain = self.domain
        match e:
            case Number(value, dtype):
                return number(domain, value, dtype)
            case IndexValue(index, dtype):
                return cast(domain, domain.along(domain.index(index)), dtype)
            case Read(tensor, indices):
                return read(domain, self.values[tensor], indices)
            case Apply(function, args):
                return apply_function(domain, function, tuple(map(self.scalar, args)))
            case Select(condition, then, other):
                return domain.select(*map(self.scalar, (condition, then, other)))
            case Cast(value, dtype):
                return cast(domain, self.scalar(value), dtype)
            case Bitcast(value, dtype):
                return bitcast(domain, self.scalar(value), dtype)
            case Guard(conditions, inside, outside):
                holds = conjunction(domain, [self._condition(c) for c in conditions])
                return domain.select(holds, self.scalar(inside), self.scalar(outside))
            case Bind(symbol, value, body):
                domain.symbols[symbol] = self.scalar(Cast(value, I64))
                return self.scalar(body)
            case _:
                unsupported("it multiplies by constant matrices")

    def _condition(self, c: Condition) -> Along:
        domain = self.domain
        left, right = (domain.along(domain.index(side)) for side in (c.left, c.right))
        return domain.compare(_DIRECTIONS[c.comparison], left, right)


def _update(hlo: HloBuilder, type: TensorType, combine: Combine | None) -> str:
    """The region that combines an existing element with an update."""
    one = TensorType((), type.dtype)

    def body(values: tuple[Hlo, ...]) -> tuple[Hlo]:
        old, new = values
        if combine is None:
            return (new,)
        return (hlo.elementwise(COMBINES[COMBINE_FUNCTION[combine]], old, new),)

    return hlo.block((one, one), body)
