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

Constants are handles to their content's digest.  Before memory is planned there is no arena and
nothing is copied, but views and what memory may be planned by; branches and loops name what they
hand on::

      tensor %h: tensor<?xf32, ["7*batch"]>
      view %v = %h
      launch @add(%v, %x, %z; 7*batch) in_place(%z over %v) partial(%z) from "Add_0"
      if %c -> (%z) from "If_0" {
      repeat step < 8 carry(%s = %first then %next last %end) fill(%y) from "Loop_0" {
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from modelcc.ir.index import Index, quote_name
from modelcc.ir.index_bound_text import bound_text
from modelcc.ir.library import Address, Argument, ExternalCall, call_of, meaning_of
from modelcc.ir.loop_text import expression_text, function_lines, source_text
from modelcc.ir.mlir_syntax import string_text, type_text, value_text
from modelcc.ir.program import Allocate, CopyTensor, Launch, Placement, Program, Step
from modelcc.ir.region import Branch, Carry, Repeat
from modelcc.ir.rounding_text import rounding_text
from modelcc.ir.tensor import ReadSize, View


def print_program(program: Program) -> str:
    """The text of ``program`` and its kernels."""
    lines = [*_program_lines(program)]
    for callee in program.callees:
        call = call_of(callee)
        own = [] if call is None else [_external_call(call)]
        lines += ["", *own, *function_lines(meaning_of(callee))]
    return "\n".join(lines) + "\n"


def _external_call(call: ExternalCall) -> str:
    arguments = ", ".join(map(_argument, call.arguments))
    points = f" for {quote_name(call.counter)} < {call.count}" if call.counter else ""
    return f"library {quote_name(call.library)} calls {call.symbol}({arguments}){points}"


def _argument(argument: Argument) -> str:
    if isinstance(argument, Address):
        return f"{value_text(argument.buffer)}[{argument.offset}]"
    return expression_text(argument)


def _program_lines(program: Program) -> Iterator[str]:
    yield f"program @{value_text(program.name)[1:]} {{"
    for note in program.notes:
        yield f"  note {string_text(note)}"
    for name, known in program.dims.items():
        yield f"  dim {quote_name(name)} in {_bound(known.lo)} .. {_bound(known.hi)}".rstrip()
    for definition in () if program.placement is None else program.placement.definitions:
        yield f"  define {quote_name(definition.symbol)} = {definition.value}"
    if program.placement is not None:
        yield f"  arena {program.placement.arena}"
    for word, names in (("input", program.inputs), ("output", program.outputs)):
        for name in names:
            yield f"  {word} {_typed(program, name)}"
    for name, constant in program.constants.items():
        yield f"  constant {_typed(program, name)} digest {string_text(constant.digest)}"
    passed = {*program.inputs, *program.outputs, *program.constants}
    for name in program.types:
        if name not in passed:
            yield f"  {_memory(program, program.placement, name)}"
    for step in program.steps:
        yield from _step_lines(step, "  ")
    yield "}"


def _memory(program: Program, placement: Placement | None, name: str) -> str:
    """A tensor that is neither passed nor constant."""
    if placement is None:
        return f"tensor {_typed(program, name)}"
    binding = placement.bindings[name]
    where = f" in {value_text(binding.segment)}" if binding.segment else ""
    return f"place{where} {_typed(program, name)} at {binding.offset}"


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
            return f"launch {_launch(step)}"
        case View():
            tensors = f"{value_text(step.output)} = {value_text(step.input)}"
            return f"view {tensors}{source_text(step.source)}"
        case CopyTensor():
            tensors = f"{value_text(step.target)} = {value_text(step.source_tensor)}"
            return f"copy {tensors}{source_text(step.source)}"
        case ReadSize():
            names = f"{', '.join(map(quote_name, step.symbols))} = " if step.symbols else ""
            constraints = "".join(f" require {c}" for c in step.requires)
            source = source_text(step.source)
            return f"read {names}{value_text(step.tensor)}{source}{constraints}"
        case Allocate():
            source = source_text(step.source)
            return f"allocate {value_text(step.name)}{source} size {step.size}"
        case Branch():
            outputs = f" -> ({_values(step.outputs)})" if step.outputs else ""
            return f"if {value_text(step.condition)}{outputs}{source_text(step.source)} {{"
        case Repeat():
            return f"repeat {_loop_head(step)}{source_text(step.source)} {{"


def _launch(step: Launch) -> str:
    sizes = "; " + ", ".join(map(str, step.sizes)) if step.sizes else ""
    name = value_text(step.callee)[1:]
    pairs = ", ".join(f"{value_text(y)} over {value_text(x)}" for y, x in step.in_place)
    memory = f" in_place({pairs})" if pairs else ""
    memory += f" partial({_values(step.partial)})" if step.partial else ""
    bounds = "".join(f" check {bound_text(bound)}" for bound in step.bounds)
    clauses = source_text(step.source) + rounding_text(step.rounding)
    return f"@{name}({_values(step.arguments)}{sizes}){memory}{clauses}{bounds}"


def _loop_head(loop: Repeat[Step]) -> str:
    head = quote_name(loop.counter)
    head += "" if loop.trips is None else f" < {loop.trips}"
    head += "" if loop.condition is None else f" while {value_text(loop.condition)}"
    head += f" carry({', '.join(map(_carry, loop.carries))})" if loop.carries else ""
    return head + (f" fill({_values(loop.filled)})" if loop.filled else "")


def _carry(carry: Carry) -> str:
    state, first, following, last = map(
        value_text, (carry.state, carry.initial, carry.next, carry.last)
    )
    return f"{state} = {first} then {following} last {last}"


def _values(names: Iterable[str]) -> str:
    return ", ".join(map(value_text, names))


def _typed(program: Program, name: str) -> str:
    return f"{value_text(name)}: {type_text(program.types[name])}"


def _bound(bound: Index | None) -> str:
    return "" if bound is None else str(bound)
