"""Splits reductions across images in two: within each image, and of their results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile

from modelcc.ir.index import Sym, compare, product, symbols
from modelcc.ir.naming import Names
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Axis, Item, Kernel, Read, Stage, TensorProgram
from modelcc.ir.types import TensorType
from modelcc.schedule.workload import plain_type


@dataclass(frozen=True)
class SplitSums:
    """Splits a reduction whose terms are in memory as runs of at least ``shortest`` elements, with
    other runs for other results between them, as the pixels of a channel are.

    Each run is then reduced by vectors, without gathers from many runs, in rows that other stages
    share, and its sum has fewer terms, which rounds less.

    before::

        program @main(%x: f32[8, 4, 900]) -> (%y) dims() {
          kernel @Sum(%x: f32[8, 4, 900]) -> (%y: f32[4]) {
            %y: f32[4] = [c < 4] sum[n < 8, p < 900] %x[n, c, p]
          }
        }

    after::

        program @main(%x: f32[8, 4, 900]) -> (%y) dims() {
          kernel @Sum(%x: f32[8, 4, 900]) -> (%y.runs: f32[8, 4]) {
            %y.runs: f32[8, 4] = [n < 8, c < 4] sum[p < 900] %x[n, c, p]
          }
          kernel @Sum(%y.runs: f32[8, 4]) -> (%y: f32[4]) {
            %y: f32[4] = [c < 4] sum[n < 8] %y.runs[n, c]
          }
        }
    """

    shortest: int

    def __call__(self, program: TensorProgram) -> TensorProgram:
        items: list[Item] = []
        types, names = dict(program.types), Names(program.types)
        for item in program.items:
            inner = self._runs(item, program) if isinstance(item, Kernel) else ()
            if not isinstance(item, Kernel) or not inner:
                items.append(item)
                continue
            (stage,) = item.stages
            first, last = _in_runs(stage, inner, names.fresh(f"{stage.output}.runs"))
            types[first.output] = plain_type(first)
            items.append(replace(item, outputs=(first.output,), stages=(first,)))
            items.append(replace(item, inputs=(first.output,), stages=(last,)))
        return replace(program, types=types).with_items(tuple(items))

    def _runs(self, kernel: Kernel, program: TensorProgram) -> tuple[Axis, ...]:
        """The reduction axes along a run, if there are others and the reduction is to be split."""
        if len(kernel.stages) != 1 or kernel.stages[0].combine is None:
            return ()
        (stage,) = kernel.stages
        found = set(_trailing_axes(stage, program.types))
        inner = found.pop() if len(found) == 1 else ()
        if not 0 < len(inner) < len(stage.reduce):
            return ()
        long = compare(product(a.extent for a in inner), ">=", self.shortest, program.dims)
        return inner if long else ()


def _trailing_axes(stage: Stage, types: Mapping[str, TensorType]) -> Iterator[tuple[Axis, ...]]:
    """Of each operand with reduced axes, those that are last in its memory order; none of one that
    lacks an axis, as the operands of a matrix product do."""
    reduced = {a.name: a for a in stage.reduce}
    wanted = {a.name for a in (*stage.axes, *stage.reduce) if a.extent != 1}
    for read in reads(stage.body):
        names = [i.name if isinstance(i, Sym) else "" for i in read.indices if i != 0]
        if reduced.keys().isdisjoint(_symbols(read)):
            continue
        whole = wanted <= set(names) and types[read.tensor].layout is None
        last = takewhile(lambda name: name in reduced, reversed(names)) if whole else ()
        yield tuple(reduced[name] for name in last)[::-1]


def _symbols(read: Read) -> set[str]:
    return {name for index in read.indices for name in symbols(index)}


def _in_runs(stage: Stage, inner: tuple[Axis, ...], name: str) -> tuple[Stage, Stage]:
    """The sums of runs, and the sum of these."""
    outer = tuple(a for a in stage.reduce if a not in inner)
    axes = (*outer, *stage.axes)
    place = tuple(Sym(a.name) for a in axes)
    first = Stage(name, axes, place, stage.body, inner, stage.combine)
    return first, replace(stage, body=Read(name, place, stage.body.dtype), reduce=outer)
