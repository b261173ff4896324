"""Text form of loop functions, read back by :mod:`modelcc.ir.loop_parser`.

::

    func @relu(%x: f32[n], %y: mut f32[n] align 4; n) from "relu_1" {
      local %t: f32[16]
      parallel i in 0 .. n step 16 {
        comment "16 elements"
        let %v = load %x[i] x16 mask(n - i)
        store %y[i] mask(n - i) = max(%v, f32x16(0.0))
      }
      if predicate(n < 4, n != 2) {
        index g = load %rows[0]
        register %s = splat[8](index[f32](2*g))
        %s = muladd(%s, convert[f32](gather %q[4; index[i32x8](g step 1)]), %s)
        %t = dot4(load %u[0] x4, load %w[0] x64, %t)
        scatter %y[0; %to] = select(gt(%s, %s), %s, %s)
        run @add(%x[4], %s[0]; 16)
        store %y[0] stride(2) = reduce[add](%s)
        prefetch %x[64] level 2
      } else {
      }
      while lt(%s, f32(9.0)) {
        %s = add(%s, load %x[0])
      }
    }

Instructions that a function uses precede it, as :mod:`modelcc.ir.instructions` shows
(``rough instruction`` where the result is not exact), then functions that it calls, as
``routine @add(…``.
Types of values follow from those of buffers and constants, so only conversions spell theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.instructions import ROUGH, instruction_function, instructions_in
from modelcc.ir.loop import Function, Stmt
from modelcc.ir.loop_forms import STATEMENTS, definition_text
from modelcc.ir.loop_traversal import routines_in


def print_functions(functions: Sequence[Function]) -> str:
    """The text of several functions."""
    return "\n".join(map(print_function, functions))


def print_function(function: Function) -> str:
    """The text of ``function``, after the instructions and routines that it uses."""
    texts = [
        f"{'' if each.exact else ROUGH}instruction {definition_text(instruction_function(each))}\n"
        for each in instructions_in(function.body)
    ]
    texts += [f"routine {definition_text(each)}\n" for each in routines_in(function.body)]
    return "".join((*texts, f"func {definition_text(function)}\n"))


def statement_text(s: Stmt) -> str:
    """The first line of a statement, for messages."""
    return STATEMENTS.text(s).partition("\n")[0]
