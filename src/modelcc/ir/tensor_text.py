"""Text form of tensor programs, read back to an equal program by ``parse_tensor_program``.

    program @main(%x: f32[batch, 64], %r: f32[3]) -> (%y, %s) states(%s over %r) dims(batch in 1:) {
      constant %w: f32[64, 32] = "9f2c…"
      kernel @fc(%x: f32[batch, 64], %w: f32[64, 32]) -> (%h: f32[batch, 32]) source("fc1") {
        %t: f32[batch, 32] = [i < batch, j < 32] sum[k < 64] %x[i, k] * %w[k, j]
        %h: f32[batch, 32] = [i < batch, j < 32] max(%t[i, j], 0.0)
      }
      view %y: f32[32*batch] = %h source("flatten")
      scatter %h (%h: f32[batch, 32], %i: i64[5], %u: f32[5, 32]) {
        %s[g, j]: f32[batch, 32] = [i < 5, j < 32] sum[] (let g = %i[i] below [batch] in %u[i, j])
      }                                         a copy of %h, with rows of %u added to it
      algorithm (%h: f32[batch, 32]) -> (%p: i64[2, 32*batch], %n: i64[1]) sizes(batch) {
        func @NonZero(…) { … }                    as the loop level has it
      }
      read k = %n source("nz") require [k <= 9]   k is a number from here on
      read %none require [k + n <= 9]             constraints alone
      if %c -> (%z: f32[batch]) source("If_0") {
        …
      } else {
        …
      }
      repeat [t < 8] while %go carry(%go: bool[] = %yes then %more last %end) fill(%s: f32[8]) {
        …
      }
    }

A stage that does not write at its axes spells indices: ``%y[i, j + 32]: f32[n, 64] = [i < n, j <
32] …``.  Scalar expressions have Python's precedence.  A literal with a point is f32 and one
without i64, unless a suffix says otherwise (``0.5:f16``); ``f32(x)`` is a cast,
``index(i + 1):i64`` an index as a number, ``select(c, x, y)`` a choice by value,
``(x if [i >= 1] else 0.0)`` a guard and ``(let g = %rows[i] below [n] in %table[g, j])`` a gather
whose index is checked; ``linear[[[1.0, 1.0], [1.0, -1.0]]][i](x, y)`` is row ``i`` of a matrix, or
of several one after the other, times a column of operands.
Types implied by the rules of the level (the dtype of a sum, of a read) are not printed, so only
verified programs are sure to read back equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from modelcc.ir.mlir_syntax import string_text
from modelcc.ir.spellings import VALUES
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.tensor_forms import DIMS, ITEMS, STATES, SYMBOL_NAME, TYPED, TYPEDS
from modelcc.ir.types import TensorType


def print_tensor_program(program: TensorProgram) -> str:
    """The text of ``program``; constants are named by the digest of their content."""
    return "\n".join(_program_lines(program)) + "\n"


def print_kernel(kernel: Kernel, types: Mapping[str, TensorType]) -> str:
    """The text of one kernel; ``types`` are those of every tensor in it."""
    return ITEMS.text(kernel, types) + "\n"


def _program_lines(program: TensorProgram) -> Iterator[str]:
    types = program.types
    signature = f"({TYPEDS.text(program.inputs, types)}) -> ({VALUES.text(program.outputs, types)})"
    states = f" states{STATES.text((*program.states.items(),), types)}" if program.states else ""
    dims = f" dims{DIMS.text(tuple(program.dims.items()), types)}" if program.dims else ""
    yield f"program {SYMBOL_NAME.text(program.name, types)}{signature}{states}{dims} {{"
    for name, constant in program.constants.items():
        yield f"  constant {TYPED.text(name, types)} = {string_text(constant.digest)}"
    for item in program.items:
        yield "  " + ITEMS.text(item, types).replace("\n", "\n  ")
    yield "}"
