"""C text of the steps of a host program (see :mod:`modelcc.targets.c.program`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from modelcc.ir.condition import Condition
from modelcc.ir.index import Index
from modelcc.ir.library import Callee
from modelcc.ir.program import Place, Program, Step
from modelcc.ir.region import Repeat
from modelcc.targets.c.checked import require
from modelcc.targets.c.code import CExpression, Code, folded, words_of
from modelcc.targets.c.indices import IndexCode
from modelcc.targets.c.names import symbol
from modelcc.targets.c.prelude import Prelude
from modelcc.targets.steps import OUT_OF_MEMORY, Block

_NAMES = ("inputs", "outputs", "constants", "arena", "sizes", "pool", "host")


def parameters(program: Program) -> list[str]:
    """C declarations of the function's parameters."""
    found = [f"void *const *{name}" for name in _NAMES[:3]]
    sizes = "int64_t *sizes" if program.read_sizes else "const int64_t *sizes"
    host = ["const mcc_host *host"] if program.allocated else []
    return [*found, "void *arena", sizes, "void *pool", *host]


class StepsCode:
    """The body of one C function: a :class:`modelcc.targets.steps.StepSyntax`."""

    arena = "arena"
    pool = "pool"

    def __init__(self, program: Program, prelude: Prelude) -> None:
        self._types = program.types
        self._parameters = parameters(program)
        self._code = Code(prelude.dialect)
        for name in _NAMES:
            self._code.fresh(name)
        for function in program.callees:
            self._code.scope.taken.add(symbol(function.name))
        self._code.scope.bounds |= program.dims
        self._index = IndexCode(self._code, prelude)
        self._prelude = prelude
        self._sizes: list[str] = []

    def text(self, name: str, static: bool = False) -> str:
        """The function's definition; ``static``: with internal linkage."""
        words = words_of(self._code.lines)
        unused = [name for name in _NAMES[: len(self._parameters)] if not words[name]]
        unused += [name for name in self._sizes if words[name] == 1]
        if unused:
            self._code.line(", ".join(f"(void){name}" for name in unused) + ";")
        self._code.line("return 0;")
        head = f"{'static ' if static else ''}int32_t {name}({', '.join(self._parameters)})"
        return "\n".join([*folded(head, ""), "{", *self._code.lines, "}"])

    def clock(self, times: str, position: int) -> None:
        """Records the time."""
        self._code.line(f"clock_gettime(CLOCK_MONOTONIC, &{times}[{position}]);")

    def comment(self, text: str) -> None:
        self._code.comment(text)

    def zeros(self, count: int) -> str:
        spelled = self._code.fresh("faults")
        self._code.line(f"int64_t {spelled}[{count}] = {{0}};")
        return spelled

    def size(self, symbol: str, position: int, read: tuple[str, int] | None) -> None:
        place = f"sizes[{position}]"
        text = f"((const int64_t *){read[0]})[{read[1]}]" if read else place
        self._number(symbol, self._code.narrowed(CExpression(text)))
        if read is not None:
            self._code.line(f"{place} = {self._code.symbol(symbol)};")

    def define(self, symbol: str, value: Index) -> None:
        self._number(symbol, self._index.text(value))

    def passed(self, name: str, place: Place, position: int) -> str:
        return self._pointer(name, f"{place}s[{position}]", str(self._types[name]))

    def within(self, name: str, start: str, offset: Index) -> str:
        place = "" if offset == 0 else f" + {self._index.inner(offset)}"
        return self._pointer(name, f"(uint8_t *){start}{place}", str(self._types[name]))

    def allocate(self, name: str, which: int, size: Index) -> str:
        call = f"host->allocate(host->context, {which}, {self._index.text(size)})"
        spelled = self._pointer(name, call)
        self._code.line(f"if ({spelled} == NULL) return {OUT_OF_MEMORY};")
        return spelled

    def require(self, condition: Condition, status: int) -> None:
        require(self._code, self._prelude, self._index, condition, status)

    def call(self, function: Callee, arguments: Sequence[str | Index]) -> None:
        given = (a if isinstance(a, str) else self._index.text(a) for a in arguments)
        self._code.line(f"{symbol(function.name)}({', '.join(given)});")

    def leave_if_noted(self, faults: str, number: int, status: int) -> None:
        with self._code.block(f"if ({faults}[{2 * number}])"):
            self._code.line(f"*(int64_t *)arena = {faults}[{2 * number + 1}];")
            self._code.line(f"return {status};")

    def copy(self, target: str, source: str, size: Index) -> None:
        self._code.line(f"memmove({target}, {source}, (size_t)({self._index.text(size)}));")

    def branch(self, condition: str, then: Block, other: Block | None) -> None:
        with self._code.block(f"if ({_holds(condition)})"):
            then()
        if other is not None:
            with self._code.block("else"):
                other()

    def loop(self, step: Repeat[Step], condition: Callable[[], str], body: Block) -> None:
        last = "" if step.trips is None else self._index.text(step.trips)
        with self._code.nested():
            number = self._code.fresh(step.counter)
        bound = f"{number} < {last}" if last else ""
        with self._code.block(
            f"for ({self._code.index} {number} = 0; {bound}; {number}++)"
        ) as scope:
            scope.taken.add(number)
            scope.symbols[step.counter] = number
            scope.bounds |= step.inside({})
            if step.condition is not None:
                self._code.line(f"if (!{_holds(condition())}) break;")
            body()

    def _number(self, symbol: str, text: str) -> None:
        spelled = self._code.scope.symbols[symbol] = self._code.fresh(symbol)
        self._sizes.append(spelled)
        self._code.line(f"const {self._code.index} {spelled} = {text};")

    def _pointer(self, name: str, text: str, note: str = "") -> str:
        spelled = self._code.fresh(name)
        self._code.line(f"void *const {spelled} = {text};", note)
        return spelled


def _holds(condition: str) -> str:
    return f"*(const uint8_t *){condition}"
