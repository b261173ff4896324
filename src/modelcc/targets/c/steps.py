"""C text of the steps of a host program (see :mod:`modelcc.targets.c.program`)."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.index import Range, symbols
from modelcc.ir.library import Callee, meaning_of
from modelcc.ir.loop_traversal import parallel_loop
from modelcc.ir.program import (
    Allocate,
    Binding,
    CopyTensor,
    Launch,
    Program,
    Step,
    checks,
    leaves,
    step_tensors,
)
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.tensor import ReadSize, View, size_conditions
from modelcc.targets.c.checked import CheckedCode
from modelcc.targets.c.code import Code, folded, words_of
from modelcc.targets.c.indices import IndexCode
from modelcc.targets.c.names import symbol
from modelcc.targets.c.prelude import Prelude

_NAMES = ("inputs", "outputs", "constants", "arena", "sizes", "pool", "host")


def parameters(program: Program) -> list[str]:
    """C declarations of the function's parameters."""
    found = [f"void *const *{name}" for name in _NAMES[:3]]
    sizes = "int64_t *sizes" if program.read_sizes else "const int64_t *sizes"
    host = ["const mcc_host *host"] if program.allocated else []
    return [*found, "void *arena", sizes, "void *pool", *host]


class StepsCode:
    """Writes the steps of a program as the body of one C function."""

    def __init__(self, program: Program, prelude: Prelude) -> None:
        self._program = program
        self._checked = 0
        self._sizes_checked = len(checks(program))
        self._indexed = 0
        self._bindings = program.placed.bindings
        self._slots = {name: place for place, name in enumerate(program.dims)}
        self._allocated = {name: which for which, name in enumerate(program.allocated)}
        self._code = Code()
        for name in _NAMES:
            self._code.fresh(name)
        for function in program.callees:
            self._code.scope.taken.add(symbol(function.name))
        self._index = IndexCode(self._code, prelude)
        self._outermost: list[str] = []
        self._conditions = CheckedCode(self._code, prelude, self._index)
        self._faults = self._code.fresh("faults")
        launches = [s for s in leaves(program.steps) if isinstance(s, Launch)]
        count = max((len(launch.bounds) for launch in launches), default=0)
        if count:
            self._code.line(f"int64_t {self._faults}[{2 * count}] = {{0}};")
        self._bind_sizes()
        self._pending = set(self._allocated)
        self._waiting: dict[str, list[str]] = {}
        self._tensors: dict[str, str] = {}
        self._bind_tensors(program.steps)

    def text(self, name: str, static: bool = False) -> str:
        """The function's definition; ``static``: seen in its own file only."""
        words = words_of(self._code.lines)
        declared = parameters(self._program)
        unused = [name for name in _NAMES[: len(declared)] if not words[name]]
        unused += [name for name in self._outermost if words[name] == 1]
        if unused:
            self._code.line(", ".join(f"(void){name}" for name in unused) + ";")
        self._code.line("return 0;")
        head = f"{'static ' if static else ''}int32_t {name}({', '.join(declared)})"
        return "\n".join([*folded(head, ""), "{", *self._code.lines, "}"])

    def clock(self, times: str, position: int) -> None:
        """Note the time."""
        self._code.line(f"clock_gettime(CLOCK_MONOTONIC, &{times}[{position}]);")

    def step(self, step: Step) -> None:
        """Print one step."""
        if step.source:
            self._code.comment(", ".join(step.source))
        match step:
            case Launch():
                self._launch(step, self._program.callee[step.callee])
            case CopyTensor():
                self._copy(step)
            case Branch():
                self._branch(step)
            case Repeat():
                self._repeat(step)
            case ReadSize():
                self._read_size(step)
            case Allocate():
                self._allocate(step)
            case View():
                raise ValueError(f"view {step.output!r} has no place")

    def _read_size(self, step: ReadSize) -> None:
        for position, name in enumerate(step.symbols):
            self._define(name, f"((const int64_t *){self._tensors[step.tensor]})[{position}]")
            place = self._slots[name]
            self._code.line(f"sizes[{place}] = {self._code.symbol(name)};")
        for condition in size_conditions(step, self._program.dims):
            self._checked += 1
            self._conditions.require(condition, self._checked)
        for name in step.symbols:
            self._code.scope.bounds[name] = self._program.dims[name]
        self._bind_waiting(step.symbols)

    def _allocate(self, step: Allocate) -> None:
        which = self._allocated[step.name]
        spelled = self._tensors[step.name] = self._code.fresh(step.name)
        size = self._index.text(step.size)
        call = f"host->allocate(host->context, {which}, {size})"
        self._code.line(f"void *const {spelled} = {call};")
        self._code.line(f"if ({spelled} == NULL) return -1;")
        self._pending -= {step.name}
        self._bind_waiting((step.name,))

    def _branch(self, step: Branch[Step]) -> None:
        with self._code.block(f"if ({self._holds(step.condition)})"):
            self._inside(step.then)
        if step.other:
            with self._code.block("else"):
                self._inside(step.other)

    def _repeat(self, step: Repeat[Step]) -> None:
        trips = "" if step.trips is None else self._index.text(step.trips)
        with self._code.nested():
            counter = self._code.fresh(step.counter)
        bound = f"{counter} < {trips}" if trips else ""
        with self._code.block(f"for (int64_t {counter} = 0; {bound}; {counter}++)") as scope:
            scope.taken.add(counter)
            scope.symbols[step.counter] = counter
            scope.bounds[step.counter] = Range(0, None if step.trips is None else step.trips - 1)
            outside = dict(self._tensors)
            if step.condition is not None:
                self._bind_tensors((), (step.condition,))
                self._code.line(f"if (!{self._holds(step.condition)}) break;")
            self._inside(step.body)
            self._tensors = outside

    def _inside(self, steps: Sequence[Step]) -> None:
        outside = dict(self._tensors)
        self._bind_tensors(steps)
        for step in steps:
            self.step(step)
        self._tensors = outside

    def _holds(self, condition: str) -> str:
        return f"*(const uint8_t *){self._tensors[condition]}"

    def _bind_sizes(self) -> None:
        scope = self._code.scope
        dynamic = frozenset(self._program.read_sizes)
        for position, (name, known) in enumerate(self._program.dims.items()):
            if name in dynamic:
                continue
            self._define(name, f"sizes[{position}]")
            scope.bounds[name] = known
        for definition in self._program.placed.definitions:
            self._define(definition.symbol, self._index.text(definition.value))

    def _named(self, hint: str) -> str:
        """A new name; those that all steps see are noted, for compilers warn of unused ones."""
        spelled = self._code.fresh(hint)
        if len(self._code.scopes) == 1:
            self._outermost.append(spelled)
        return spelled

    def _define(self, symbol: str, text: str) -> None:
        spelled = self._named(symbol)
        self._code.line(f"const int64_t {spelled} = {text};")
        self._code.scope.symbols[symbol] = spelled

    def _bind_tensors(self, steps: Sequence[Step], first: Sequence[str] = ()) -> None:
        """Name the addresses that are known here, in order of use; others wait for their loop."""
        for name in dict.fromkeys((*first, *(n for step in steps for n in step_tensors(step)))):
            missing = self._missing(name, self._bindings[name])
            if missing:
                self._waiting.setdefault(missing, []).append(name)
            elif name not in self._tensors:
                self._bind_tensor(name, self._bindings[name])

    def _bind_waiting(self, known: Sequence[str]) -> None:
        """Name the addresses that waited for symbols or memory."""
        self._bind_tensors((), [name for each in known for name in self._waiting.pop(each, ())])

    def _missing(self, tensor: str, binding: Binding) -> str | None:
        """A symbol, or memory, that the address of a tensor needs and that is not there yet."""
        for name in (binding.segment, tensor):
            if name in self._pending:
                return name
        scopes = self._code.scopes
        needed = sorted(symbols(binding.offset))
        return next((n for n in needed if not any(n in s.symbols for s in scopes)), None)

    def _bind_tensor(self, name: str, binding: Binding) -> None:
        if binding.place == "arena":
            offset = "" if binding.offset == 0 else f" + {self._index.inner(binding.offset)}"
            start = self._tensors[binding.segment] if binding.segment else "arena"
            source = f"(uint8_t *){start}{offset}"
        else:
            position = self._program.position(name)
            source = f"{binding.place}s[{position}]"
        spelled = self._tensors[name] = self._named(name)
        self._code.line(f"void *const {spelled} = {source};", str(self._program.types[name]))

    def _launch(self, step: Launch, function: Callee) -> None:
        arguments = [self._tensors[name] for name in step.arguments]
        arguments += [self._index.text(size) for size in step.sizes]
        if step.bounds:
            arguments.append(self._faults)
        if parallel_loop(meaning_of(function)):
            arguments.append("pool")
        self._code.line(f"{symbol(function.name)}({', '.join(arguments)});")
        for number in range(len(step.bounds)):
            self._indexed += 1
            status = self._sizes_checked + self._indexed
            with self._code.block(f"if ({self._faults}[{2 * number}])"):
                self._code.line(f"*(int64_t *)arena = {self._faults}[{2 * number + 1}];")
                self._code.line(f"return {status};")

    def _copy(self, step: CopyTensor) -> None:
        target, source = self._tensors[step.target], self._tensors[step.source_tensor]
        size = self._index.text(self._program.types[step.target].bytes)
        self._code.line(f"memmove({target}, {source}, (size_t)({size}));")
