"""Loop-invariant code motion."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeGuard

from modelcc.ir.region import Branch, Repeat
from modelcc.ir.scalar_tree import walk
from modelcc.ir.tensor import (
    Bind,
    Item,
    Kernel,
    ReadSize,
    TensorProgram,
    View,
    item_inputs,
    item_outputs,
    leaf_items,
)
from modelcc.ir.tensor_verifier import item_symbols


@dataclass(frozen=True)
class HoistInvariants:
    """Moves kernels and views out of loops if none of their operands depends on an iteration.

    Packing of loop-invariant operands of products is an example.  Kernels that may end the run,
    because of an index out of range, stay: the loop may have no iteration.

    before::

        program @main(%x: f32[4], %w: f32[4]) -> (%y) {
          repeat [t < 3] carry(%h: f32[4] = %x then %next last %y) {
            kernel @Exp(%w: f32[4]) -> (%e: f32[4]) {
              %e: f32[4] = [i < 4] exp(%w[i])
            }
            kernel @Add(%h: f32[4], %e: f32[4]) -> (%next: f32[4]) {
              %next: f32[4] = [i < 4] %h[i] + %e[i]
            }
          }
        }

    after::

        program @main(%x: f32[4], %w: f32[4]) -> (%y) {
          kernel @Exp(%w: f32[4]) -> (%e: f32[4]) {
            %e: f32[4] = [i < 4] exp(%w[i])
          }
          repeat [t < 3] carry(%h: f32[4] = %x then %next last %y) {
            kernel @Add(%h: f32[4], %e: f32[4]) -> (%next: f32[4]) {
              %next: f32[4] = [i < 4] %h[i] + %e[i]
            }
          }
        }
    """

    def __call__(self, program: TensorProgram) -> TensorProgram:
        if not any(isinstance(item, Branch | Repeat) for item in program.items):
            return program
        return replace(program, items=_hoisted(program.items, program))


def _hoisted(items: tuple[Item, ...], program: TensorProgram) -> tuple[Item, ...]:
    return tuple(chain.from_iterable(_of_item(item, program) for item in items))


def _of_item(item: Item, program: TensorProgram) -> tuple[Item, ...]:
    match item:
        case Branch():
            then, other = _hoisted(item.then, program), _hoisted(item.other, program)
            return (replace(item, then=then, other=other),)
        case Repeat():
            return _of_loop(replace(item, body=_hoisted(item.body, program)), program)
        case _:
            return (item,)


def _of_loop(loop: Repeat[Item], program: TensorProgram) -> tuple[Item, ...]:
    """The hoisted items, and the loop without them."""
    sizes = (i for i in leaf_items(loop.body) if isinstance(i, ReadSize))
    own = {loop.counter, *(name for size in sizes for name in size.symbols)}
    changing = {c.state for c in loop.carries} | {n for i in loop.body for n in item_outputs(i)}
    makers = Counter(n for i in loop.body for n in item_outputs(i))
    shared = (name for name, count in makers.items() if count > 1)  # each defines a part
    kept = {*(c.next for c in loop.carries), *loop.filled, *shared}
    moved: list[Item] = []
    body: list[Item] = []
    for item in loop.body:
        if (
            _may_move(item)
            and changing.isdisjoint(item_inputs(item))
            and kept.isdisjoint(item_outputs(item))
            and own.isdisjoint(item_symbols(item, program.types))
        ):
            changing -= set(item_outputs(item))
            moved.append(item)
        else:
            body.append(item)
    return (*moved, replace(loop, body=tuple(body)))


def _may_move(item: Item) -> TypeGuard[Kernel | View]:
    if not isinstance(item, Kernel):
        return isinstance(item, View)
    return not any(isinstance(node, Bind) for stage in item.stages for node in walk(stage.body))
