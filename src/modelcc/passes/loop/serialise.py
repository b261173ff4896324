"""Parallel loops as serial ones."""

from __future__ import annotations

from dataclasses import replace

from modelcc.ir.loop import For, Function


def serialise(function: Function) -> Function:
    """``function`` for targets without a thread pool.

    before::

        func @zero(%y: mut f32[8]) {
          parallel i = 0 .. 8 {
            %y[i] = 0.0:f32
          }
        }

    after::

        func @zero(%y: mut f32[8]) {
          for i = 0 .. 8 {
            %y[i] = 0.0:f32
          }
        }
    """
    body = (
        replace(s, kind="serial", when=None) if isinstance(s, For) and s.kind == "parallel" else s
        for s in function.body
    )
    return replace(function, body=tuple(body))
