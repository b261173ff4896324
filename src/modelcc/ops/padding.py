"""Pad: more elements around a tensor, or fewer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, guard, index_value, number
from modelcc.ir.condition import Constraints
from modelcc.ir.index import Index, compare, maximum, minimum, mod
from modelcc.ir.narrowing import FOLLOWS
from modelcc.ir.op import Builder, Gradients, Op, Values, require
from modelcc.ir.quantized_form import MOVES, QuantizedForm
from modelcc.ir.tensor import Condition
from modelcc.ir.types import BOOL, I64, Array, TensorType
from modelcc.ops.broadcast import numbers, shape_text
from modelcc.ops.gather import GatherSum
from modelcc.ops.generate import Iota
from modelcc.ops.samples import sample, tensor

Point = tuple[Index, ...]

Mode = Literal["constant", "edge", "reflect", "wrap"]

Source = tuple[Index | Element, list[Condition]]
"""A place along an axis, an index or an integer read from a table, and when it is inside."""

Along = Callable[[Index], Source]
"""What each place along an axis of the result is made of."""


@dataclass(frozen=True)
class Pad(Op):
    """x with ``before`` and ``after`` more elements per axis; negative amounts crop, first.

    New elements are ``value``, the edge, x reflected at its edges (not repeating them), or x again.
    """

    narrowing = FOLLOWS
    before: tuple[Index, ...]
    after: tuple[Index, ...]
    mode: Mode = "constant"
    value: float | int | bool = 0.0
    samples = (
        sample(tensor(3), before=(1,), after=(2,)),
        sample(tensor(2, "n"), before=(0, 2), after=(1, 0), value=1.5),
        sample(tensor(5, 4), before=(-1, 1), after=(2, -2)),
        sample(tensor(3, 2), before=(2, 0), after=(4, 1), mode="edge"),
        sample(tensor(4, "n"), before=(3, 1), after=(2, 0), mode="reflect"),
        sample(tensor(3), before=(7,), after=(5,), mode="reflect"),
        sample(tensor(1), before=(1,), after=(2,), mode="reflect"),
        sample(tensor(3, 4), before=(-1, 2), after=(4, 0), mode="wrap"),
        sample(tensor(2, dtype=I64), before=(1,), after=(0,), value=7),
        sample(tensor(2, dtype=BOOL), before=(1,), after=(1,), value=True),
        sample(tensor(), before=(), after=()),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require(
            len(self.before) == len(self.after) == x.rank,
            f"Pad needs an amount before and after each axis of {x}, "
            f"not {shape_text(self.before)} and {shape_text(self.after)}",
        )
        shape = tuple(e + b + a for e, b, a in zip(x.shape, self.before, self.after, strict=True))
        require(
            not any(isinstance(e, int) and e < 0 for e in shape),
            f"cropping {x} by {shape_text(self.before)} and {shape_text(self.after)} "
            "leaves a negative extent",
        )
        constraints = self.shape_constraints(x)
        require(
            all(compare(*constraint, {}) is not False for constraint in constraints),
            f"an empty axis of {x} has no elements to pad it with, as mode {self.mode!r} asks for",
        )
        return (TensorType(shape, x.dtype),)

    def shape_constraints(self, x: TensorType) -> Constraints:
        """What is padded with its own elements has some."""
        if self.mode == "constant":
            return ()
        rows = zip(x.shape, self.before, self.after, strict=True)
        return tuple(
            (e + minimum(b, 0) + minimum(a, 0), ">=", minimum(e + b + a, 1))
            for e, b, a in rows
            if (b, a) != (0, 0)
        )

    def reference(self, x: Array) -> Array:
        before, after = numbers(self.before), numbers(self.after)
        crop = tuple(
            slice(max(-b, 0), e - max(-a, 0))
            for e, b, a in zip(x.shape, before, after, strict=True)
        )
        widths = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
        if not widths:
            return x.copy()
        if self.mode == "constant":
            return np.pad(x[crop], widths, constant_values=self.value)
        return np.pad(x[crop], widths, self.mode)

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        (result,) = self.infer(x.type)
        in_parts = x.rank > 0 and self._is_dynamic(x.rank - 1)
        axes = range(x.rank - 1 if in_parts else x.rank)
        sources = [self._along(at, a, x.shape[a], result.shape[a]) for a in axes]
        if in_parts:
            return self._in_parts(at, x, result.shape, sources)

        def body(o: Point) -> Element:
            return self._element(at, x, [source(i) for source, i in zip(sources, o, strict=True)])

        return at.stage(result.shape, body)

    def _in_parts(
        self, at: StageBuilder, x: Operand, shape: Point, sources: Sequence[Along]
    ) -> Operand:
        """Rows in three parts: in the middle one, elements lie side by side as they did."""
        *outer, whole = shape
        extent = x.shape[-1]
        target = at.tensor(shape, x.dtype)
        cropped = minimum(maximum(-self.before[-1], 0), extent)
        first, count = self._middle(x.rank - 1, extent, whole)

        def filled(start: Index, size: Index, source: Along) -> None:
            def element(o: Point) -> Element:
                if self.mode == "constant" and source is not middle:
                    return number(self.value, x.dtype)
                found = [along(i) for along, i in zip(sources, o[:-1], strict=True)]
                return self._element(at, x, [*found, source(o[-1])])

            at.fill(target, (*outer, size), lambda o: (*o[:-1], o[-1] + start), element)

        def middle(i: Index) -> Source:
            return i + cropped, []

        filled(first, count, middle)
        for start, size in ((0, first), (first + count, whole - first - count)):
            filled(start, size, self._along(at, x.rank - 1, extent, size, start))
        return target

    def _element(self, at: StageBuilder, x: Operand, found: Sequence[Source]) -> Element:
        """``x`` at what is found along each axis, an index or an integer from a table."""

        def read(place: Point) -> Element:
            if len(place) == x.rank:
                return x[place]
            index, _ = found[len(place)]
            if isinstance(index, Element):
                return at.gather(index, lambda i: read((*place, i)), None)
            return read((*place, index))

        return guard([c for _, conditions in found for c in conditions], read(()), self.value)

    def _along(
        self, at: StageBuilder, axis: int, extent: Index, whole: Index, start: Index = 0
    ) -> Along:
        """Where the elements of the result come from along ``axis``, ``whole`` of them from
        ``start`` on: from a table if that takes divisions by what is known at run time only."""

        def direct(i: Index) -> Source:
            return self._source(axis, i + start, extent)

        if self.mode in ("constant", "edge") or not self._is_dynamic(axis):
            return direct

        def place(o: Point) -> Element:
            found, _ = self._source(axis, o[0] + start, extent)
            return index_value(found, I64)

        table = at.stage((whole,), place)
        return lambda i: (table[i], [])

    def _is_dynamic(self, axis: int) -> bool:
        """Whether the amounts at ``axis`` are known at run time only."""
        return not all(isinstance(pad, int) for pad in (self.before[axis], self.after[axis]))

    def _middle(self, axis: int, extent: Index, whole: Index) -> tuple[Index, Index]:
        """Where elements of the operand begin along ``axis`` of the result, and how many."""
        before, after = self.before[axis], self.after[axis]
        count = maximum(extent + minimum(before, 0) + minimum(after, 0), 0)
        return minimum(maximum(before, 0), whole), count

    def _source(self, axis: int, i: Index, extent: Index) -> tuple[Index, list[Condition]]:
        """Index of x along ``axis`` for index i of the result, and when it is inside."""
        before, after = self.before[axis], self.after[axis]
        crop, cut = self._less(before), self._less(after)
        place = i - before - crop
        left, right = before + crop != 0, after + cut != 0
        size = extent - crop - cut
        if not left and not right:
            return place + crop, []
        if self.mode == "constant":
            low = [Condition(place, ">=", 0)] if left else []
            high = [Condition(place, "<", size)] if right else []
            return place + crop, low + high
        if self.mode == "reflect" and _reflects_once(before, after, size):
            near = maximum(place, -place)
            return crop + minimum(near, 2 * (size - 1) - near), []
        return crop + _folded(self.mode, place, size), []

    def _less(self, pad: Index) -> Index:
        """Elements that a pad takes away; guards and edges see by themselves what a named one
        does, for no place of the result is beyond it."""
        if isinstance(pad, int):
            return max(-pad, 0)
        return 0 if self.mode in ("constant", "edge") else maximum(-pad, 0)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        if self.mode == "constant":
            negated = tuple(-b for b in self.before), tuple(-a for a in self.after)
            return (build.emit(Pad(*negated), dys[0]),)
        dx = dys[0]
        for axis, extent in enumerate(build.type_of(inputs[0]).shape):
            pads = self.before[axis], self.after[axis]
            if pads != (0, 0):
                along = Pad((pads[0],), (pads[1],), self.mode)
                places = build.emit(along, build.emit(Iota((extent,))))
                dx = build.emit(GatherSum(axis, extent), dx, places)
        return (dx,)

    def quantize(self) -> QuantizedForm | None:
        return MOVES if self.mode != "constant" or self.value == 0 else None


def _reflects_once(before: Index, after: Index, size: Index) -> bool:
    """Whether both pads are known to be less than ``size``: one reflection does."""
    return all(compare(pad, "<", size, {}) for pad in (before, after))


def _folded(mode: Mode, i: Index, size: Index) -> Index:
    """An index in ``0 … size-1`` whose element stands for the one at ``i``, maybe outside."""
    if mode == "edge":
        return minimum(maximum(i, 0), size - 1)
    if mode == "wrap":
        return mod(i, size)
    if size == 1:
        return 0
    # A named extent may turn out to be 1: the period is its own then, too.
    folded = mod(i, maximum(2 * (size - 1), size, 1))
    return minimum(folded, 2 * (size - 1) - folded)


OPS: tuple[type[Op], ...] = (Pad,)
