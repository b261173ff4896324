"""Text form of host programs, read back by :mod:`modelcc.ir.program_parser`.

::

    program @small {
      dim batch in 1 ..
      define g_at = ((28*batch + 63) floordiv 64)*64
      arena 2*g_at
      input %x: tensor<?x7xf32, ["batch"]>
      input %r: tensor<3xf32>
      output %y: tensor<?x7xf32, ["batch"]>
      output %s: tensor<3xf32>
      state %s over %r
      constant %w: tensor<1xf32> digest "9f2c…"
      arrivals %c: tensor<4xi32>
      place %h: tensor<?xf32, ["7*batch"]> at 0
      launch @add(%x, %x, %h; 7*batch) from "Add_0"
      copy %y = %h
      if %c from "If_0" {
        copy %z = %x
      } else {
        copy %z = %h
      }
      repeat step < 2*batch while %go from "Loop_0" {
        launch @next(%z; step)
      }
    }
    func @add(%x: f32[n], …

Constants are handles to their content's digest.  Before memory is planned there is no arena and
there are no copies, but views and hints for memory planning; branches and loops name their
outputs::

      tensor %h: tensor<?xf32, ["7*batch"]>
      view %v = %h
      launch @add(%v, %x, %z; 7*batch) in_place(%z over %v) partial(%z) from "Add_0"
      if %c -> (%z) from "If_0" {
      repeat step < 8 carry(%s = %first then %next last %end) fill(%y) from "Loop_0" {
"""

from __future__ import annotations

from collections.abc import Iterator

from modelcc.ir.index import Index, quote_name
from modelcc.ir.library_forms import callee_text
from modelcc.ir.memory_rules import ALIGNMENT
from modelcc.ir.mlir_syntax import string_text, type_text, value_text
from modelcc.ir.program import Placement, Program
from modelcc.ir.program_forms import DEFINITION, STEPS
from modelcc.ir.spellings import OVER


def print_program(program: Program) -> str:
    """The text of ``program`` and its kernels."""
    texts = ("\n".join(_program_lines(program)) + "\n", *map(callee_text, program.callees))
    return "\n".join(texts)


def _program_lines(program: Program) -> Iterator[str]:
    yield f"program @{value_text(program.name)[1:]} {{"
    for note in program.notes:
        yield f"  note {string_text(note)}"
    for name, known in program.dims.items():
        yield f"  dim {quote_name(name)} in {_bound(known.lo)} .. {_bound(known.hi)}".rstrip()
    for definition in () if program.placement is None else program.placement.definitions:
        yield f"  define {DEFINITION.text(definition)}"
    if program.placement is not None:
        yield f"  arena {program.placement.arena}"
        if program.placement.alignment != ALIGNMENT:
            yield f"  aligned {program.placement.alignment}"
    for word, names in (("input", program.inputs), ("output", program.outputs)):
        for name in names:
            yield f"  {word} {_typed(program, name)}"
    for pair in program.states.items():
        yield f"  state {OVER.text(pair, {})}"
    for name, offset in program.room.items():
        yield f"  room {value_text(name)} at {offset}"
    for pair in () if program.placement is None else program.placement.overlaps:
        yield f"  overlap {OVER.text(pair, {})}"
    for name, constant in program.constants.items():
        yield f"  constant {_typed(program, name)} digest {string_text(constant.digest)}"
    for name in program.arrivals:
        yield f"  arrivals {_typed(program, name)}"
    passed = {*program.inputs, *program.outputs, *program.constants, *program.arrivals}
    for name in program.types:
        if name not in passed:
            yield f"  {_memory(program, program.placement, name)}"
    for step in program.steps:
        yield "  " + STEPS.text(step).replace("\n", "\n  ")
    yield "}"


def _memory(program: Program, placement: Placement | None, name: str) -> str:
    """A tensor that is neither an argument nor constant."""
    if placement is None:
        return f"tensor {_typed(program, name)}"
    binding = placement.bindings[name]
    where = f" in {value_text(binding.segment)}" if binding.segment else ""
    return f"place{where} {_typed(program, name)} at {binding.offset}"


def _typed(program: Program, name: str) -> str:
    return f"{value_text(name)}: {type_text(program.types[name])}"


def _bound(bound: Index | None) -> str:
    return "" if bound is None else str(bound)
