"""Kernels for groups of threads in LLVM IR: indices, shared memory, barriers, asynchronous copies,
and warp-level operations.

Pointers are generic inside a function, cast where memory is declared: LLVM infers their address
spaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, prod

from modelcc.ir.copies import CommitCopies, CopyAsync, Exchange, WaitCopies
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, Range, product
from modelcc.ir.loop import Alloc, Arrive, For, Function
from modelcc.ir.loop_text import statement_text
from modelcc.ir.loop_traversal import grid_loop, launch_extents, launched_groups, statements
from modelcc.ir.shared_layout import SharedLayout, shared_layout
from modelcc.targets.llvm.ahead import LAUNCH
from modelcc.targets.llvm.code import BasicBlock, Code, LlvmValue
from modelcc.targets.llvm.dialect import ACROSS, ROW, LlvmGroups, Word
from modelcc.targets.llvm.expressions import ExpressionCode
from modelcc.targets.llvm.values import memory_type, quoted

SHARED_BYTES = "_shared_bytes"
"""Suffix of a constant besides a kernel: bytes of shared memory to launch it with."""

_ASYNC = "llvm.nvvm.cp.async"

_MBCNT_LO = "declare i32 @llvm.amdgcn.mbcnt.lo(i32, i32)"
_MBCNT_HI = "declare i32 @llvm.amdgcn.mbcnt.hi(i32, i32)"
"""Two intrinsics that count the threads of the wave before this one."""


def kernel_size(function: Function, groups: LlvmGroups) -> str:
    """The attribute after a kernel's head that gives the number of threads of a group."""
    if grid_loop(function) is None:
        raise NotImplementedError(f"{groups.name} has kernels only, but @{function.name} no grid")
    extents = launch_extents(function)[1]
    threads = [n for n in extents if isinstance(n, int)]
    return groups.size.format(*threads, *(1 for _ in range(3 - len(threads))), total=prod(threads))


def shared_bytes(function: Function) -> int:
    """Bytes of shared memory that a group takes."""
    return shared_layout(function).size


