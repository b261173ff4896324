"""Loop-level statements as C statements."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.copies import Prefetch
from modelcc.ir.index import Range, divides, simplify
from modelcc.ir.loop import (
    Alloc,
    Assign,
    Barrier,
    BindIndex,
    Buffer,
    Check,
    Comment,
    Expr,
    For,
    If,
    Let,
    ParallelCall,
    Register,
    RoutineCall,
    Stmt,
    Store,
    VectorScatter,
    While,
)
from modelcc.ir.loop_text import statement_text
from modelcc.ir.loop_traversal import FAULTS, statements
from modelcc.ir.shared_layout import SharedLayout
from modelcc.targets.c.code import CExpression, Code, Named
from modelcc.targets.c.dialect import GroupDialect
from modelcc.targets.c.expressions import ExpressionCode
from modelcc.targets.c.matrices import MatrixCode, matrix_array
from modelcc.targets.c.parallel import parallel_call
from modelcc.targets.c.prelude import Prelude
from modelcc.targets.c.routines import routine_call
from modelcc.targets.c.values import memory_type

_WORD = 8
"""Element size of memory that others overlay, at multiples of it."""


class StatementCode:
    """Appends statements to ``code``; parallel loops have been outlined.  Shared memory of a group
    is placed by ``layout``, if some of it overlaps."""

    def __init__(self, code: Code, prelude: Prelude, layout: SharedLayout | None = None) -> None:
        self._code = code
        self._layout = layout
        self._room = ""
        self._prelude = prelude
        self._dialect = prelude.dialect
        self.expressions = ExpressionCode(code, prelude)
        self._index = self.expressions.index

    def block(self, body: Sequence[Stmt]) -> None:
        """Prints a list of statements into the innermost scope."""
        for s in body:
            self.statement(s)

    def statement(self, s: Stmt) -> None:
        """Prints one statement."""
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
                parallel_call(self._code, self.expressions, self._prelude, s)
            case RoutineCall() if (
                self._dialect.groups is not None and self._dialect.groups.matrices
            ):
                groups = self._dialect.groups
                code = MatrixCode(self._code, self.expressions, groups.memory, groups.shared)
                code.call(s)
            case RoutineCall():
                routine_call(self._code, self.expressions, self._prelude, s, self._elsewhere)
            case Comment():
                self._code.comment(s.text)
            case Barrier():
                self._code.line(self._groups(s).barrier)
            case Store() | VectorScatter() | Prefetch():
                self._memory_statement(s)
            case _:
                raise NotImplementedError(
                    f"{self._dialect.name} has no '{statement_text(s)}': run the expand_copies and "
                    "expand_tiles passes"
                )

    def _elsewhere(self, code: Code, body: Sequence[Stmt]) -> None:
        """Prints the statements of another function."""
        StatementCode(code, self._prelude).block(body)

    def _memory_statement(self, s: Store | VectorScatter | Prefetch) -> None:
        memory, operand = self.expressions.memory, self.expressions.operand
        match s:
            case Store():
                value = operand(s.value)
                memory.store(s.buffer, s.offset, value, s.value.lanes, s.stride, s.active)
            case VectorScatter():
                at, value = operand(s.offsets), operand(s.value)
                kind, lanes = s.offsets.dtype, s.value.lanes
                memory.scatter(s.buffer, s.offset, at, kind, value, lanes, s.active)
            case Prefetch():
                if self._dialect.prefetch:
                    pointer = memory.address(s.buffer, s.offset)
                    self._code.line(self._dialect.prefetch.format(pointer, max(0, 4 - s.level)))

    # --- names

    def _let(self, s: Let) -> None:
        operand = self.expressions.operand(s.value)
        self._declare(s.name, s.value, operand, "const ")

    def _register(self, s: Register) -> None:
        operand = self.expressions.operand(s.value)
        self._declare(s.name, s.value, operand, "", is_register=True)

    def _declare(
        self, name: str, e: Expr, operand: CExpression, qualifier: str, is_register: bool = False
    ) -> None:
        type_ = self.expressions.type(e, operand)
        spelled = self._code.fresh(name)
        named = Named(CExpression(spelled, True, operand.mask), type_, is_register)
        self._code.scope.values[name] = named
        self._code.line(f"{qualifier}{type_} {spelled} = {operand.text};")

    def _assign(self, s: Assign) -> None:
        register = self._code.value(s.name).operand
        value = self.expressions.operand(s.value)
        value = self.expressions.arithmetic.remask(value, register.mask, s.value.lanes)
        self._code.line(f"{register.text} = {value.text};")

    def _bind_index(self, s: BindIndex) -> None:
        operand = self.expressions.operand(s.value)
        spelled = self._code.fresh(s.symbol)
        self._code.line(f"const {self._code.index} {spelled} = {self._code.narrowed(operand)};")
        self._code.scope.symbols[s.symbol] = spelled

    def _check(self, s: Check) -> None:
        """One unsigned comparison, in which negative numbers are large."""
        extent, lanes = f"(uint64_t)({self._index.text(s.extent)})", s.value.lanes
        value = self.expressions.operand(s.value).text
        if lanes == 1:
            self._leave_if([f"(uint64_t)({value}) >= {extent}"], value, s)
            return
        active = None if s.active is None else self._index.text(s.active)
        tests = [
            f"{'' if active is None else f'{lane} < {active} && '}"
            f"(uint64_t){value}[{lane}] >= {extent}"
            for lane in range(lanes)
        ]
        some = self._dialect.unlikely.format(" || ".join(f"({t})" for t in tests))
        with self._code.block(f"if ({some})"):
            for lane, test in enumerate(tests):
                self._leave_if([test], f"{value}[{lane}]", s)

    def _leave_if(self, tests: Sequence[str], index: str, s: Check) -> None:
        """Records ``index`` and returns if all tests hold, which is unlikely."""
        memory, _ = self._code.buffer(FAULTS)
        with self._code.block(f"if ({self._dialect.unlikely.format(' && '.join(tests))})"):
            for place, value in ((2 * s.number + 1, index), (2 * s.number, "1")):
                self._code.line(self._dialect.note.format(f"{memory}[{place}]", value))
            if not s.noting:
                self._code.line("return;")

    def _alloc(self, s: Alloc) -> None:
        buffer = s.buffer
        spelled = self._code.fresh(buffer.name)
        self._code.scope.buffers[buffer.name] = (spelled, buffer)
        if buffer.space == "warp" and self._groups(s).matrices:
            self._code.line(matrix_array(spelled, buffer))
            return
        shared = self._groups(s).shared if buffer.space == "shared" else ""
        if shared and self._layout is not None and self._layout.overlaid:
            self._overlaid(buffer, spelled, shared, self._layout)
            return
        self._code.line(
            f"{shared}{memory_type(buffer.dtype)} {spelled}[{self._index.text(buffer.size)}]"
            f"{self._dialect.aligned.format(min(buffer.align, self._dialect.alignment))};"
        )

    def _overlaid(self, buffer: Buffer, name: str, shared: str, layout: SharedLayout) -> None:
        """A part of one block of memory."""
        if not self._room:
            self._room = self._code.fresh("room")
            self._code.line(f"{shared}int64_t {self._room}[{-(-layout.size // _WORD)}];")
        first, type_ = layout.places[buffer.name][0], memory_type(buffer.dtype)
        at = f"({self._room} + {first // _WORD})"
        self._code.line(f"{shared}{type_} *{name} = ({shared}{type_} *){at};")

    # --- control flow

    def _if(self, s: If) -> None:
        condition = self.expressions.operand(s.condition).text
        test = self._dialect.unlikely.format(condition) if s.rare else condition
        self._code.line(f"if ({test}) {{")
        with self._code.nested():
            self.block(s.then)
        if s.other:
            self._code.line("} else {")
            with self._code.nested():
                self.block(s.other)
        self._code.line("}")

    def _while(self, s: While) -> None:
        with self._code.block("for (;;)"):
            condition = self.expressions.operand(s.condition)
            self._code.line(f"if (!{condition.inner}) break;")
            self.block(s.body)

    def _for(self, s: For) -> None:
        if s.kind in ("grid", "thread"):
            self._launched(s)
            return
        if s.kind == "unrolled":
            self._unroll(s)
        start, stop = s.start, s.stop
        if s.part:
            start, stop = (s.start + number * s.step for number in s.part)
        self._loop(s, self._index.text(start), self._index.text(stop))

    def _launched(self, s: For) -> None:
        """The index of a group or thread; its name is visible in the whole function."""
        groups = self._groups(s)
        indices = groups.group if s.kind == "grid" else groups.thread
        inside = sum(isinstance(o, For) and o.kind == s.kind for o in statements(s.body))
        spelled = self._code.fresh(s.variable)
        self._code.line(f"const {self._code.index} {spelled} = {indices[inside]};")
        self._code.scope.symbols[s.variable] = spelled
        self._code.scope.bounds[s.variable] = Range(0, s.stop - 1)
        self.block(s.body)

    def _groups(self, s: Stmt) -> GroupDialect:
        if self._dialect.groups is None:
            raise NotImplementedError(
                f"{self._dialect.name} has no groups of threads, as '{statement_text(s)}' wants"
            )
        return self._dialect.groups

    def _unroll(self, s: For) -> None:
        extent = simplify(s.stop - s.start, self._code.bounds())
        if not isinstance(extent, int):
            raise ValueError(
                f"loop over '{s.variable}' from {s.start} to {s.stop} cannot be unrolled: "
                f"its extent {extent} is not a number"
            )
        if extent > s.step and self._dialect.unroll:
            self._code.directive(self._dialect.unroll.format(-(-extent // s.step)))

    def _loop(self, s: For, first: str, last: str) -> None:
        """The iterations of ``s`` in ``first`` … ``last - 1``, within its range."""
        bounds = self._code.bounds()
        whole = divides(s.step, s.stop - s.start, bounds)
        known = Range(s.start, s.stop - (s.step if whole else 1))
        with self._code.nested() as scope:
            i = self._code.fresh(s.variable)
        step = f"{i}++" if s.step == 1 else f"{i} += {s.step}"
        head = f"for ({self._code.index} {i} = {first}; {i} < {last}; {step})"
        with self._code.block(head) as scope:
            scope.taken.add(i)
            scope.symbols[s.variable] = i
            scope.bounds[s.variable] = known
            self.block(s.body)
