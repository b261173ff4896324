"""LLVM text of the steps of a host program (see :mod:`modelcc.targets.llvm.program`)."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.condition import Condition
from modelcc.ir.index import Index, Range
from modelcc.ir.library import Callee, meaning_of
from modelcc.ir.loop_traversal import parallel_loop
from modelcc.ir.program import (
    Allocate,
    CopyTensor,
    Launch,
    Place,
    Program,
    Step,
    checks,
    leaves,
)
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.tensor import ReadSize, View, size_conditions
from modelcc.targets.llvm.checked import CheckedCode
from modelcc.targets.llvm.code import BasicBlock, Code
from modelcc.targets.llvm.emitter import signature
from modelcc.targets.llvm.indices import IndexCode
from modelcc.targets.llvm.values import quoted

CLOCK = "declare i32 @clock_gettime(i32, ptr)"
"""The declaration that only code with clocks needs."""
_CLOCK_MONOTONIC = 1  # Linux
_PARAMETERS = ("inputs", "outputs", "constants", "arena", "sizes", "pool")


class StepsCode:
    """Writes the steps of a program as the body of one LLVM function."""

    def __init__(self, program: Program, declarations: dict[str, None]) -> None:
        self._program = program
        self._bindings = program.placed.bindings
        self._slots = {name: place for place, name in enumerate(program.dims)}
        self._allocated = {name: which for which, name in enumerate(program.allocated)}
        self.declarations = declarations
        self._code = Code(self.declarations)
        for name in (*_PARAMETERS, "host"):
            self._code.fresh(name)
        self._clocks: set[str] = set()
        self._checked = 0
        self._sizes_checked = len(checks(program))
        self._indexed = 0
        self._faults: str | None = None
        self._index = IndexCode(self._code)
        self._bind_sizes()

    def text(self, name: str, clocks: bool = True) -> str:
        """The function's definition, with or without what :meth:`clock` has written."""
        self._code.scope.block.terminator = "ret i32 0"
        without = frozenset[str]() if clocks else frozenset(self._clocks)
        host = ("host",) if self._allocated else ()
        parameters = ", ".join(f"ptr %{name}" for name in (*_PARAMETERS, *host))
        head = f"define i32 @{quoted(name)}({parameters}) #0"
        return f"{head} {{\n{self._code.text(without)}\n}}"

    def clock(self, times: str, position: int) -> None:
        """Note the time in an array."""
        self.declarations[CLOCK] = None
        slot = self._code.local("time")
        lines = (
            f"{slot} = getelementptr i64, ptr @{times}, i64 {2 * position}",
            f"call i32 @clock_gettime(i32 {_CLOCK_MONOTONIC}, ptr {slot})",
        )
        for line in lines:
            self._code.effect(line)
        self._clocks.update(lines)

    def step(self, step: Step) -> None:
        """Emit one step."""
        if step.source:
            self._code.effect(f"; {', '.join(step.source)}")
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
        source = self._address(step.tensor)
        for position, name in enumerate(step.symbols):
            slot = self._code.emit(f"getelementptr i64, ptr {source}, i64 {position}", "size")
            value = self._code.emit(f"load i64, ptr {slot}", name)
            self._index.bind(name, value)
            place = self._slots[name]
            seen = self._code.emit(f"getelementptr i64, ptr %sizes, i64 {place}", "size")
            self._code.effect(f"store i64 {value}, ptr {seen}")
        for condition in size_conditions(step, self._program.dims):
            self._check(condition)
        for name in step.symbols:
            self._code.scope.bounds[name] = self._program.dims[name]

    def _check(self, condition: Condition) -> None:
        self._checked += 1
        holds = CheckedCode(self._code, self._index).holds(condition)
        self._go_on_if(holds, self._checked)

    def _go_on_if(self, holds: str, status: int, last: Sequence[str] = ()) -> None:
        """End the run with ``status``, after instructions, unless the i1 operand is true."""
        before = self._code.scope.block
        leave = BasicBlock(self._code.fresh("leave"), list(last), f"ret i32 {status}")
        self._code.blocks.append(leave)
        after = self._code.begin_block("checked")
        before.terminator = f"br i1 {holds}, {_label(after)}, {_label(leave)}"

    def _allocate(self, step: Allocate) -> None:
        allocate = self._code.emit("load ptr, ptr %host", "allocate")
        slot = self._code.emit("getelementptr ptr, ptr %host, i64 1", "p")
        context = self._code.emit(f"load ptr, ptr {slot}", "context")
        which = self._allocated[step.name]
        size = self._index.operand(step.size)
        given = f"ptr {context}, i64 {which}, i64 {size}"
        memory = self._code.emit(f"call ptr {allocate}({given})", step.name)
        self._go_on_if(self._code.emit(f"icmp ne ptr {memory}, null", "given"), -1)
        self._code.scope.cache[_memory_key(step.name)] = memory

    def _branch(self, step: Branch[Step]) -> None:
        condition = self._holds(step.condition)
        before = self._code.scope.block
        then, then_end = self._region("then", step.then)
        other, other_end = self._region("else", step.other)
        after = self._code.begin_block("endif")
        before.terminator = f"br i1 {condition}, {_label(then)}, {_label(other)}"
        then_end.terminator = other_end.terminator = f"br {_label(after)}"

    def _region(self, hint: str, steps: Sequence[Step]) -> tuple[BasicBlock, BasicBlock]:
        """First and last block of steps in a scope of their own."""
        block = BasicBlock(self._code.fresh(hint))
        self._code.blocks.append(block)
        with self._code.nested(block) as scope:
            for step in steps:
                self.step(step)
            return block, scope.block

    def _repeat(self, step: Repeat[Step]) -> None:
        """A top-tested loop: head, test of the condition, body."""
        name = step.counter
        trips = None if step.trips is None else self._index.operand(step.trips)
        before = self._code.scope.block
        counter, following = self._code.local(name), self._code.local(f"{name}.next")
        head = BasicBlock(self._code.fresh(f"{name}.head"))
        self._code.blocks.append(head)
        with self._code.nested(head) as scope:
            self._index.bind(name, counter)
            last = None if step.trips is None else step.trips - 1
            scope.bounds[name] = Range(0, last)
            more = [] if trips is None else [self._code.emit(f"icmp slt i64 {counter}, {trips}")]
            more += [] if step.condition is None else [self._holds(step.condition)]
            test = self._code.emit(f"and i1 {', '.join(more)}") if len(more) == 2 else more[0]
            inside, latch = self._region(f"{name}.loop", step.body)
        latch.lines.append(f"{following} = add nuw nsw i64 {counter}, 1")
        latch.terminator = f"br {_label(head)}"
        after = self._code.begin_block(f"{name}.done")
        before.terminator = f"br {_label(head)}"
        head.terminator = f"br i1 {test}, {_label(inside)}, {_label(after)}"
        phi = f"[ 0, %{quoted(before.label)} ], [ {following}, %{quoted(latch.label)} ]"
        head.lines.insert(0, f"{counter} = phi i64 {phi}")

    def _holds(self, condition: str) -> str:
        """The i1 operand of a bool tensor of one element."""
        byte = self._code.emit(f"load i8, ptr {self._address(condition)}", "flag")
        return self._code.emit(f"icmp ne i8 {byte}, 0", "holds")

    def _bind_sizes(self) -> None:
        scope = self._code.scope
        dynamic = frozenset(self._program.read_sizes)
        for position, (name, known) in enumerate(self._program.dims.items()):
            if name in dynamic:
                continue
            slot = self._code.emit(f"getelementptr i64, ptr %sizes, i64 {position}", "size")
            self._index.bind(name, self._code.emit(f"load i64, ptr {slot}", name))
            scope.bounds[name] = known
        for definition in self._program.placed.definitions:
            self._index.bind(definition.symbol, self._index.operand(definition.value))

    def _launch(self, step: Launch, function: Callee) -> None:
        types = ", ".join(signature(function))
        self.declarations[f"declare void @{quoted(function.name)}({types})"] = None
        arguments = [f"ptr {self._address(name)}" for name in step.arguments]
        arguments += [f"i64 {self._index.operand(size)}" for size in step.sizes]
        if step.bounds:
            arguments.append(f"ptr {self._fault_memory()}")
        if parallel_loop(meaning_of(function)):
            arguments.append("ptr %pool")
        self._code.effect(f"call void @{quoted(function.name)}({', '.join(arguments)})")
        for number in range(len(step.bounds)):
            self._leave_if_noted(number)

    def _fault_memory(self) -> str:
        """Where kernels note indices that are out of range: clear until one does so."""
        if self._faults is None:
            launches = [s for s in leaves(self._program.steps) if isinstance(s, Launch)]
            count = 2 * max(len(launch.bounds) for launch in launches)
            self._faults = self._code.allocate(f"[{count} x i64]", "faults", 8)
            zeros = f"store [{count} x i64] zeroinitializer, ptr {self._faults}, align 8"
            self._code.entry.lines.insert(0, zeros)
        return self._faults

    def _leave_if_noted(self, number: int) -> None:
        """End the run, with the value in the arena, if check ``number`` of a kernel has failed."""
        self._indexed += 1
        flag = self._code.emit(f"getelementptr i64, ptr {self._faults}, i64 {2 * number}", "p")
        noted = self._code.emit(f"load i64, ptr {flag}", "noted")
        clear = self._code.emit(f"icmp eq i64 {noted}, 0", "clear")
        place, value = self._code.local("p"), self._code.local("index")
        lines = [
            f"{place} = getelementptr i64, ptr {self._faults}, i64 {2 * number + 1}",
            f"{value} = load i64, ptr {place}",
            f"store i64 {value}, ptr %arena",
        ]
        self._go_on_if(clear, self._sizes_checked + self._indexed, lines)

    def _copy(self, step: CopyTensor) -> None:
        callee = self._code.intrinsic("void", "llvm.memmove.p0.p0.i64", "ptr, ptr, i64, i1")
        target, source = self._address(step.target), self._address(step.source_tensor)
        size = self._index.operand(self._program.types[step.target].bytes)
        self._code.effect(f"call {callee}(ptr {target}, ptr {source}, i64 {size}, i1 false)")

    def _address(self, name: str) -> str:
        binding = self._bindings[name]
        if binding.place == "arena":
            return self._in_arena(binding.offset, binding.segment)
        return self._code.cached(_memory_key(name)) or self._argument(name, binding.place)

    def _argument(self, name: str, place: Place) -> str:
        key = f"argument {place} {name}"
        found = self._code.cached(key)
        if found is None:
            position = self._program.position(name)
            slot = f"%{place}s"
            if position:
                step = f"getelementptr ptr, ptr {slot}, i64 {position}"
                slot = self._code.emit(step, "p")
            found = self._code.emit(f"load ptr, ptr {slot}", name)
            self._code.scope.cache[key] = found
        return found

    def _in_arena(self, offset: Index, segment: str) -> str:
        start = "%arena" if not segment else self._code.cached(_memory_key(segment)) or "null"
        if offset == 0:
            return start
        key = f"arena {segment} {offset}"
        found = self._code.cached(key)
        if found is None:
            operand = self._index.operand(offset)
            found = self._code.emit(f"getelementptr i8, ptr {start}, i64 {operand}", "p")
            self._code.scope.cache[key] = found
        return found


def _memory_key(name: str) -> str:
    return f"memory of {name}"


def _label(block: BasicBlock) -> str:
    return f"label %{quoted(block.label)}"
