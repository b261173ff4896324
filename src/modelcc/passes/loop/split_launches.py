"""Splits a function with several grid nests into one for each: consecutive launches.

    func @f(%x: f32[n], %t: mut f32[n], %y: mut f32[n]; n) {
      grid g in 0 .. n { … store %t[g] = load %x[g] … }
      grid h in 0 .. n { … store %y[h] = load %t[n - 1 - h] … }
    }

becomes ``@f.0(%x, %t: mut)`` and ``@f.1(%t, %y: mut)``; mutable buffers come last.
"""

from __future__ import annotations

from dataclasses import replace

from modelcc.ir.index import symbols
from modelcc.ir.loop import For, Function, Parameter, Stmt, Store, VectorScatter
from modelcc.ir.loop_traversal import names_used, statements


def split_launches(function: Function) -> tuple[Function, ...]:
    """A function for each grid nest; itself if there is one, or other statements."""
    nests = function.body
    if len(nests) == 1 or not all(isinstance(s, For) and s.kind == "grid" for s in nests):
        return (function,)
    return tuple(_launch(function, nest, number) for number, nest in enumerate(nests))


def _launch(function: Function, nest: Stmt, number: int) -> Function:
    used = names_used((nest,))
    written = {s.buffer for s in statements((nest,)) if isinstance(s, Store | VectorScatter)}
    mentioned = [p for p in function.parameters if p.buffer.name in used]
    given = [Parameter(p.buffer, p.buffer.name in written, p.shared) for p in mentioned]
    parameters = tuple(sorted(given, key=lambda p: p.mutable))
    sizes = {name for p in parameters for name in symbols(p.buffer.size)} | used.keys()
    return replace(
        function,
        name=f"{function.name}.{number}",
        parameters=parameters,
        sizes=tuple(name for name in function.sizes if name in sizes),
        body=(nest,),
    )
