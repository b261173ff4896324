"""LLVM module text of loop-level functions.

``func @relu(%x: f32[n], %y: mut f32[n]; n)`` with a parallel loop becomes three functions::

    define void @relu(ptr noalias readonly %x, ptr noalias %y, i64 %n, ptr %pool)
    define internal void @relu.body(ptr %context, i64 %begin, i64 %end, i32 %thread)
    define internal void @relu.range(ptr noalias %x, ptr noalias %y, i64 %n, i64 %begin, i64 %end)

The last runs iterations ``begin … end-1``; its parameters let LLVM know what does not alias.  The
pool calls the second; without a pool (null), or where the loop's ``when`` does not hold, the first
calls the last for all iterations.
A function without a parallel loop has no pool parameter.  One with checks takes ``ptr %faults``
before the pool: two i64 for each of their numbers, of which a check that fails sets the first to 1
and the second to the index, and returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Range, Sym
from modelcc.ir.loop import Buffer, For, Function, Parameter
from modelcc.ir.loop_traversal import FAULTS, checks_in, names_used, parallel_loop
from modelcc.ir.types import I64
from modelcc.targets.llvm.code import Code, Value
from modelcc.targets.llvm.expressions import ExpressionCode
from modelcc.targets.llvm.instructions import NONE, Instructions
from modelcc.targets.llvm.statements import StatementCode, iterations
from modelcc.targets.llvm.values import quoted

PARALLEL_FOR = "mcc_parallel_for"
_PARALLEL_DECLARATION = f"declare void @{PARALLEL_FOR}(ptr, ptr, ptr, i64, i64)"


@dataclass(frozen=True)
class EmitOptions:
    """``attributes`` is the attribute group of every function (target CPU, vector width …);
    ``triple`` the LLVM target triple, empty for the one the module is compiled for;
    ``instructions`` are what the processor has beyond what all have."""

    attributes: str = "nounwind"
    triple: str = ""
    instructions: Instructions = NONE


PLAIN = EmitOptions()


def emit_llvm(functions: Sequence[Function], options: EmitOptions = PLAIN) -> str:
    """LLVM IR text of a module that defines ``functions``.

    Raises ``NotImplementedError`` for elementary functions that ``expand_math`` has not expanded
    and ``TypeError`` for element types without LLVM arithmetic.
    """
    declarations: dict[str, None] = {}
    definitions = [text for f in functions for text in _definitions(f, declarations, options)]
    return module_text(definitions, declarations, options)


def module_text(
    definitions: Sequence[str], declarations: dict[str, None], options: EmitOptions
) -> str:
    """Definitions, sorted declarations and the attribute group, as one module."""
    head = [f'target triple = "{options.triple}"'] if options.triple else []
    tail = ["\n".join(sorted(declarations))] if declarations else []
    group = f"attributes #0 = {{ {options.attributes} }}"
    return "\n\n".join([*head, *definitions, *tail, group]) + "\n"


def signature(function: Function) -> tuple[str, ...]:
    """LLVM types of the function's parameters."""
    faults = ("ptr",) if checks_in(function) else ()
    pool = ("ptr",) if parallel_loop(function) else ()
    sizes = ("i64",) * len(function.sizes)
    return ("ptr",) * len(function.parameters) + sizes + faults + pool


def _definitions(
    function: Function, declarations: dict[str, None], options: EmitOptions
) -> list[str]:
    outlined: list[str] = []

    def parallel(code: Code, expressions: ExpressionCode, loop: For) -> None:
        outlined.extend(_parallel_loop(function, code, expressions, loop))

    code = Code(declarations, options.instructions)
    pool = [f"ptr {code.local('pool')}"] if parallel_loop(function) else []
    parameters = _bind_parameters(code, function)
    StatementCode(code, parallel).block(function.body)
    code.scope.block.terminator = "ret void"
    return [*outlined, _definition(function.name, [*parameters, *pool], code, function.source)]


def _definition(
    name: str,
    parameters: Sequence[str],
    code: Code,
    source: Sequence[str],
    linkage: str = "",
    attribute: str = "",
) -> str:
    comment = f"; {', '.join(source)}\n" if source else ""
    head = f"define {linkage}void @{quoted(name)}({', '.join(parameters)}) {attribute}#0"
    return f"{comment}{head} {{\n{code.text()}\n}}"


def _bind_parameters(code: Code, function: Function) -> list[str]:
    texts: list[str] = []
    for parameter in function.parameters:
        operand = code.local(parameter.buffer.name)
        code.scope.buffers[parameter.buffer.name] = (operand, parameter.buffer)
        texts.append(_pointer(operand, parameter))
    for name in function.sizes:
        operand = code.local(name)
        code.scope.symbols[name] = operand
        code.scope.bounds[name] = Range(0, None)
        texts.append(f"i64 {operand}")
    count = checks_in(function)
    if count:
        operand = code.local("faults")
        code.scope.buffers[FAULTS] = (operand, Buffer(FAULTS, I64, 2 * count, align=8))
        texts.append(f"ptr noalias captures(none) align 8 {operand}")
    return texts


def _pointer(operand: str, parameter: Parameter) -> str:
    alone = "" if parameter.shared else " noalias"
    access = "" if parameter.mutable else " readonly"
    return f"ptr{alone} captures(none){access} align {parameter.buffer.align} {operand}"


# --- parallel loops


