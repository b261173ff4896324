"""Calls to the thread pool, which passes the context through to the outlined function."""

from __future__ import annotations

from modelcc.ir.index import Sym
from modelcc.ir.loop import Function, ParallelCall, Parameter, Var
from modelcc.ir.loop_traversal import FAULTS
from modelcc.ir.types import BOOL
from modelcc.passes.loop.outline_parallel import SUFFIX
from modelcc.targets.c.arithmetic import ArithmeticCode
from modelcc.targets.c.code import CExpression, Code, Named
from modelcc.targets.c.expressions import ExpressionCode
from modelcc.targets.c.names import identifier, symbol
from modelcc.targets.c.prelude import Prelude
from modelcc.targets.c.values import memory_type
from modelcc.targets.parallel import captured, with_range


def parallel_call(
    code: Code, expressions: ExpressionCode, prelude: Prelude, call: ParallelCall
) -> None:
    """Calls the outlined function for all iterations, or has the pool call it for chunks of
    them."""
    name, count = outlined_symbol(call.outlined), expressions.index.text(call.count)
    arguments = _operands(code, expressions, call.outlined)
    worth = f" && {expressions.condition((call.when,)).text}" if call.when else ""
    with code.block(f"if (pool{worth})"):
        context = code.fresh("context")
        code.line(f"struct {name}_context {context} = {{{', '.join(arguments) or '0'}}};")
        code.line(f"{prelude.parallel_for()}(pool, {name}_body, &{context}, {count}, 1);")
    code.lines[-1] += " else {"
    with code.nested():
        code.line(f"{name}({', '.join(with_range(call.outlined, arguments, ('0', count)))});")
    code.line("}")


def outlined_symbol(outlined: Function) -> str:
    """The outlined function's name, derived from the one whose loop it was."""
    return f"{symbol(outlined.name.removesuffix(SUFFIX))}_{SUFFIX[1:]}"


def bind_value(code: Code, prelude: Prelude, value: Var) -> str:
    """The declaration of a value as a parameter."""
    name, type_ = code.fresh(value.name), _value_type(prelude, value)
    code.scope.values[value.name] = Named(CExpression(name, True, _mask(value)), type_)
    return f"{type_} {name}"


def context_fields(outlined: Function, prelude: Prelude) -> dict[str, str]:
    """Declarations of an outlined function's parameters without its range, by names: values,
    buffers, sizes, the memory of its checks."""
    values = [(v.name, f"{_value_type(prelude, v)} ") for v in outlined.values]
    buffers = [(p.buffer.name, declaration("", p)) for p in outlined.parameters]
    typed = captured(
        outlined,
        (*values, *buffers),
        lambda size: (size, "int64_t "),
        lambda: ("faults", "int64_t *"),
    )
    named = ((f"{identifier(name)}_{n}", type_) for n, (name, type_) in enumerate(typed))
    return {name: f"{type_}{name}" for name, type_ in named}


def declaration(name: str, parameter: Parameter, alone: str = "") -> str:
    """A pointer, qualified ``alone`` (restrict) unless it may alias another one."""
    access = "" if parameter.mutable else "const "
    alone = "" if parameter.shared else alone
    return f"{access}{memory_type(parameter.buffer.dtype)} *{alone}{name}"


def _operands(code: Code, expressions: ExpressionCode, outlined: Function) -> list[str]:
    """Arguments of the outlined function at its call."""
    values = (_operand(code, expressions, value) for value in outlined.values)
    buffers = (code.buffer(parameter.buffer.name)[0] for parameter in outlined.parameters)
    return captured(
        outlined,
        (*values, *buffers),
        lambda size: expressions.index.text(Sym(size)),
        lambda: code.buffer(FAULTS)[0],
    )


def _operand(code: Code, expressions: ExpressionCode, value: Var) -> str:
    known = code.value(value.name).operand
    return expressions.arithmetic.remask(known, _mask(value), value.lanes).text


def _mask(value: Var) -> int:
    """Element width of masks as arguments."""
    return 8 if value.dtype == BOOL and value.lanes > 1 else 0


def _value_type(prelude: Prelude, value: Var) -> str:
    return ArithmeticCode(prelude).type(value.dtype, value.lanes, _mask(value))
