"""Constraints on sizes without which a read would leave its tensor."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from modelcc.ir.condition import Condition
from modelcc.ir.constant import Constant
from modelcc.ir.index import Bounds, Index, Sym, compare, substitute
from modelcc.ir.index_uses import Use, uses
from modelcc.ir.naming import Names
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.scalar_tree import outer_binds
from modelcc.ir.tensor import Item, Kernel, ReadSize, Scatter, Stage, TensorProgram
from modelcc.ir.tensor_ranges import unproved
from modelcc.ir.types import I64
from modelcc.passes.tensor.from_graph import assertions_first


@dataclass(frozen=True)
class AssertReads:
    """The run ends where sizes would let a read leave its tensor: extents that ops assume to be
    equal may differ.

    Constraints are at the head of their region, so a branch that is not taken asserts nothing.

    before::

        program @main(%x: f32[n], %y: f32[8]) -> (%z) dims(n in 0:) {
          kernel @Add(%x: f32[n], %y: f32[8]) -> (%z: f32[n]) {
            %z: f32[n] = [i < n] (%x[i] + %y[i])
          }
        }

    after::

        program @main(%x: f32[n], %y: f32[8]) -> (%z) dims(n in 0:) {
          constant %nothing: i64[0] = "nothing"
          read %nothing require [8 >= n]
          kernel @Add(%x: f32[n], %y: f32[8]) -> (%z: f32[n]) {
            %z: f32[n] = [i < n] (%x[i] + %y[i])
          }
        }
    """

    def __call__(self, program: TensorProgram) -> TensorProgram:
        name = Names(program.types).fresh("nothing")
        items = _asserting(program.items, program, program.dims, name, _Holding())
        if items == program.items:
            return program
        return replace(
            program,
            items=items,
            types=MappingProxyType({**program.types, name: _NOTHING.type}),
            constants=MappingProxyType({**program.constants, name: _NOTHING}),
        )


_NOTHING = Constant(np.zeros(0, I64.numpy))


def _asserting(
    items: Sequence[Item], program: TensorProgram, dims: Bounds, nothing: str, holding: _Holding
) -> tuple[Item, ...]:
    result: list[Item] = []
    for item in items:
        match item:
            case Kernel() | Scatter():
                conditions = [
                    condition
                    for stage, places in _accesses(item)
                    for condition in unproved(stage, places, program.types, dims)
                ]
                new = tuple(c for c in dict.fromkeys(conditions) if not holding.imply(c, dims))
                if new:
                    result.append(ReadSize((), nothing, new, item.source))
                    holding.add(new)
                result.append(item)
            case Branch():
                then, other = (
                    _asserting(side, program, dims, nothing, _Holding(holding))
                    for side in (item.then, item.other)
                )
                result.append(replace(item, then=then, other=other))
            case Repeat():
                own = _Holding(holding)
                inside = _asserting(item.body, program, item.inside(dims), nothing, own)
                result.append(replace(item, body=inside))
            case ReadSize():
                holding.add(item.requires)
                result.append(item)
            case _:
                result.append(item)
    return tuple(assertions_first(result, {nothing}))


def _accesses(item: Kernel | Scatter) -> list[tuple[Stage, tuple[Use, ...]]]:
    """Stages with the indices of their reads, and for updates also of their writes."""
    if isinstance(item, Kernel):
        return [(stage, uses(stage)) for stage in item.stages]
    symbols = tuple(bind.symbol for bind in outer_binds(item.stage.body)[0])
    written = Use(item.stage.output, item.stage.write, (), symbols)
    return [(item.stage, (*uses(item.stage), written))]


class _Holding:
    """Conditions that hold at a point of a region: those met in it so far, and those around it."""

    def __init__(self, around: _Holding | None = None) -> None:
        self._conditions: ChainMap[Condition, None] = (
            ChainMap() if around is None else around._conditions.new_child()
        )
        self._equal: ChainMap[str, Index] = (
            ChainMap() if around is None else around._equal.new_child()
        )

    def add(self, conditions: Sequence[Condition]) -> None:
        """Conditions that hold from here to the end of the region."""
        for c in conditions:
            self._conditions[c] = None
            if c.comparison == "==" and isinstance(c.left, Sym):
                self._equal[c.left.name] = c.right

    def imply(self, condition: Condition, dims: Bounds) -> bool:
        """Whether ``condition`` holds: it is one of them, or follows from equal names."""
        if condition in self._conditions:
            return True
        sides = (substitute(side, self._equal) for side in (condition.left, condition.right))
        left, right = (substitute(side, self._equal) for side in sides)
        return compare(left, condition.comparison, right, dims) is True