@dataclass(frozen=True)
class _Capture:
    """A name the loop body uses: LLVM type and operand outside, and what it names."""

    name: str
    type: str
    operand: str
    buffer: Buffer | None = None
    is_symbol: bool = False


def _parallel_loop(
    function: Function, code: Code, expressions: ExpressionCode, loop: For
) -> list[str]:
    captures = _captures(code, loop)
    ranged, body = f"{function.name}.range", f"{function.name}.body"
    index = expressions.index
    count = index.operand(iterations(loop))
    arguments = "".join(f"{c.type} {c.operand}, " for c in captures)
    types = ", ".join(c.type for c in captures)
    context = code.allocate(f"{{ {types} }}", "context")
    alone = _runs_alone(code, expressions, loop)
    before = code.scope.block
    first = code.begin_block("serial")
    code.effect(f"call void @{quoted(ranged)}({arguments}i64 0, i64 {count})")
    second = code.begin_block("threaded")
    before.terminator = (
        f"br i1 {alone}, label %{quoted(first.label)}, label %{quoted(second.label)}"
    )
    for position, capture in enumerate(captures):
        field = code.emit(_field(types, context, position), "field")
        code.effect(f"store {capture.type} {capture.operand}, ptr {field}")
    code.declarations[_PARALLEL_DECLARATION] = None
    code.effect(
        f"call void @{PARALLEL_FOR}(ptr %pool, ptr @{quoted(body)}, ptr {context}, "
        f"i64 {count}, i64 1)"
    )
    done = code.begin_block("joined")
    first.terminator = second.terminator = f"br label %{quoted(done.label)}"
    return [
        _range_function(function, code, loop, captures, ranged),
        _body_function(captures, types, body, ranged, code.declarations),
    ]


def _runs_alone(code: Code, expressions: ExpressionCode, loop: For) -> str:
    """An ``i1``: all iterations run in the calling thread."""
    is_null = code.emit("icmp eq ptr %pool, null", "c")
    if loop.when is None:
        return is_null
    worth = expressions.condition((loop.when,))
    return code.emit(f"select i1 {worth}, i1 {is_null}, i1 true", "c")


def _field(types: str, context: str, position: int) -> str:
    return f"getelementptr {{ {types} }}, ptr {context}, i64 0, i32 {position}"


def _captures(code: Code, loop: For) -> list[_Capture]:
    used = names_used((replace(loop, when=None),))
    scope = code.scope
    found: list[_Capture] = []
    for name in used:
        if name in scope.buffers:
            operand, buffer = scope.buffers[name]
            found.append(_Capture(name, "ptr", operand, buffer))
        if name in scope.symbols:
            found.append(_Capture(name, "i64", scope.symbols[name], is_symbol=True))
        if name in scope.values:
            value = scope.values[name]
            if value.is_register:
                raise ValueError(f"register '{name}' cannot be used inside a parallel loop")
            found.append(_Capture(name, value.type, value.operand))
    return found


def _range_function(
    function: Function, outer: Code, loop: For, captures: Sequence[_Capture], name: str
) -> str:
    """Runs iterations ``begin … end-1`` of the loop."""
    code = Code(outer.declarations, outer.instructions)
    mutable = {p.buffer.name: p for p in function.parameters}
    parameters = [_bind_capture(code, outer, c, mutable.get(c.name)) for c in captures]
    begin, end = code.local("begin"), code.local("end")
    code.scope.symbols[".begin"], code.scope.symbols[".end"] = begin, end

    def nested(code: Code, expressions: ExpressionCode, loop: For) -> None:
        raise ValueError(
            f"{function.name}: parallel loop over '{loop.variable}' inside a parallel loop"
        )

    writer = StatementCode(code, nested)
    first = loop.start + Sym(".begin") * loop.step
    bound = loop.start + Sym(".end") * loop.step
    writer.partial_loop(loop, first, bound)
    code.scope.block.terminator = "ret void"
    parameters += [f"i64 {begin}", f"i64 {end}"]
    # Inlined into both callers, the kernel would be compiled twice.
    return _definition(name, parameters, code, (), "internal ", "noinline ")


def _bind_capture(code: Code, outer: Code, capture: _Capture, parameter: Parameter | None) -> str:
    operand = code.local(capture.name)
    if capture.buffer is not None:
        code.scope.buffers[capture.name] = (operand, capture.buffer)
        if parameter is not None:
            return _pointer(operand, parameter)
    elif capture.is_symbol:
        code.scope.symbols[capture.name] = operand
        known = outer.scope.bounds.get(capture.name)
        if known is not None:
            code.scope.bounds[capture.name] = known
    else:
        code.scope.values[capture.name] = Value(operand, capture.type)
    return f"{capture.type} {operand}"


def _body_function(
    captures: Sequence[_Capture],
    types: str,
    name: str,
    ranged: str,
    declarations: dict[str, None],
) -> str:
    """What the pool calls: unpacks the context."""
    code = Code(declarations)
    parameters = ["ptr %context", "i64 %begin", "i64 %end", "i32 %thread"]
    for hint in ("context", "begin", "end", "thread"):
        code.fresh(hint)
    arguments = ""
    for position, capture in enumerate(captures):
        field = code.emit(_field(types, "%context", position), "field")
        operand = code.emit(f"load {capture.type}, ptr {field}", capture.name)
        arguments += f"{capture.type} {operand}, "
    code.effect(f"call void @{quoted(ranged)}({arguments}i64 %begin, i64 %end)")
    code.scope.block.terminator = "ret void"
    return _definition(name, parameters, code, (), "internal ")
