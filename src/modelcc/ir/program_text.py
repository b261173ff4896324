"""Text form of host programs, read back by :mod:`modelcc.ir.program_parser`.

::

    program @small {
      dim batch in 1 ..
      define g_at = ((28*batch + 63) floordiv 64)*64
      arena 2*g_at
      input %x: tensor<?x7xf32, ["batch"]>
      output %y: tensor<?x7xf32, ["batch"]>
      constant %w: tensor<1xf32> digest "9f2c…"
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

Constants are handles to their content's digest.
"""

from __future__ import annotations

from collections.abc import Iterator

from modelcc.ir.index import Index, quote_name
from modelcc.ir.index_bound_text import bound_text
from modelcc.ir.loop_text import function_lines, source_text
from modelcc.ir.mlir_syntax import string_text, type_text, value_text
from modelcc.ir.program import (
    Allocate,
    Binding,
    CopyTensor,
    Launch,
    Program,
    Step,
)
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.rounding_text import rounding_text
from modelcc.ir.tensor import ReadSize


def print_program(program: Program) -> str:
    """The text of ``program`` and its kernels."""
    lines = [*_program_lines(program)]
    for function in program.functions:
        lines += ["", *function_lines(function)]
    return "\n".join(lines) + "\n"


def _program_lines(program: Program) -> Iterator[str]:
    yield f"program @{value_text(program.name)[1:]} {{"
    for name, known in program.dims.items():
        yield f"  dim {quote_name(name)} in {_bound(known.lo)} .. {_bound(known.hi)}".rstrip()
    for definition in program.definitions:
        yield f"  define {quote_name(definition.symbol)} = {definition.value}"
    yield f"  arena {program.arena}"
    for word, names in (("input", program.inputs), ("output", program.outputs)):
        for name in names:
            yield f"  {word} {_typed(program.bindings[name])}"
    for name, constant in program.constants.items():
        binding = program.bindings.get(name) or Binding(name, constant.type, "constant")
        unbound = "" if name in program.bindings else "unused "
        yield f"  constant {unbound}{_typed(binding)} digest {string_text(constant.digest)}"
    for binding in program.bindings.values():
        if binding.place == "arena":
            where = f" in {value_text(binding.segment)}" if binding.segment else ""
            yield f"  place{where} {_typed(binding)} at {binding.offset}"
    for step in program.steps:
        yield from _step_lines(step, "  ")
    yield "}"


def _step_lines(step: Step, indent: str) -> Iterator[str]:
    yield indent + step_text(step)
    match step:
        case Branch():
            for inner in step.then:
                yield from _step_lines(inner, indent + "  ")
            if step.other:
                yield indent + "} else {"
            for inner in step.other:
                yield from _step_lines(inner, indent + "  ")
            yield indent + "}"
        case Repeat():
            for inner in step.body:
                yield from _step_lines(inner, indent + "  ")
            yield indent + "}"
        case _:
            pass


def step_text(step: Step) -> str:
    """One step, also for messages; of a branch or loop its first line."""
    match step:
        case Launch():
            tensors = ", ".join(map(value_text, step.arguments))
            sizes = "; " + ", ".join(map(str, step.sizes)) if step.sizes else ""
            name = value_text(step.function)[1:]
            bounds = "".join(f" check {bound_text(bound)}" for bound in step.bounds)
            clauses = source_text(step.source) + rounding_text(step.rounding)
            return f"launch @{name}({tensors}{sizes}){clauses}{bounds}"
        case CopyTensor():
            tensors = f"{value_text(step.target)} = {value_text(step.source_tensor)}"
            return f"copy {tensors}{source_text(step.source)}"
        case ReadSize():
            names = f"{', '.join(map(quote_name, step.symbols))} = " if step.symbols else ""
            demands = "".join(f" require {c}" for c in step.requires)
            source = source_text(step.source)
            return f"read {names}{value_text(step.tensor)}{source}{demands}"
        case Allocate():
            source = source_text(step.source)
            return f"allocate {value_text(step.name)}{source} size {step.size}"
        case Branch():
            return f"if {value_text(step.condition)}{source_text(step.source)} {{"
        case Repeat():
            bound = "" if step.trips is None else f" < {step.trips}"
            going = "" if step.condition is None else f" while {value_text(step.condition)}"
            head = f"repeat {quote_name(step.counter)}{bound}{going}"
            return f"{head}{source_text(step.source)} {{"


def _typed(binding: Binding) -> str:
    return f"{value_text(binding.name)}: {type_text(binding.type)}"


def _bound(bound: Index | None) -> str:
    return "" if bound is None else str(bound)
