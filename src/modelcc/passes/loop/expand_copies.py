"""Asynchronous copies as loads and stores, for machines without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from modelcc.ir.copies import CommitCopies, CopyAsync, WaitCopies
from modelcc.ir.loop import Alloc, Function, Load, Stmt, Store
from modelcc.ir.loop_traversal import map_blocks, statements
from modelcc.ir.types import DType


def expand_copies(function: Function) -> Function:
    """``function`` with synchronous copies.

    before::

        func @f(%x: f32[4*n], %y: mut f32[4*n]; n) {
          grid g in 0 .. n {
            shared %s: f32[4]
            thread t in 0 .. 4 {
              copy %s[t] = %x[4*g + t]
              commit
              wait 0
              store %y[4*g + t] = load %s[t]
            }
          }
        }

    after::

        func @f(%x: f32[4*n], %y: mut f32[4*n]; n) {
          grid g in 0 .. n {
            shared %s: f32[4]
            thread t in 0 .. 4 {
              store %s[t] = load %x[4*g + t]
              store %y[4*g + t] = load %s[t]
            }
          }
        }
    """
    shared = (s.buffer for s in statements(function.body) if isinstance(s, Alloc))
    dtypes = {buffer.name: buffer.dtype for buffer in shared}
    return replace(function, body=_expanded(function.body, dtypes))


def _expanded(body: tuple[Stmt, ...], dtypes: Mapping[str, DType]) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    for s in body:
        match s:
            case CopyAsync():
                dtype = dtypes[s.to]
                value = Load(s.source, s.source_offset, dtype, s.lanes, active=s.active)
                result.append(Store(s.to, s.to_offset, value))
            case CommitCopies() | WaitCopies():
                pass
            case _:
                result.append(map_blocks(s, lambda block: _expanded(block, dtypes)))
    return tuple(result)
