"""Instructions of a program's steps by kind, estimated from its loops, and its multiply-adds.

Loop invariants, which compilers hoist, are counted once; routines with an assembly implementation
count its instructions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import evaluate
from modelcc.ir.library import ExternalCall
from modelcc.ir.loop import (
    Const,
    Expr,
    For,
    Function,
    Let,
    Load,
    MulAdd,
    RoutineCall,
    ScalarCall,
    Stmt,
    Store,
    Var,
)
from modelcc.ir.loop_traversal import (
    operands,
    statement_expressions,
    statement_indices,
    statements,
    walk,
)
from modelcc.ir.program import Program
from modelcc.targets.isa.table import texts_of
from modelcc.targets.isa.templates import RoutineText
from modelcc.targets.mcu.kinds import kind_of
from modelcc.targets.mcu.libraries.work import call_counts
from modelcc.targets.mcu.machine import McuModel
from modelcc.targets.mcu.operations import WORD, Operations, names_in, operations_of
from modelcc.targets.mcu.timing import Counts, Kind, counted
from modelcc.targets.mcu.walk import LoopWalk, set_in

_CALL: Mapping[Kind, int] = {"several": 2, "registers": 14, "plain": 4, "taken": 2}
"""A call to a function of some size, without its arguments."""

_IN_REGISTERS = 4
"""Arguments that are passed in registers."""

_UNROLLED = 4
"""Iterations of a short loop that compilers unroll."""

_MOVING, _INLINE = 16, 64
"""Overhead in instructions of a library's memory-moving function; and bytes that are moved
inline."""


def step_costs(program: Program, model: McuModel) -> dict[int, Counts]:
    """Approximate counts of instructions executed by each step on a processor."""
    walk = _Instructions(operations=operations_of(model), model=model)
    return {n: walk.step(step, program, {}) for n, step in enumerate(program.steps)}


def step_products(program: Program) -> dict[int, int]:
    """Multiply-adds of each step."""
    walk = _Products()
    counted = (walk.step(step, program, {}) for step in program.steps)
    return {n: counts["multiply"] for n, counts in enumerate(counted)}


@dataclass
class _Products(LoopWalk):
    """Multiply-adds only."""

    def own(self, s: Stmt, seen: set[object], varying: frozenset[str] | None) -> Counts:
        every = (e for outer in statement_expressions(s) for e in walk(outer))
        return +counted(multiply=sum(map(_is_product, every)))


def _is_product(e: Expr) -> bool:
    if isinstance(e, MulAdd):
        return True
    if not isinstance(e, ScalarCall) or e.function != "add":
        return False
    return any(isinstance(a, ScalarCall) and a.function == "mul" for a in e.args)


@dataclass(kw_only=True)
class _Instructions(LoopWalk):
    """Instructions by kind."""

    operations: Operations
    model: McuModel

    def external(self, call: ExternalCall) -> Counts | None:
        return call_counts(call, self.model)

    def prepared(self, body: Sequence[Stmt]) -> Sequence[Stmt]:
        return _forwarded(body)

    def own(self, s: Stmt, seen: set[object], varying: frozenset[str] | None) -> Counts:
        if isinstance(s, For):
            return Counter()
        total = Counter[Kind]()
        for e in statement_expressions(s):
            total += self.operations.of(e, seen, varying)
        for index in statement_indices(s):
            buffer = s.buffer if isinstance(s, Store) else ""
            total += self.operations.address(buffer, index, seen, varying)
        if isinstance(s, Store):
            wide = s.value.dtype.bytes > WORD
            total["pair" if wide else "store"] += 1
            word = _moved_word(s)
            if word in seen:
                return Counter()
            seen.add(word)
        return total

    def once(self, loop: For) -> Counts:
        """Loop-invariant parts of expressions, and the loop's setup."""
        seen, varying, total = set[object](), set_in(loop), counted(plain=2)
        for s in loop.body:
            for e in statement_expressions(s):
                for part in _constant_parts(e, varying):
                    total += self.operations.of(part, seen, None)
        return total

    def turn(self, loop: For, trips: int) -> Counts:
        short = len(loop.body) == 1 and not isinstance(loop.body[0], For)
        if loop.kind == "unrolled" or (trips <= _UNROLLED and short):
            return Counter()
        return counted(plain=2, taken=1)

    def call(self, arguments: int) -> Counts:
        on_stack = max(0, arguments - _IN_REGISTERS)
        found = Counter[Kind](_CALL)
        found.update(plain=arguments, store=on_stack, load=on_stack)
        return found

    def routine_call(self, s: RoutineCall) -> Counts:
        """Short routines with an implementation are inlined."""
        text = self._text(s.routine)
        return super().routine_call(s) if text is None or text.alone else Counter()

    def moved(self, size: int, read: bool, known: bool) -> Counts:
        moves, sides = -(-size // WORD), 2 if read else 1
        found = counted(load=moves * (sides - 1), store=moves)
        if known and size <= _INLINE:
            return found
        found.update(plain=_MOVING + moves, taken=2 + moves // 8)
        return found

    def _text(self, routine: Function) -> RoutineText | None:
        there = {*self.model.features}
        own = (t for t in texts_of(routine) if t.architecture == self.model.architecture)
        return next((t for t in own if t.inner and there >= {*t.features}), None)

    def body(self, function: Function, env: Mapping[str, int]) -> Counts:
        text = self._text(function)
        if text is None:
            return super().body(function, env)
        times, total = evaluate(text.times, env), Counter[Kind]()
        for line in text.inner:
            name, _, operands = line.partition(" ")
            for kind, count in kind_of(name, operands, self.model.architecture):
                total[kind] += times * count
        sums = function.parameters[-1].buffer.size
        moved = sums if isinstance(sums, int) else 0
        total += counted(load=moved, store=moved, plain=6 + times // 2, taken=times // 4)
        return total


def _forwarded(body: Sequence[Stmt]) -> Sequence[Stmt]:
    """The body with values that are only loaded to be stored substituted into their stores."""
    loads = {s.name: s.value for s in body if isinstance(s, Let) and isinstance(s.value, Load)}
    stored = [s.value.name for s in body if isinstance(s, Store) and isinstance(s.value, Var)]
    used = Counter(
        n for s in statements(body) for e in statement_expressions(s) for n in names_in(e)
    )
    only = {name for name in stored if name in loads and used[name] == 1}
    kept = [s for s in body if not (isinstance(s, Let) and s.name in only)]
    return [
        replace(s, value=loads[s.value.name])
        if isinstance(s, Store) and isinstance(s.value, Var) and s.value.name in only
        else s
        for s in kept
    ]


def _moved_word(s: Store) -> object:
    """A key of stores that move parts of one word: compilers merge them."""
    value, offset = s.value, s.offset
    if not isinstance(value, Load | Const) or value.dtype.bytes >= WORD:
        return s
    number = offset if isinstance(offset, int) else offset.const
    place = number * value.dtype.bytes // WORD
    read = value.buffer if isinstance(value, Load) else value.value
    return s.buffer, offset - number, place, read


def _constant_parts(e: Expr, varying: frozenset[str]) -> Iterator[Expr]:
    """The largest parts of an expression that depend on none of the names."""
    if varying.isdisjoint(names_in(e)):
        yield e
    else:
        for operand in operands(e):
            yield from _constant_parts(operand, varying)
