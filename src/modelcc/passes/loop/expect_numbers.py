"""Speculates that NaN-propagating extremes meet no NaN, and recomputes them where they did.

    register %acc0 = f32x16(-inf)
    unrolled t in 0 .. 3 {
      let %x0 = load %x[16*t] x16
      %acc0 = maximum(%acc0, %x0)
    }

becomes::

    register %acc0 = f32x16(-inf)
    register %odd0 = boolx16(false)
    unrolled t in 0 .. 3 {
      let %x0 = load %x[16*t] x16
      %odd0 = or(%odd0, isnan(%x0))
      %acc0 = max(%acc0, %x0)
    }
    if rare reduce[or](%odd0) {
      %acc0 = f32x16(-inf)
      unrolled t in 0 .. 3 {
        …                                        // as it was
      }
    }

One unordered comparison tests two vectors for NaN at once, so an element costs half a comparison,
however many extremes use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from modelcc.ir.loop import (
    Assign,
    Comment,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Reduce,
    Register,
    ScalarCall,
    Stmt,
    Var,
)
from modelcc.ir.loop_traversal import (
    blocks,
    map_blocks,
    mentions,
    names_used,
    statement_expressions,
    statements,
    walk,
)
from modelcc.ir.scalar import MAY_LOSE_NAN
from modelcc.ir.types import BOOL


def expect_numbers(function: Function) -> Function:
    """``function`` with its runs of extremes duplicated, the second for NaN."""
    if not mentions(function.body, _keeps_nan):
        return function
    return replace(function, body=_Expectation(_names(function)).block(function.body))


def _keeps_nan(e: Expr) -> bool:
    return isinstance(e, ScalarCall) and e.function in MAY_LOSE_NAN


def _names(function: Function) -> set[str]:
    declared = (s for s in statements(function.body) if isinstance(s, Let | Register))
    return {*names_used(function.body), *(s.name for s in declared)}


@dataclass
class _Expectation:
    taken: set[str]

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """The statements of a block and of its inner blocks."""
        result: list[Stmt] = []
        starts: dict[str, Const] = {}
        waiting = list(body)
        while waiting:
            run = _run(waiting, starts)
            if _count(run) > 1:
                result += self._twice(run, starts)
                del waiting[: len(run)]
                continue
            s = waiting.pop(0)
            if isinstance(s, Register) and isinstance(s.value, Const):
                starts[s.name] = s.value
            for changed in _assigned(s):
                starts.pop(changed, None)
            result.append(map_blocks(s, self.block))
        return tuple(result)

    def _twice(self, run: Sequence[Stmt], starts: dict[str, Const]) -> list[Stmt]:
        own = {name: starts.pop(name) for s in run for name in _assigned(s) if name in starts}
        quick = _Quick(self)
        first = quick.block(run)
        found = [Var(name, BOOL, lanes) for lanes, name in quick.odd.items()]
        declared = [Register(v.name, Const(False, BOOL, v.lanes)) for v in found]
        condition, *more = (v if v.lanes == 1 else Reduce("or", v) for v in found)
        for other in more:
            condition = ScalarCall("or", (condition, other), BOOL)
        # Names of this block stay defined.
        again = (s for s in run if not isinstance(s, Let))
        afresh = (Assign(name, value) for name, value in own.items())
        return [*declared, *first, If(condition, (*afresh, *again), rare=True)]

    def fresh(self, stem: str) -> str:
        number = 0
        while f"{stem}{number}" in self.taken:
            number += 1
        self.taken.add(f"{stem}{number}")
        return f"{stem}{number}"


@dataclass
class _Quick:
    """Extremes that may lose NaN, which ``odd`` registers of equal lanes record."""

    names: _Expectation
    odd: dict[int, str] = field(default_factory=dict[int, str])

    def block(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        result: list[Stmt] = []
        seen: set[Expr] = set()
        for s in body:
            if isinstance(s, Assign):
                result += self._assign(s, seen)
            else:
                result.append(map_blocks(s, self.block))
        return tuple(result)

    def _assign(self, s: Assign, seen: set[Expr]) -> list[Stmt]:
        assert isinstance(s.value, ScalarCall)
        before, value = s.value.args
        result: list[Stmt] = []
        if not isinstance(value, Var):
            name = self.names.fresh("own")
            result.append(Let(name, value))
            value = Var(name, value.dtype, value.lanes)
        if value not in seen:
            seen.add(value)
            result.append(self._note(value))
        plain = replace(s.value, function=MAY_LOSE_NAN[s.value.function], args=(before, value))
        return [*result, Assign(s.name, plain)]

    def _note(self, value: Expr) -> Assign:
        lanes = value.lanes
        name = self.odd.get(lanes)
        if name is None:
            name = self.odd[lanes] = self.names.fresh("odd")
        found = ScalarCall("isnan", (value,), BOOL, lanes)
        return Assign(name, ScalarCall("or", (Var(name, BOOL, lanes), found), BOOL, lanes))


def _run(body: Sequence[Stmt], starts: Mapping[str, Const]) -> list[Stmt]:
    """The longest prefix whose only effects are NaN-propagating extremes in registers of
    ``starts``, without ``Let`` at its end."""
    run: list[Stmt] = []
    for s in body:
        if not _is_pure(s, starts.keys()):
            break
        run.append(s)
    while run and isinstance(run[-1], Let):
        run.pop()
    return run


def _is_pure(s: Stmt, registers: AbstractSet[str]) -> bool:
    match s:
        case Assign(name, ScalarCall(function, (Var(own), value))):
            fits = name == own and name in registers and function in MAY_LOSE_NAN
            return fits and not _reads(value, registers)
        case Let() | Comment():
            return not any(_reads(e, registers) for e in statement_expressions(s))
        case For(kind="serial" | "unrolled") | If():
            inner = [s for block in blocks(s) for s in block]
            mine = not any(_reads(e, registers) for e in statement_expressions(s))
            return mine and all(_is_pure(i, registers) for i in inner)
        case _:
            return False


def _reads(e: Expr, registers: AbstractSet[str]) -> bool:
    return any(isinstance(inner, Var) and inner.name in registers for inner in walk(e))


def _assigned(s: Stmt) -> list[str]:
    return [inner.name for inner in statements([s]) if isinstance(inner, Assign)]


def _count(run: Sequence[Stmt]) -> int:
    """A lower bound of the number of extremes executed, including iterations of loops."""
    total = 0
    for s in run:
        if isinstance(s, Assign):
            total += 1
        elif isinstance(s, For):
            times = s.stop - s.start if isinstance(s.start, int) and isinstance(s.stop, int) else 2
            total += times * _count(s.body)
        else:
            total += sum(map(_count, blocks(s)))
    return total
