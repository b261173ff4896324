"""LLVM text of the steps of a host program (see :mod:`modelcc.targets.llvm.program`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from modelcc.ir.condition import Condition
from modelcc.ir.index import Index
from modelcc.ir.library import Callee
from modelcc.ir.program import Place, Program, Step
from modelcc.ir.region import Repeat
from modelcc.targets.llvm.checked import CheckedCode
from modelcc.targets.llvm.code import BasicBlock, Code
from modelcc.targets.llvm.emitter import signature
from modelcc.targets.llvm.indices import IndexCode
from modelcc.targets.llvm.values import quoted
from modelcc.targets.steps import OUT_OF_MEMORY, Block

CLOCK = "declare i32 @clock_gettime(i32, ptr)"
"""The declaration for code with clocks only."""
_CLOCK_MONOTONIC = 1  # Linux
_PARAMETERS = ("inputs", "outputs", "constants", "arena", "sizes", "pool")


class StepsCode:
    """The body of one LLVM function: a :class:`modelcc.targets.steps.StepSyntax`."""

    arena = "%arena"
    pool = "%pool"

    def __init__(self, program: Program, declarations: dict[str, None]) -> None:
        host = ("host",) if program.allocated else ()
        self._parameters = (*_PARAMETERS, *host)
        self._code = Code(declarations)
        for name in self._parameters:
            self._code.fresh(name)
        self._clocks: set[str] = set()
        self._code.scope.bounds |= program.dims
        self._index = IndexCode(self._code)

    def text(self, name: str, clocks: bool = True) -> str:
        """The function's definition, with or without the code of :meth:`clock`."""
        self._code.scope.block.terminator = "ret i32 0"
        without = frozenset[str]() if clocks else frozenset(self._clocks)
        parameters = ", ".join(f"ptr %{name}" for name in self._parameters)
        head = f"define i32 @{quoted(name)}({parameters}) #0"
        return f"{head} {{\n{self._code.text(without)}\n}}"

    def clock(self, times: str, position: int) -> None:
        """Records the time in an array."""
        self._code.declarations[CLOCK] = None
        slot = self._code.local("time")
        lines = (
            f"{slot} = getelementptr i64, ptr @{times}, i64 {2 * position}",
            f"call i32 @clock_gettime(i32 {_CLOCK_MONOTONIC}, ptr {slot})",
        )
        for line in lines:
            self._code.effect(line)
        self._clocks.update(lines)

    def comment(self, text: str) -> None:
        self._code.effect(f"; {text}")

    def zeros(self, count: int) -> str:
        memory = self._code.allocate(f"[{count} x i64]", "faults", 8)
        self._code.effect(f"store [{count} x i64] zeroinitializer, ptr {memory}, align 8")
        return memory

    def size(self, symbol: str, position: int, read: tuple[str, int] | None) -> None:
        value = self._loaded("i64", *(read or ("%sizes", position)), symbol)
        self._index.bind(symbol, value)
        if read is not None:
            self._code.effect(f"store i64 {value}, ptr {self._slot('i64', '%sizes', position)}")

    def define(self, symbol: str, value: Index) -> None:
        self._index.bind(symbol, self._index.operand(value))

    def passed(self, name: str, place: Place, position: int) -> str:
        return self._loaded("ptr", f"%{place}s", position, name)

    def within(self, name: str, start: str, offset: Index) -> str:
        key = f"address {start} {offset}"
        found = start if offset == 0 else self._code.cached(key)
        if found is None:
            operand = self._index.operand(offset)
            found = self._code.emit(f"getelementptr i8, ptr {start}, i64 {operand}", "p")
            self._code.scope.cache[key] = found
        return found

    def allocate(self, name: str, which: int, size: Index) -> str:
        allocate = self._loaded("ptr", "%host", 0, "allocate")
        context = self._loaded("ptr", "%host", 1, "context")
        given = f"ptr {context}, i64 {which}, i64 {self._index.operand(size)}"
        memory = self._code.emit(f"call ptr {allocate}({given})", name)
        self._go_on_if(self._code.emit(f"icmp ne ptr {memory}, null", "given"), OUT_OF_MEMORY)
        return memory

    def require(self, condition: Condition, status: int) -> None:
        self._go_on_if(CheckedCode(self._code, self._index).holds(condition), status)

    def call(self, function: Callee, arguments: Sequence[str | Index]) -> None:
        types = ", ".join(signature(function))
        self._code.declarations[f"declare void @{quoted(function.name)}({types})"] = None
        given = ", ".join(
            f"ptr {a}" if isinstance(a, str) else f"i64 {self._index.operand(a)}" for a in arguments
        )
        self._code.effect(f"call void @{quoted(function.name)}({given})")

    def leave_if_noted(self, faults: str, number: int, status: int) -> None:
        noted = self._loaded("i64", faults, 2 * number, "noted")
        clear = self._code.emit(f"icmp eq i64 {noted}, 0", "clear")
        place, value = self._code.local("p"), self._code.local("index")
        lines = [
            f"{place} = getelementptr i64, ptr {faults}, i64 {2 * number + 1}",
            f"{value} = load i64, ptr {place}",
            f"store i64 {value}, ptr %arena",
        ]
        self._go_on_if(clear, status, lines)

    def copy(self, target: str, source: str, size: Index) -> None:
        callee = self._code.intrinsic("void", "llvm.memmove.p0.p0.i64", "ptr, ptr, i64, i1")
        given = f"ptr {target}, ptr {source}, i64 {self._index.operand(size)}, i1 false"
        self._code.effect(f"call {callee}({given})")

    def branch(self, condition: str, then: Block, other: Block | None) -> None:
        holds = self._holds(condition)
        before = self._code.scope.block
        first, first_end = self._region("then", then)
        second, second_end = self._region("else", other or (lambda: None))
        after = self._code.begin_block("endif")
        before.terminator = f"br i1 {holds}, {_label(first)}, {_label(second)}"
        first_end.terminator = second_end.terminator = f"br {_label(after)}"

    def loop(self, step: Repeat[Step], condition: Callable[[], str], body: Block) -> None:
        """A top-tested loop: head, test of the condition, body."""
        counter = step.counter
        bound = None if step.trips is None else self._index.operand(step.trips)
        before = self._code.scope.block
        number, following = self._code.local(counter), self._code.local(f"{counter}.next")
        head = BasicBlock(self._code.fresh(f"{counter}.head"))
        self._code.blocks.append(head)
        with self._code.nested(head) as scope:
            self._index.bind(counter, number)
            scope.bounds |= step.inside({})
            more = [] if bound is None else [self._code.emit(f"icmp slt i64 {number}, {bound}")]
            more += [] if step.condition is None else [self._holds(condition())]
            test = self._code.emit(f"and i1 {', '.join(more)}") if len(more) == 2 else more[0]
            inside, latch = self._region(f"{counter}.loop", body)
        latch.lines.append(f"{following} = add nuw nsw i64 {number}, 1")
        latch.terminator = f"br {_label(head)}"
        after = self._code.begin_block(f"{counter}.done")
        before.terminator = f"br {_label(head)}"
        head.terminator = f"br i1 {test}, {_label(inside)}, {_label(after)}"
        phi = f"[ 0, %{quoted(before.label)} ], [ {following}, %{quoted(latch.label)} ]"
        head.lines.insert(0, f"{number} = phi i64 {phi}")

    def _region(self, hint: str, write: Block) -> tuple[BasicBlock, BasicBlock]:
        """First and last block of the statements written by ``write``, in a scope of their own."""
        block = BasicBlock(self._code.fresh(hint))
        self._code.blocks.append(block)
        with self._code.nested(block) as scope:
            write()
            return block, scope.block

    def _go_on_if(self, holds: str, status: int, last: Sequence[str] = ()) -> None:
        """Returns ``status`` from the run, after the ``last`` instructions, unless the i1 operand
        is true."""
        before = self._code.scope.block
        leave = BasicBlock(self._code.fresh("leave"), list(last), f"ret i32 {status}")
        self._code.blocks.append(leave)
        after = self._code.begin_block("checked")
        before.terminator = f"br i1 {holds}, {_label(after)}, {_label(leave)}"

    def _holds(self, condition: str) -> str:
        """The bool at an address as an i1 operand."""
        return self._code.emit(f"icmp ne i8 {self._loaded('i8', condition, 0, 'flag')}, 0", "holds")

    def _slot(self, type_: str, start: str, position: int) -> str:
        if not position:
            return start
        return self._code.emit(f"getelementptr {type_}, ptr {start}, i64 {position}", "p")

    def _loaded(self, type_: str, start: str, position: int, hint: str) -> str:
        return self._code.emit(f"load {type_}, ptr {self._slot(type_, start, position)}", hint)


def _label(block: BasicBlock) -> str:
    return f"label %{quoted(block.label)}"
