"""Calls to the thread pool, which passes the context through to the outlined function."""

from __future__ import annotations

from modelcc.ir.condition import Condition
from modelcc.ir.index import Sym
from modelcc.ir.loop import Function, ParallelCall
from modelcc.ir.loop_traversal import FAULTS
from modelcc.targets.llvm.code import Code
from modelcc.targets.llvm.expressions import ExpressionCode
from modelcc.targets.llvm.values import quoted, value_type
from modelcc.targets.parallel import captured, with_range

PARALLEL_FOR = "mcc_parallel_for"
_DECLARATION = f"declare void @{PARALLEL_FOR}(ptr, ptr, ptr, i64, i64)"

BODY = ".body"
"""Suffix of the function that the pool calls: it unpacks the context and calls the outlined one."""


def parallel_call(code: Code, expressions: ExpressionCode, call: ParallelCall) -> None:
    """Calls the outlined function for all iterations, or has the pool call it for chunks of
    them."""
    name, types = call.outlined.name, _types(call.outlined)
    count = expressions.index.operand(call.count)
    arguments = list(zip(types, _operands(expressions, call.outlined), strict=True))
    context = code.allocate(_structure(types), "context")
    alone = _runs_alone(code, expressions, call.when)
    before = code.scope.block
    first = code.begin_block("serial")
    whole = _arguments(call.outlined, arguments, "0", count)
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
    """Emits the body of the function that the pool calls; returns its parameters."""
    for hint in ("context", "begin", "end", "thread"):
        code.fresh(hint)
    arguments, types = list[tuple[str, str]](), _types(outlined)
    for position, type_ in enumerate(types):
        field = code.emit(_field(types, "%context", position), "field")
        arguments.append((type_, code.emit(f"load {type_}, ptr {field}")))
    given = _arguments(outlined, arguments, "%begin", "%end")
    code.effect(f"call void @{quoted(outlined.name)}({given})")
    code.scope.block.terminator = "ret void"
    return ["ptr %context", "i64 %begin", "i64 %end", "i32 %thread"]


def _types(outlined: Function) -> list[str]:
    buffers = ["ptr"] * len(outlined.parameters)
    values = (value_type(value.dtype, value.lanes) for value in outlined.values)
    return captured(outlined, (*buffers, *values), lambda _: "i64", lambda: "ptr")


def _operands(expressions: ExpressionCode, outlined: Function) -> list[str]:
    """Arguments of the outlined function at its call."""
    memory, index = expressions.memory, expressions.index
    buffers = (memory.buffer(parameter.buffer.name)[0] for parameter in outlined.parameters)
    values = (expressions.value(value.name).operand for value in outlined.values)
    return captured(
        outlined,
        (*buffers, *values),
        lambda size: index.operand(Sym(size)),
        lambda: memory.buffer(FAULTS)[0],
    )


def _arguments(outlined: Function, arguments: list[tuple[str, str]], begin: str, end: str) -> str:
    ranged = with_range(outlined, arguments, (("i64", begin), ("i64", end)))
    return ", ".join(f"{type_} {operand}" for type_, operand in ranged)


def _runs_alone(code: Code, expressions: ExpressionCode, when: Condition | None) -> str:
    """An ``i1``: whether all iterations run in the calling thread."""
    is_null = code.emit("icmp eq ptr %pool, null", "c")
    if when is None:
        return is_null
    worth = expressions.condition((when,))
    return code.emit(f"select i1 {worth}, i1 {is_null}, i1 true", "c")


def _structure(types: list[str]) -> str:
    return f"{{ {', '.join(types)} }}"


def _field(types: list[str], context: str, position: int) -> str:
    return f"getelementptr {_structure(types)}, ptr {context}, i64 0, i32 {position}"
