"""Loop-level statements as LLVM basic blocks."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from modelcc.ir.copies import CommitCopies, CopyAsync, Exchange, Prefetch, WaitCopies
from modelcc.ir.index import Index, Range, simplify
from modelcc.ir.loop import (
    Alloc,
    Arrive,
    Assign,
    Barrier,
    BindIndex,
    Check,
    Comment,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    ParallelCall,
    Register,
    RoutineCall,
    ScalarCall,
    Select,
    Stmt,
    Store,
    TakeTurns,
    Var,
    VectorScatter,
    While,
)
from modelcc.ir.loop_text import statement_text
from modelcc.ir.loop_traversal import FAULTS, names_used, walk
from modelcc.ir.shared_layout import SHARED, SharedLayout
from modelcc.ir.tiles import CopyTile, ExpectBytes, WaitArrival, WaitRoutines
from modelcc.ir.types import I64
from modelcc.targets.isa.table import texts_of
from modelcc.targets.llvm.code import BasicBlock, Code, LlvmValue
from modelcc.targets.llvm.expressions import ExpressionCode
from modelcc.targets.llvm.groups import GroupCode
from modelcc.targets.llvm.parallel import parallel_call
from modelcc.targets.llvm.tiles import TileCode
from modelcc.targets.llvm.values import memory_type, quoted, value_type
from modelcc.targets.llvm.warp import WarpCode
from modelcc.targets.llvm.wave import WaveCode

_UNLIKELY = '!prof !{!"branch_weights", i32 1, i32 1048576}'
"""Of the first of two branches."""


def _is_extremum(e: Expr) -> bool:
    return isinstance(e, ScalarCall) and e.function in ("min", "max")


def _is_loop(s: Stmt) -> bool:
    return isinstance(s, While) or (isinstance(s, For) and s.kind != "unrolled")


class StatementCode:
    """Emits statements into ``code``; parallel loops have been outlined.  ``shared`` is the layout
    of a group's shared memory, ``results`` are the buffers that it writes for others."""

    def __init__(
        self,
        code: Code,
        shared: SharedLayout | None = None,
        results: frozenset[str] = frozenset(),
    ) -> None:
        self._code = code
        self._shared = shared
        self._results = results
        self.expressions = ExpressionCode(code)
        self._index = self.expressions.index
        self._loaded: dict[str, str] = {}
        self._groups = code.groups and GroupCode(code, code.groups, self.expressions)
        self._warp = code.groups and WarpCode(code, code.groups, self.expressions)
        self._tiles = self._warp and TileCode(code, self._warp, self.expressions)
        self._waves = self._warp and WaveCode(code, self._warp, self.expressions)

    def block(self, body: Sequence[Stmt]) -> None:
        """Emit a list of statements into the innermost scope."""
        for s in body:
            self.statement(s)

    def statement(self, s: Stmt) -> None:
        """Emit one statement."""
        match s:
            case For():
                self._for(s)
            case If():
                self._if(s)
            case While():
                self._while(s)
            case Let():
                self._let(s)
            case BindIndex():
                self._bind_index(s)
            case Check():
                self._check(s)
            case Register():
                self._register(s)
            case Assign():
                self._assign(s)
            case Alloc():
                self._alloc(s)
            case ParallelCall():
                parallel_call(self._code, self.expressions, s)
            case Comment():
                for line in s.text.splitlines():
                    self._code.effect(f"; {line}")
            case RoutineCall():
                if self._warp is None or self._tiles is None or self._waves is None:
                    self._routine(s)
                elif not (self._tiles.call(s) or self._waves.call(s)):
                    self._warp.call(s)
            case Barrier():
                self._of_groups(s).barrier()
                self._loaded.clear()
            case Arrive():
                self._arrive(s)
            case TakeTurns():
                tiles = self._of_tiles(s)
                tiles.take_turn()
                self.block(s.first)
                self._one_runs(tiles.copies(), s.copies)
                self.block(s.rest)
                tiles.pass_turn()
            case Exchange():
                self._of_groups(s).exchange(s, self.expressions.value(s.name))
            case CopyTile() | ExpectBytes() | WaitArrival():
                self._of_tiles(s).copying(s)
            case WaitRoutines():
                self._of_tiles(s).wait(s)
            case CopyAsync() | CommitCopies() | WaitCopies():
                self._of_groups(s).copying(s)
            case Store() | VectorScatter() | Prefetch():
                self._memory_statement(s)

    def _routine(self, s: RoutineCall) -> None:
        """A call of the processor's own text, which is in the module once."""
        there = frozenset(self._code.instructions.features)
        texts = [t for t in texts_of(s.routine) if t.llvm and there.issuperset(t.features)]
        if not texts:
            raise NotImplementedError(f"the processor has no instructions for @{s.routine.name}")
        self._code.declarations.update(dict.fromkeys(texts[0].llvm))
        memory = self.expressions.memory
        given = [f"ptr {memory.address(a.buffer, a.offset)}" for a in s.arguments]
        given += [f"i64 {self._index.operand(size)}" for size in s.sizes]
        self._code.effect(f"call void @{quoted(s.routine.name)}({', '.join(given)})")
        self._loaded.clear()

    def _of_groups(self, s: Stmt) -> GroupCode:
        if self._groups is None:
            raise NotImplementedError(
                f"LLVM text for processors has no groups, as '{statement_text(s)}' wants"
            )
        return self._groups

    def _of_tiles(self, s: Stmt) -> TileCode:
        groups = self._code.groups
        if self._tiles is None or groups is None or not groups.tiles:
            raise NotImplementedError(
                f"{groups.name if groups else 'a processor'} has no '{statement_text(s)}': "
                "run the expand_tiles pass"
            )
        return self._tiles

    def _memory_statement(self, s: Store | VectorScatter | Prefetch) -> None:
        memory = self.expressions.memory
        match s:
            case Store():
                value = self.expressions.operand(s.value)
                if s.value.lanes > 1 and self._chooses_in_place(s):
                    type_ = value_type(s.value.dtype, s.value.lanes)
                    value = self._code.emit(f"freeze {type_} {value}")
                memory.store(s.buffer, s.offset, value, s.value.lanes, s.stride, s.active)
            case VectorScatter():
                offsets = self.expressions.operand(s.offsets)
                value = self.expressions.operand(s.value)
                kind, lanes = s.offsets.dtype, s.value.lanes
                memory.scatter(s.buffer, s.offset, offsets, kind, value, lanes, s.active)
            case Prefetch():
                pointer = memory.address(s.buffer, s.offset)
                callee = self._code.intrinsic("void", "llvm.prefetch.p0", "ptr, i32, i32, i32")
                near = max(0, 4 - s.level)
                self._code.effect(f"call {callee}(ptr {pointer}, i32 0, i32 {near}, i32 1)")

    def _chooses_in_place(self, s: Store) -> bool:
        """Whether lanes may get what they hold already, of which LLVM makes a masked store.

        That takes some processors longer than all the rest, and holds up loads of what is behind
        it (a maximum at 65,536 places on Zen 4: 6.8 ms, 0.5 without).  Freezing the value hides it.
        """
        parts = list(walk(s.value))
        if not any(isinstance(e, Select) or _is_extremum(e) for e in parts):
            return False
        held = (e.name for e in parts if isinstance(e, Var))
        return any(self._loaded.get(name) == s.buffer for name in held)

    # --- names

    def _let(self, s: Let) -> None:
        operand = self.expressions.operand(s.value)
        self._code.scope.values[s.name] = LlvmValue(
            operand, value_type(s.value.dtype, s.value.lanes)
        )
        if isinstance(s.value, Load):
            self._loaded[s.name] = s.value.buffer

    def _bind_index(self, s: BindIndex) -> None:
        operand = self.expressions.operand(s.value)
        wide = self.expressions.arithmetic.convert(operand, s.value.dtype, I64, 1)
        self._code.scope.replaced.pop(s.symbol, None)
        self._index.bind(s.symbol, wide)

    def _register(self, s: Register) -> None:
        type_ = value_type(s.value.dtype, s.value.lanes)
        operand = self.expressions.operand(s.value)
        slot = self._code.allocate(type_, s.name)
        self._code.scope.values[s.name] = LlvmValue(slot, type_, is_register=True)
        self._code.effect(f"store {type_} {operand}, ptr {slot}")

    def _assign(self, s: Assign) -> None:
        operand = self.expressions.operand(s.value)
        register = self.expressions.value(s.name)
        self._code.effect(f"store {register.type} {operand}, ptr {register.operand}")

    def _alloc(self, s: Alloc) -> None:
        if s.buffer.space in SHARED:
            assert self._shared is not None
            self._of_groups(s).shared(s, self._shared)
            if s.buffer.space == "arrivals":
                self._of_tiles(s).count(s)
            return
        if s.buffer.space == "warp" and self._warp is not None:
            self._warp.allocate(s)
            return
        size = self._index.resolved(s.buffer.size)
        type_ = f"[{size} x {memory_type(s.buffer.dtype)}]"
        pointer = self._code.allocate(type_, s.buffer.name, s.buffer.align)
        self._code.scope.buffers[s.buffer.name] = (pointer, s.buffer)

    def _check(self, s: Check) -> None:
        """One comparison, since negative numbers are large without their sign."""
        value, extent = self.expressions.operand(s.value), self._index.operand(s.extent)
        lanes = s.value.lanes
        note: list[str] = []
        if lanes == 1:
            outside, index = self._code.emit(f"icmp uge i64 {value}, {extent}", "outside"), value
        else:
            outside, index = self._outside(value, extent, lanes, s.active, note)
        before = self._code.scope.block
        fault = BasicBlock(self._code.fresh("fault"), terminator="ret void")
        self._code.blocks.append(fault)
        fault.lines += [*note, *self._noted(index, s.number)]
        after = self._code.begin_block("checked")
        if s.noting:
            fault.terminator = f"br label %{quoted(after.label)}"
        labels = ", ".join(f"label %{quoted(block.label)}" for block in (fault, after))
        before.terminator = f"br i1 {outside}, {labels}, {_UNLIKELY}"

    def _outside(
        self, value: str, extent: str, lanes: int, active: Index | None, note: list[str]
    ) -> tuple[str, str]:
        """Whether any lane is outside, and the first that is, which ``note`` computes."""
        memory, type_ = self.expressions.memory, value_type(I64, lanes)
        limit = memory.broadcast(extent, "i64", lanes)
        some = self._code.emit(f"icmp uge {type_} {value}, {limit}", "outside")
        mask = memory.mask(active, lanes, I64)
        if mask is not None:
            some = self._code.emit(f"and <{lanes} x i1> {some}, {mask}", "outside")
        bits, place, index = (self._code.local(hint) for hint in ("bits", "lane", "index"))
        least = self._code.intrinsic(f"i{lanes}", f"llvm.cttz.i{lanes}", f"i{lanes}, i1")
        note += [
            f"{place} = call {least}(i{lanes} {bits}, i1 true)",
            f"{index} = extractelement {type_} {value}, i{lanes} {place}",
        ]
        self._code.effect(f"{bits} = bitcast <{lanes} x i1> {some} to i{lanes}")
        return self._code.emit(f"icmp ne i{lanes} {bits}, 0", "outside"), index

    def _noted(self, index: str, number: int) -> list[str]:
        """Instructions that note a fault; threads may do so at the same time."""
        memory, _ = self.expressions.memory.buffer(FAULTS)
        value, flag = self._code.local("p"), self._code.local("p")
        return [
            f"{value} = getelementptr i64, ptr {memory}, i64 {2 * number + 1}",
            f"store atomic i64 {index}, ptr {value} monotonic, align 8",
            f"{flag} = getelementptr i64, ptr {memory}, i64 {2 * number}",
            f"store atomic i64 1, ptr {flag} monotonic, align 8",
        ]

    # --- control flow

    def _if(self, s: If) -> None:
        if isinstance(s.condition, Const):
            self._in_scope(s.then if s.condition.value else s.other)
            return
        condition = self.expressions.operand(s.condition)
        branch = self._code.scope.block
        then = self._branch("then", s.then)
        other = self._branch("else", s.other) if s.other else None
        after = self._code.begin_block("endif")
        skip = other[0] if other else after
        branch.terminator = (
            f"br i1 {condition}, label %{quoted(then[0].label)}, label %{quoted(skip.label)}"
            + (f", {_UNLIKELY}" if s.rare else "")
        )
        for _, end in (then, *((other,) if other else ())):
            end.terminator = f"br label %{quoted(after.label)}"

    def _arrive(self, s: Arrive) -> None:
        is_last = self._of_groups(s).arrive(s)
        self._loaded.clear()
        self._one_runs(is_last, s.body)

    def _one_runs(self, is_one: str, body: Sequence[Stmt]) -> None:
        before = self._code.scope.block
        first, end = self._branch("rest", body)
        after = self._code.begin_block("arrivals")
        ways = ", ".join(f"label %{quoted(block.label)}" for block in (first, after))
        before.terminator = f"br i1 {is_one}, {ways}"
        end.terminator = f"br label %{quoted(after.label)}"

    def _while(self, s: While) -> None:
        """A top-tested loop."""
        before = self._code.scope.block
        head = BasicBlock(self._code.fresh("while"))
        self._code.blocks.append(head)
        with self._code.nested(head) as scope:
            condition = self.expressions.operand(s.condition)
            tested = scope.block
            body, end = self._branch("do", s.body)
        after = self._code.begin_block("done")
        before.terminator = end.terminator = f"br label %{quoted(head.label)}"
        tested.terminator = (
            f"br i1 {condition}, label %{quoted(body.label)}, label %{quoted(after.label)}"
        )

    def _branch(self, hint: str, body: Sequence[Stmt]) -> tuple[BasicBlock, BasicBlock]:
        """First and last block of a branch."""
        block = BasicBlock(self._code.fresh(hint))
        self._code.blocks.append(block)
        with self._code.nested(block) as scope:
            self.block(body)
            return block, scope.block

    def _in_scope(self, body: Sequence[Stmt]) -> None:
        """Emit statements in a scope of their own without a branch."""
        with self._code.nested(self._code.scope.block) as scope:
            self.block(body)
        self._code.scope.block = scope.block

    def _for(self, s: For) -> None:
        if s.kind in ("grid", "thread"):
            self._of_groups(s).loop(s)
            if self._tiles is not None and self._tiles.begin(s):
                self._of_groups(s).barrier()
            self._of_group(s.body)
            return
        if s.part:
            first, bound = (s.start + number * s.step for number in s.part)
            self._guarded(s, first, bound, self._range(s.start, s.stop, s.step))
            return
        start, stop = self._index.resolved(s.start), self._index.resolved(s.stop)
        extent = simplify(stop - start, self._index.bounds())
        if isinstance(extent, int) and (s.kind == "unrolled" or extent <= s.step):
            for offset in range(0, extent, s.step):
                self._unrolled(s, start + offset)
            return
        if s.kind == "unrolled":
            raise ValueError(
                f"loop over '{s.variable}' from {start} to {stop} cannot be unrolled: "
                f"its extent {extent} is not a number"
            )
        known = self._range(start, stop, s.step)
        if not self._index.at_least(extent, 1):
            self._guarded(s, start, stop, known)
        else:
            self._loop(s, start, stop, known)

    def _of_group(self, body: Sequence[Stmt]) -> None:
        """The work of all threads.  The next kernel may be launched when only results are left:
        earlier, its groups would occupy SMs while others still compute."""
        last = self._begin_of_results(body)
        for number, s in enumerate(body):
            if number == last:
                self._results = frozenset()
                self._of_groups(s).launch_next()
            self.statement(s)

    def _begin_of_results(self, body: Sequence[Stmt]) -> int | None:
        """The index after the last loop before the results, or 0: their other operands are loaded
        while threads wait, but no assembler moves a load before a launch."""
        if any(isinstance(s, For) and s.kind in ("grid", "thread") for s in body):
            return None
        found = (n for n, s in enumerate(body) if not self._results.isdisjoint(names_used([s])))
        first = next(found, None)
        return (
            None
            if first is None
            else max((n + 1 for n, s in enumerate(body[:first]) if _is_loop(s)), default=0)
        )

    def _unrolled(self, s: For, position: Index) -> None:
        with self._code.nested(self._code.scope.block) as scope:
            scope.replaced[s.variable] = position
            self.block(s.body)
        self._code.scope.block = scope.block

    def _guarded(self, s: For, start: Index, stop: Index, known: Range) -> None:
        """A loop that may have no iterations."""
        first, last = self._index.operand(start), self._index.operand(stop)
        enters = self._code.emit(f"icmp slt i64 {first}, {last}", "c")
        before = self._code.scope.block
        inside = BasicBlock(self._code.fresh(f"{s.variable}.enter"))
        self._code.blocks.append(inside)
        with self._code.nested(inside) as scope:
            self._loop(s, start, stop, known)
            end = scope.block
        after = self._code.begin_block(f"{s.variable}.skip")
        before.terminator = (
            f"br i1 {enters}, label %{quoted(inside.label)}, label %{quoted(after.label)}"
        )
        end.terminator = f"br label %{quoted(after.label)}"

    def _loop(self, s: For, start: Index, stop: Index, known: Range) -> None:
        """A bottom-tested loop with at least one iteration."""
        first, last = self._index.operand(start), self._index.operand(stop)
        before = self._code.scope.block
        variable = self._code.local(s.variable)
        following = self._code.local(f"{s.variable}.next")
        body = BasicBlock(self._code.fresh(f"{s.variable}.loop"))
        self._code.blocks.append(body)
        with self._code.nested(body) as scope:
            self._index.bind(s.variable, variable)
            scope.bounds[s.variable] = known
            scope.multiples[s.variable] = gcd(self._index.divisor(start), s.step)
            self.block(s.body)
            latch = scope.block
        after = self._code.begin_block(f"{s.variable}.done")
        before.terminator = f"br label %{quoted(body.label)}"
        phi = (
            f"{variable} = phi i64 [ {first}, %{quoted(before.label)} ], "
            f"[ {following}, %{quoted(latch.label)} ]"
        )
        body.lines.insert(0, phi)
        more = self._code.local("more")
        latch.lines += [
            f"{following} = add nsw i64 {variable}, {s.step}",
            f"{more} = icmp slt i64 {following}, {last}",
        ]
        latch.terminator = (
            f"br i1 {more}, label %{quoted(body.label)}, label %{quoted(after.label)}"
        )

    def _range(self, start: Index, stop: Index, step: int) -> Range:
        whole = self._index.divisor(stop - start) % step == 0
        return Range(start, stop - (step if whole else 1))