class GroupCode:
    """Emits statements of thread groups into ``code``."""

    def __init__(self, code: Code, groups: LlvmGroups, expressions: ExpressionCode) -> None:
        self._code = code
        self._groups = groups
        self._expressions = expressions
        self._index = expressions.index
        self._threads = 1
        self._grid: For | None = None
        self._others = ""
        self._by_all: frozenset[int] = frozenset()
        self._of_threads: list[str] = []

    def loop(self, s: For) -> None:
        """The index of a group or a thread, for all of a function."""
        inner = [o.stop for o in statements(s.body) if isinstance(o, For) and o.kind == s.kind]
        words = self._groups.group if s.kind == "grid" else self._groups.thread
        if s.kind == "grid" and self._grid is None:
            self._grid, self._others = s, self._rows((*reversed(inner), s.stop))
        if s.kind == "grid" and self._others and inner:
            found = self._along(s, inner[:-1], self._others, words[0].result)
        else:
            found = self._called(words[len(inner)])
        if words[0].result != "i64":
            found = self._code.emit(f"zext {words[0].result} {found} to i64", s.variable)
        self._index.bind(s.variable, found)
        self._code.scope.bounds[s.variable] = Range(0, s.stop - 1)
        if s.kind == "thread":
            assert isinstance(s.stop, int)
            self._threads *= s.stop
            self._of_threads.append(found)
            if not inner:
                self._code.lane, self._code.warp = s.variable, s.stop
                self._by_all = frozenset(map(id, s.body))

    def _rows(self, extents: tuple[Index, ...]) -> str:
        """If all dimensions but the first are launched as rows, the group's linear index in them;
        groups beyond the last one end.  "" elsewhere."""
        launched, row = launched_groups(extents, self._groups.across), self._groups.row
        if launched == extents:
            return ""
        assert row is not None, "dialects with limits of a grid tell the length of its rows"
        (_, second, third), type_ = self._groups.group, row.result
        before = self._code.emit(f"mul {type_} {self._called(third)}, {self._called(row)}", "row")
        place = self._code.emit(f"add {type_} {before}, {self._called(second)}", "place")
        others = product(extents[1:])
        if product(launched[1:]) != others:
            self._end_unless(f"icmp ult {type_} {place}, {self._number(others, type_)}")
        return place

    def _end_unless(self, condition: str) -> None:
        """Ends groups for which ``condition`` does not hold."""
        there, before = self._code.emit(condition, "there"), self._code.scope.block
        end = BasicBlock(self._code.fresh("none"), terminator="ret void")
        self._code.blocks.append(end)
        labels = (quoted(b.label) for b in (self._code.begin_block("group"), end))
        before.terminator = f"br i1 {there}, label %{', label %'.join(labels)}"

    def _along(self, s: For, inner: Sequence[Index], place: str, type_: str) -> str:
        """The index along ``s``, outside ``inner`` dimensions, of a group with linear index
        ``place``."""
        if inner:
            place = self._code.emit(f"udiv {type_} {place}, {self._number(product(inner), type_)}")
        if s is not self._grid:
            place = self._code.emit(f"urem {type_} {place}, {self._number(s.stop, type_)}")
        return place

    def _number(self, size: Index, type_: str) -> str:
        found = self._index.operand(size)
        narrow = type_ != "i64" and not isinstance(size, int)
        return self._code.emit(f"trunc i64 {found} to {type_}") if narrow else found

    def shared(self, s: Alloc, layout: SharedLayout) -> None:
        """A part of a group's shared memory."""
        buffer, space = s.buffer, self._groups.shared
        assert isinstance(buffer.size, int)
        limit = self._groups.shared_bytes
        if layout.overlaid or (limit is not None and layout.size > limit):
            pointer = self._part(s, layout)
        else:
            pointer = f"@{quoted(f'{self._code.name}.{self._code.fresh(buffer.name)}')}"
            type_ = f"[{buffer.size} x {memory_type(buffer.dtype)}]"
            self._code.globals.append(
                f"{pointer} = internal addrspace({space}) global {type_} poison, "
                f"align {buffer.align}"
            )
        self._code.shared[buffer.name] = pointer
        generic = self._generic(pointer, space, buffer.name)
        self._code.scope.buffers[buffer.name] = (generic, buffer)

    def _part(self, s: Alloc, layout: SharedLayout) -> str:
        """The address of a part.  Where static shared memory is limited, it is dynamic: the launch
        sets its size, which a constant besides the kernel tells."""
        space, buffer = self._groups.shared, s.buffer
        whole = f"@{quoted(f'{self._code.name}_shared')}"
        if self._groups.shared_bytes is None:
            type_ = f"[{layout.size} x i8] poison"
            line = f"{whole} = internal addrspace({space}) global {type_}, align 1024"
        else:
            line = f"{whole} = external addrspace({space}) global [0 x i8], align 1024"
        if line not in self._code.globals:
            self._code.globals.append(line)
            if self._groups.shared_bytes is not None:
                symbol = f"@{quoted(self._code.name + SHARED_BYTES)}"
                number = f"addrspace({self._groups.memory}) constant i32 {layout.size}"
                self._code.globals.append(f"{symbol} = {number}")
        first, _ = layout.places[buffer.name]
        at = f"getelementptr i8, ptr addrspace({space}) {whole}, i64 {first}"
        return self._code.emit(at, buffer.name)

    def _generic(self, pointer: str, space: int, hint: str) -> str:
        return self._code.emit(f"addrspacecast ptr addrspace({space}) {pointer} to ptr", hint)

    def _special(self, pointer: str, space: int) -> str:
        return self._code.emit(f"addrspacecast ptr {pointer} to ptr addrspace({space})", "p")

    def barrier(self) -> None:
        """All threads of the group synchronise, and see each other's writes."""
        if self._groups.private:
            self._code.effect('fence syncscope("workgroup") release')
        for word in self._groups.barriers:
            self._called(word)
        if self._groups.private:
            self._code.effect('fence syncscope("workgroup") acquire')

    def launch_next(self) -> None:
        """The next kernel may be launched, if it waits for this one."""
        if self._groups.ahead:
            self._code.effect(LAUNCH)

    def arrive(self, s: Arrive) -> str:
        """Whether the group is the last one, in all its threads.

        Their writes are ordered by the barrier before the first thread's fence, which synchronises
        through the counter with the fence of the last group's first thread: fences are cumulative
        (PTX ISA, memory consistency model: release and acquire patterns, causality order).
        """
        meeting = self._groups.meeting
        if meeting is None:
            raise NotImplementedError(f"{self._groups.name} has no '{statement_text(s)}'")
        self.barrier()
        count = self._code.emit(f"trunc i64 {self._index.operand(s.count)} to i32", "count")
        counter = self._expressions.memory.address(s.counters, s.slot)
        number = self._of_threads[0]
        for other in self._of_threads[1:]:
            number = self._code.emit(f"or i64 {number}, {other}", "number")
        is_first = self._code.emit(f"icmp eq i64 {number}, 0", "first")
        before, first = self._code.scope.block, BasicBlock(self._code.fresh("arrive"))
        self._code.blocks.append(first)
        with self._code.nested(first):
            is_last = self._counted(counter, count)
        after = self._code.begin_block("arrived")
        to = f"label %{quoted(after.label)}"
        first.terminator = f"br {to}"
        before.terminator = f"br i1 {is_first}, label %{quoted(first.label)}, {to}"
        ways = f"[ false, %{quoted(before.label)} ], [ {is_last}, %{quoted(first.label)} ]"
        said = self._code.emit(f"phi i1 {ways}", "last")
        return self._called(replace(meeting, call=meeting.call.format(said)))

    def _counted(self, counter: str, count: str) -> str:
        """Whether this is the last arrival of ``count``; then the counter is 0 again."""
        scope = 'syncscope("device")'
        self._code.effect(f"fence {scope} acq_rel")
        step = f"atomicrmw uinc_wrap ptr {counter}, i32 {{}} {scope} monotonic"
        most = self._code.emit(f"sub i32 {count}, 1", "most")
        found = self._code.emit(step.format(most), "arrived")
        self._code.effect(f"fence {scope} acq_rel")
        return self._code.emit(f"icmp eq i32 {found}, {most}", "last")

    def exchange(self, s: Exchange, register: LlvmValue) -> None:
        """A 32-bit register of another thread (warp shuffle), as bits."""
        count, warp = self._code.warp, self._groups.warp
        inside = count <= warp or (count % warp == 0 and s.across < warp)
        if not self._groups.exchanges or not inside or register.type not in ("i32", "float"):
            raise NotImplementedError(
                f"{count} threads of {self._groups.name} have no '{statement_text(s)}' of "
                f"{register.type}"
            )
        value = self._code.emit(f"load i32, ptr {register.operand}", s.name)
        if self._groups.exchanges == "shfl":
            by_all = id(s) in self._by_all and self._threads % self._groups.warp == 0
            found = self._shuffled(value, warp if by_all else min(count, warp), s.across)
        elif s.across == ROW and self._groups.rows_exchange:
            types = "i32, i32, i32, i32, i1, i1"
            callee = self._code.intrinsic("i32", "llvm.amdgcn.permlanex16.i32", types)
            found = self._code.emit(f"call {callee}(i32 {value}, i32 {value}, {ACROSS})", s.name)
        else:
            lane = self._called(Word("i32", "i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 0)", _MBCNT_LO))
            other = f"i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 {lane})"
            lane = self._called(Word("i32", other, _MBCNT_HI))
            lane = self._code.emit(f"xor i32 {lane}, {s.across}", "lane")
            place = self._code.emit(f"shl i32 {lane}, 2", "place")
            callee = self._code.intrinsic("i32", "llvm.amdgcn.ds.bpermute", "i32, i32")
            found = self._code.emit(f"call {callee}(i32 {place}, i32 {value})", s.name)
        self._code.effect(f"store i32 {found}, ptr {register.operand}")

    def _shuffled(self, value: str, count: int, across: int) -> str:
        """A shuffle with a mask of the threads that are active: ``count`` neighbours."""
        mask = "-1"
        if count < self._groups.warp:
            lane = "i32 @llvm.nvvm.read.ptx.sreg.laneid()"
            lane = self._called(Word("i32", lane, f"declare {lane}"))
            first = self._code.emit(f"and i32 {lane}, {-count}", "first")
            mask = self._code.emit(f"shl i32 {(1 << count) - 1}, {first}", "mask")
        callee = self._code.intrinsic("i32", "llvm.nvvm.shfl.sync.bfly.i32", "i32, i32, i32, i32")
        return self._code.emit(f"call {callee}(i32 {mask}, i32 {value}, i32 {across}, i32 31)", "v")

    # --- copies

    def copying(self, s: CopyAsync | CommitCopies | WaitCopies) -> None:
        """A statement of asynchronous copies."""
        if not self._groups.copies:
            raise NotImplementedError(
                f"{self._groups.name} has no '{statement_text(s)}': run the expand_copies pass"
            )
        match s:
            case CommitCopies():
                self._call(f"{_ASYNC}.commit.group", [])
            case WaitCopies():
                self._call(f"{_ASYNC}.wait.group", [("i32", str(s.pending))])
            case CopyAsync():
                self._copy(s)

    def _copy(self, s: CopyAsync) -> None:
        memory = self._expressions.memory
        size = s.lanes * memory.buffer(s.to)[1].dtype.bytes
        for name, offset in ((s.to, s.to_offset), (s.source, s.source_offset)):
            buffer = memory.buffer(name)[1]
            if gcd(self._index.divisor(offset) * buffer.dtype.bytes, buffer.align) % size:
                raise ModelError(
                    f"%{name} is not known to be aligned to the {size} bytes that are copied",
                    (f"@{self._code.name}", statement_text(s)),
                )
        to = self._special(memory.address(s.to, s.to_offset), self._groups.shared)
        source = self._special(memory.address(s.source, s.source_offset), self._groups.memory)
        taken = [("ptr addrspace(3)", to), ("ptr addrspace(1)", source)]
        kind = "cg" if size == 16 else "ca"
        part = "" if s.active is None else ".s"
        if s.active is not None:
            taken.append(("i32", self._bytes(s)))
        self._call(f"{_ASYNC}.{kind}.shared.global.{size}{part}", taken)

    def _bytes(self, s: CopyAsync) -> str:
        """The number of bytes that are read; the others become 0."""
        assert s.active is not None
        least = self._code.intrinsic("i64", "llvm.smin.i64", "i64, i64")
        most = self._code.intrinsic("i64", "llvm.smax.i64", "i64, i64")
        count = self._index.operand(s.active)
        count = self._code.emit(f"call {least}(i64 {count}, i64 {s.lanes})", "active")
        count = self._code.emit(f"call {most}(i64 {count}, i64 0)", "active")
        each = self._expressions.memory.buffer(s.to)[1].dtype.bytes
        count = self._code.emit(f"mul i64 {count}, {each}", "active")
        return self._code.emit(f"trunc i64 {count} to i32", "active")

    def _called(self, word: Word) -> str:
        self._code.declarations[word.declaration] = None
        if word.result == "void":
            self._code.effect(f"call {word.call}")
            return ""
        return self._code.emit(f"call {word.call}", "id")

    def _call(self, name: str, arguments: Sequence[tuple[str, str]]) -> None:
        callee = self._code.intrinsic("void", name, ", ".join(type_ for type_, _ in arguments))
        self._code.effect(f"call {callee}({', '.join(map(' '.join, arguments))})")
