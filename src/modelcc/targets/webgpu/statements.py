"""Loop-level statements as WGSL statements."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.copies import Prefetch
from modelcc.ir.index import Range, divides, product
from modelcc.ir.loop import (
    Alloc,
    Assign,
    Barrier,
    BindIndex,
    Check,
    Comment,
    Expr,
    For,
    If,
    IndexOf,
    Let,
    Register,
    Stmt,
    Store,
    VectorScatter,
    While,
)
from modelcc.ir.loop_text import statement_text
from modelcc.ir.loop_traversal import FAULTS, loop_nest
from modelcc.ir.types import I32, I64
from modelcc.runtime.devices.webgpu_shaders import GROUPS_ACROSS
from modelcc.targets.c.code import CExpression, Code, Named
from modelcc.targets.webgpu.arithmetic import convert
from modelcc.targets.webgpu.expressions import ExpressionCode, index_value, lane_name, whole_name
from modelcc.targets.webgpu.memory import ShaderMemory, own_room
from modelcc.targets.webgpu.values import PAIR, value_type


class StatementCode:
    """Appends statements to ``code``; groups' memory is declared among ``shared``."""

    def __init__(
        self,
        code: Code,
        rooms: dict[str, ShaderMemory],
        shared: list[str],
        cancelled: frozenset[Expr],
    ) -> None:
        self._code = code
        self._rooms = rooms
        self._shared = shared
        self._expressions = ExpressionCode(code, rooms, cancelled)
        self._index = self._expressions.index

    def block(self, body: Sequence[Stmt]) -> None:
        """Prints a list of statements into the innermost scope."""
        for s in body:
            self._statement(s)

    def _statement(self, s: Stmt) -> None:
        match s:
            case For() if s.kind in ("grid", "thread"):
                self._launched(s)
            case For():
                self._loop(s)
            case If():
                self._if(s)
            case While():
                self._while(s)
            case Let() | Register():
                self._declare(s)
            case Assign():
                self._assign(s)
            case BindIndex():
                self._bind_index(s)
            case Check():
                self._check(s)
            case Alloc():
                self._alloc(s)
            case Store() | VectorScatter():
                self._store(s)
            case Barrier():
                self._code.line("storageBarrier();")
                self._code.line("workgroupBarrier();")
            case Comment():
                self._code.comment(s.text)
            case Prefetch():
                pass
            case _:
                raise NotImplementedError(f"WGSL has no '{statement_text(s)}'")

    # --- names

    def _declare(self, s: Let | Register) -> None:
        operands = [self._expressions.operand(s.value, lane) for lane in range(s.value.lanes)]
        type_, keyword = value_type(s.value.dtype), "let" if isinstance(s, Let) else "var"
        names: list[str] = []
        for operand in operands:
            names.append(self._code.fresh(s.name))
            self._code.line(f"{keyword} {names[-1]}: {type_} = {operand.text};")
        for lane, name in enumerate(names):
            self._code.scope.values[lane_name(s.name, lane)] = Named(CExpression(name), type_)

    def _assign(self, s: Assign) -> None:
        for lane, value in enumerate(self._values(s.value)):
            register = self._code.value(lane_name(s.name, lane)).operand
            self._code.line(f"{register.text} = {value.text};")

    def _values(self, e: Expr) -> list[CExpression]:
        """All lanes, computed before any of them is changed."""
        found = [self._expressions.operand(e, lane) for lane in range(e.lanes)]
        if e.lanes == 1:
            return found
        names = [self._code.fresh("lane") for _ in found]
        for name, value in zip(names, found, strict=True):
            self._code.line(f"let {name} = {value.text};")
        return [CExpression(name) for name in names]

    def _bind_index(self, s: BindIndex) -> None:
        if isinstance(s.value, IndexOf):
            text = self._index.text(s.value.index)
        else:
            text = index_value(self._whole(s), s.value.dtype)
        spelled = self._code.fresh(s.symbol)
        self._code.line(f"let {spelled}: i32 = {text};")
        self._code.scope.symbols[s.symbol] = spelled

    def _whole(self, s: BindIndex) -> CExpression:
        """The number that an index is bound to; under a name of its own if it has 64 bits, which
        checks read."""
        value = self._expressions.operand(s.value)
        if value_type(s.value.dtype) != PAIR:
            return value
        spelled = self._code.fresh("whole")
        self._code.line(f"let {spelled} = {value.text};")
        whole = CExpression(spelled)
        self._code.scope.values[whole_name(s.symbol)] = Named(whole, PAIR)
        return whole

    def _check(self, s: Check) -> None:
        """Records the index that is out of range, and returns."""
        extent = convert(CExpression(self._index.text(s.extent), False), I32, I64).text
        for lane in range(s.value.lanes):
            value = self._code.fresh("checked")
            self._code.line(f"let {value} = {self._expressions.operand(s.value, lane).text};")
            active = self._expressions.active(s.active, lane)
            before = f"{active} && " if active else ""
            with self._code.block(f"if ({before}!u64_lt({value}, {extent}))"):
                faults = self._rooms[FAULTS].name
                for place, word in ((2, f"{value}.x"), (3, f"{value}.y"), (0, "1u")):
                    at = 4 * s.number + place
                    self._code.line(f"atomicStore(&{faults}[{at}], {word});")
                if not s.noting:
                    self._code.line("return;")

    def _alloc(self, s: Alloc) -> None:
        name = self._code.fresh(s.buffer.name)
        room = own_room(name, s.buffer)
        self._rooms[s.buffer.name] = room
        declared = f"{name}: array<{room.type}, {self._index.text(s.buffer.size)}>;"
        if s.buffer.space == "shared":
            self._shared.append(f"var<workgroup> {declared}")
        else:
            self._code.line(f"var {declared}")

    def _store(self, s: Store | VectorScatter) -> None:
        for lane, value in enumerate(self._values(s.value)):
            if isinstance(s, Store):
                at = self._index.text(s.offset + lane * s.stride)
            else:
                at = f"{self._index.inner(s.offset)} + {self._expressions.offset(s.offsets, lane)}"
            lines = self._rooms[s.buffer].store(at, value)
            active = self._expressions.active(s.active, lane)
            if active is not None:
                lines = [f"if {active} {{", *(f"    {line}" for line in lines), "}"]
            for line in lines:
                self._code.line(line)

    # --- control flow

    def _if(self, s: If) -> None:
        self._code.line(f"if ({self._expressions.operand(s.condition).text}) {{")
        with self._code.nested():
            self.block(s.then)
        if s.other:
            self._code.line("} else {")
            with self._code.nested():
                self.block(s.other)
        self._code.line("}")

    def _while(self, s: While) -> None:
        with self._code.block("loop"):
            condition = self._expressions.operand(s.condition)
            self._code.line(f"if (!{condition.inner}) {{ break; }}")
            self.block(s.body)

    def _launched(self, s: For) -> None:
        """Indices of a group or thread: names of the whole function."""
        loops, body = loop_nest(s)
        if s.kind == "thread":
            texts = [f"i32(mcc_thread.{axis})" for axis in "xyz"[: len(loops)]][::-1]
        else:
            texts = self._group_indices(loops)
        for loop, text in zip(loops, texts, strict=True):
            spelled = self._code.fresh(loop.variable)
            self._code.line(f"let {spelled} = {text};")
            self._code.scope.symbols[loop.variable] = spelled
            self._code.scope.bounds[loop.variable] = Range(0, loop.stop - 1)
        self.block(body)

    def _group_indices(self, loops: Sequence[For]) -> list[str]:
        """A launch has rows of as many groups as allowed, and the last row may have more than are
        needed."""
        number = self._code.fresh("group")
        total = self._index.text(product(loop.stop for loop in loops))
        self._code.line(f"let {number} = i32(mcc_group.x) + {GROUPS_ACROSS} * i32(mcc_group.y);")
        self._code.line(f"if ({number} >= {total}) {{ return; }}")
        texts: list[str] = []
        for depth, loop in reversed(list(enumerate(loops))):
            below = product(inner.stop for inner in loops[depth + 1 :])
            text = number if below == 1 else f"{number} / ({self._index.text(below)})"
            texts.append(text if depth == 0 else f"({text}) % ({self._index.text(loop.stop)})")
        return texts[::-1]

    def _loop(self, s: For) -> None:
        start, stop = s.start, s.stop
        if s.part:
            start, stop = (s.start + number * s.step for number in s.part)
        whole = divides(s.step, s.stop - s.start, self._code.bounds())
        known = Range(s.start, s.stop - (s.step if whole else 1))
        first, last = self._index.text(start), self._index.text(stop)
        with self._code.nested():
            i = self._code.fresh(s.variable)
        step = f"{i}++" if s.step == 1 else f"{i} += {s.step}"
        with self._code.block(f"for (var {i}: i32 = {first}; ({i} < {last}); {step})") as scope:
            scope.taken.add(i)
            scope.symbols[s.variable] = i
            scope.bounds[s.variable] = known
            self.block(s.body)
