"""Box copies as loads and stores, for machines without them."""

from __future__ import annotations

from dataclasses import replace

from modelcc.ir.condition import Condition
from modelcc.ir.index import Index, Sym
from modelcc.ir.loop import (
    Alloc,
    Barrier,
    Const,
    For,
    Function,
    If,
    Load,
    Predicate,
    RoutineCall,
    Stmt,
    Store,
    TakeTurns,
)
from modelcc.ir.loop_traversal import map_blocks, statements
from modelcc.ir.tiles import CopyTile, ExpectBytes, WaitArrival, WaitRoutines
from modelcc.ir.types import DType


def expand_tiles(function: Function) -> Function:
    """``function`` with synchronous box copies and routines.

    before::

        func @f(%x: f32[n], %y: mut f32[n]; n) {
          grid g in 0 .. 1 {
            tile %s: f32[4]
            arrivals %a: i64[1]
            thread t in 0 .. 4 {
              if predicate(t == 0) {
                expect %a[0] bytes 16
                box %s[0] = %x[0] from 0 of (n) stride (1) box (4) to %a[0]
              }
              await %a[0] phase 0
            }
          }
        }

    after::

        func @f(%x: f32[n], %y: mut f32[n]; n) {
          grid g in 0 .. 1 {
            shared %s: f32[4]
            thread t in 0 .. 4 {
              if predicate(t == 0) {
                for box.0 in 0 .. 4 {
                  if predicate(0 <= box.0, box.0 < n) {
                    store %s[box.0] = load %x[box.0]
                  } else {
                    store %s[box.0] = f32(0)
                  }
                }
              }
              barrier
            }
          }
        }
    """
    types = {p.buffer.name: p.buffer.dtype for p in function.parameters}
    threads = [s for s in statements(function.body) if isinstance(s, For) and s.kind == "thread"]
    first = tuple(Condition(Sym(loop.variable), "==", 0) for loop in threads)
    return replace(function, body=_expanded(function.body, types, first))


def _expanded(
    body: tuple[Stmt, ...], types: dict[str, DType], first: tuple[Condition, ...]
) -> tuple[Stmt, ...]:
    """``body`` of threads, of which the ``first`` one executes single-thread statements."""
    result: list[Stmt] = []
    for s in body:
        match s:
            case Alloc() if s.buffer.space == "tile":
                result.append(Alloc(replace(s.buffer, space="shared")))
            case Alloc() if s.buffer.space == "arrivals":
                pass
            case CopyTile():
                result.append(_copied(s, types[s.source]))
            case WaitArrival():
                result.append(Barrier())
            case ExpectBytes() | WaitRoutines():
                pass
            case TakeTurns():
                copies = _expanded(s.copies, types, first)
                result += [Barrier(), If(Predicate(first), copies)]
                result += _expanded((*s.first, *s.rest), types, first)
            case RoutineCall():
                result.append(replace(s, beside=False))
            case _:
                result.append(map_blocks(s, lambda block: _expanded(block, types, first)))
    return tuple(result)


def _copied(s: CopyTile, dtype: DType) -> Stmt:
    to, source = s.to_offset, s.offset
    conditions: list[Condition] = []
    loops: list[tuple[str, int]] = []
    step = 1
    for axis in reversed(range(len(s.box))):
        name = f"box.{axis}"
        place: Index = s.at[axis] + Sym(name)
        to, source = to + step * Sym(name), source + s.strides[axis] * place
        conditions += [Condition(0, "<=", place), Condition(place, "<", s.sizes[axis])]
        loops.append((name, s.box[axis]))
        step *= s.box[axis]
    inside = Store(s.to, to, Load(s.source, source, dtype))
    outside = Store(s.to, to, Const(0, dtype))
    found: Stmt = If(Predicate(tuple(conditions)), (inside,), (outside,))
    for name, count in loops:
        found = For(name, 0, count, (found,))
    return found
