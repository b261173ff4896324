"""Calls of the thread pool, which hands a function the context that it was given itself."""

from __future__ import annotations

from modelcc.ir.condition import Condition
from modelcc.ir.index import Sym
from modelcc.ir.loop import Function, ParallelCall
from modelcc.ir.loop_traversal import FAULTS, checks_in
from modelcc.targets.llvm.code import Code
from modelcc.targets.llvm.expressions import ExpressionCode
from modelcc.targets.llvm.values import quoted, value_type

PARALLEL_FOR = "mcc_parallel_for"
_DECLARATION = f"declare void @{PARALLEL_FOR}(ptr, ptr, ptr, i64, i64)"

BODY = ".body"
"""Ends the name of the function that the pool calls: it unpacks the context and calls on."""


def parallel_call(code: Code, expressions: ExpressionCode, call: ParallelCall) -> None:
    """The outlined function is called for all iterations, or by the pool for some at a time."""
    name, types = call.outlined.name, _types(call.outlined)
    count = expressions.index.operand(call.count)
    arguments = list(zip(types, _operands(expressions, call.outlined), strict=True))
    context = code.allocate(_structure(types), "context")
    alone = _runs_alone(code, expressions, call.when)
    before = code.scope.block
    first = code.begin_block("serial")
    whole = _with_range(call.outlined, arguments, ("0", count))
    code.effect(f"call void @{quoted(name)}({whole})")
    second = code.begin_block("threaded")
    labels = f"label %{quoted(first.label)}, label %{quoted(second.label)}"
    before.terminator = f"br i1 {alone}, {labels}"
    for position, (type_, operand) in enumerate(arguments):
        field = code.emit(_field(types, context, position), "field")
        code.effect(f"store {type_} {operand}, ptr {field}")
    code.declarations[_DECLARATION] = None
    body = f"ptr @{quoted(name + BODY)}, ptr {context}"
    code.effect(f"call void @{PARALLEL_FOR}(ptr %pool, {body}, i64 {count}, i64 1)")
    done = code.begin_block("joined")
    first.terminator = second.terminator = f"br label %{quoted(done.label)}"


def unpack_context(code: Code, outlined: Function) -> list[str]:
    """The statements of the function that the pool calls; its parameters."""
    for hint in ("context", "begin", "end", "thread"):
        code.fresh(hint)
    arguments, types = list[tuple[str, str]](), _types(outlined)
    for position, type_ in enumerate(types):
        field = code.emit(_field(types, "%context", position), "field")
        arguments.append((type_, code.emit(f"load {type_}, ptr {field}")))
    given = _with_range(outlined, arguments, ("%begin", "%end"))
    code.effect(f"call void @{quoted(outlined.name)}({given})")
    code.scope.block.terminator = "ret void"
    return ["ptr %context", "i64 %begin", "i64 %end", "i32 %thread"]


def _types(outlined: Function) -> list[str]:
    """Of what it takes but its range: buffers, values, sizes, the memory of its checks."""
    values = (value_type(value.dtype, value.lanes) for value in outlined.values)
    sizes = ["i64"] * len(outlined.sizes[:-2])
    faults = ["ptr"] if checks_in(outlined) else []
    return [*["ptr"] * len(outlined.parameters), *values, *sizes, *faults]


def _operands(expressions: ExpressionCode, outlined: Function) -> list[str]:
    """The same where it is called."""
    memory, index = expressions.memory, expressions.index
    buffers = (memory.buffer(parameter.buffer.name)[0] for parameter in outlined.parameters)
    values = (expressions.value(value.name).operand for value in outlined.values)
    sizes = (index.operand(Sym(size)) for size in outlined.sizes[:-2])
    faults = [memory.buffer(FAULTS)[0]] if checks_in(outlined) else []
    return [*buffers, *values, *sizes, *faults]


def _with_range(outlined: Function, arguments: list[tuple[str, str]], ends: tuple[str, str]) -> str:
    """All arguments: a range is the last of the sizes."""
    place = len(arguments) - bool(checks_in(outlined))
    ranged = [*arguments[:place], *(("i64", end) for end in ends), *arguments[place:]]
    return ", ".join(f"{type_} {operand}" for type_, operand in ranged)


def _runs_alone(code: Code, expressions: ExpressionCode, when: Condition | None) -> str:
    """An ``i1``: all iterations run in the calling thread."""
    is_null = code.emit("icmp eq ptr %pool, null", "c")
    if when is None:
        return is_null
    worth = expressions.condition((when,))
    return code.emit(f"select i1 {worth}, i1 {is_null}, i1 true", "c")


def _structure(types: list[str]) -> str:
    return f"{{ {', '.join(types)} }}"


def _field(types: list[str], context: str, position: int) -> str:
    return f"getelementptr {_structure(types)}, ptr {context}, i64 0, i32 {position}"
