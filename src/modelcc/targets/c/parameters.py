"""C declarations of the parameters of loop functions."""

from __future__ import annotations

from modelcc.ir.index import Range
from modelcc.ir.loop import Buffer, Function
from modelcc.ir.loop_traversal import FAULTS, checks_in, takes_pool
from modelcc.ir.types import I64
from modelcc.targets.c.code import Code, words_of
from modelcc.targets.c.dialect import GroupDialect
from modelcc.targets.c.parallel import declaration

_NONE = ("", "", "")
_PLAIN = GroupDialect("", "", "", "", _NONE, _NONE, "")


def bind_parameters(
    code: Code, function: Function, groups: GroupDialect | None = None
) -> list[str]:
    """Declarations of a function's parameters, bound in ``code``."""
    texts: list[str] = []
    dialect = groups or _PLAIN
    for parameter in function.parameters:
        name = code.fresh(parameter.buffer.name)
        code.scope.buffers[parameter.buffer.name] = (name, parameter.buffer)
        one = dialect.memory + declaration(name, parameter, "restrict ")
        texts.append(dialect.numbered.format(one, len(texts)))
    if groups is not None:
        faults = _faults(code, function, dialect.memory)
        texts += [dialect.numbered.format(one, len(texts)) for one in faults]
    for size in function.sizes:
        name = code.fresh(size)
        code.scope.symbols[size] = name
        code.scope.bounds[size] = Range(0, None)
        texts.append(dialect.numbered.format(dialect.given.format(code.index, name), len(texts)))
    if groups is None:
        texts += _faults(code, function, "")
    if takes_pool(function):
        texts.append(f"void *{code.fresh('pool')}")
    return [*texts, *dialect.indices] or ["void"]


def _faults(code: Code, function: Function, memory: str) -> list[str]:
    """The memory where checks record faults; in kernels of devices, after the other buffers."""
    count = checks_in(function)
    if not count:
        return []
    name = code.fresh("faults")
    code.scope.buffers[FAULTS] = (name, Buffer(FAULTS, I64, 2 * count))
    return [f"{memory}int64_t *restrict {name}"]


def note_unused(code: Code) -> None:
    """Marks names of the whole function that its lines do not use."""
    used = words_of(code.lines)
    unused = [name for name in code.scopes[0].taken if name not in used]
    if unused:
        code.line(", ".join(f"(void){name}" for name in sorted(unused)) + ";")
