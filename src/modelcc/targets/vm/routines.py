"""Bounds of the accesses of routines to their arguments, by their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from modelcc.ir.condition import Condition
from modelcc.ir.index import Index, Sym, minimum, substitute, symbols
from modelcc.ir.loop import (
    Alloc,
    BindIndex,
    Expr,
    For,
    Function,
    If,
    IndexOf,
    Load,
    Predicate,
    RoutineCall,
    Stmt,
    Store,
)
from modelcc.ir.loop_traversal import (
    blocks,
    indices,
    statement_expressions,
    statement_indices,
    walk,
)
from modelcc.targets.vm.hull import (
    Hull,
    Known,
    NoHullError,
    divisors,
    hull,
    loop_hull,
    magnitudes,
    shifted,
)


@dataclass(frozen=True)
class Need:
    """The requirement that ``place`` is in ``buffer``, if the conditions ``when`` hold; ``last``:
    it is the maximum index of an access, else the minimum."""

    buffer: str
    place: Index
    last: bool
    when: tuple[Condition, ...] = ()

    @property
    def kind(self) -> tuple[object, ...]:
        """A key of needs of which one implies the others."""
        number = self.place if isinstance(self.place, int) else self.place.const
        return self.buffer, self.place - number, self.last, self.when

    def implies(self, other: Need) -> bool:
        """For needs of the same kind: whether this one implies ``other``."""
        rest = self.place - other.place
        return isinstance(rest, int) and (rest >= 0 if self.last else rest <= 0)


def strongest(needs: Sequence[Need]) -> tuple[Need, ...]:
    """A subset of ``needs`` that implies all of them."""
    found: dict[tuple[object, ...], Need] = {}
    for need in needs:
        old = found.get(need.kind)
        if old is None or need.implies(old):
            found[need.kind] = need
    return tuple(found.values())


@dataclass
class RoutineUse:
    """A routine's needs, the expressions that must be small, and its divisors."""

    needs: list[Need] = field(default_factory=list[Need])
    small: list[Index] = field(default_factory=list[Index])
    divided: list[Index] = field(default_factory=list[Index])


@cache
def needs_of(routine: Function) -> tuple[Need, ...]:
    """The needs of ``routine``, as expressions of its sizes."""
    return strongest(use_of(routine, {}).needs)


def use_of(routine: Function, known: Known) -> RoutineUse:
    """The use of ``routine`` if its sizes are in the ranges ``known``."""
    walk_ = _RoutineWalk(RoutineUse(), {p.buffer.name for p in routine.parameters}, {})
    walk_.block(routine.body, dict(known), ())
    return walk_.use


@dataclass
class _RoutineWalk:
    use: RoutineUse
    given: set[str]
    local: dict[str, Index]
    guards: list[tuple[Index, Index]] = field(default_factory=list[tuple[Index, Index]])
    """Pairs of expressions, the first of which is less than the second here."""

    def block(
        self, body: Sequence[Stmt], known: dict[str, Hull], when: tuple[Condition, ...]
    ) -> None:
        known = dict(known)
        for s in body:
            self._statement(s, known, when)
            if isinstance(s, BindIndex):
                if not isinstance(s.value, IndexOf):
                    raise NoHullError("routines that read indices from memory")
                known[s.symbol] = hull(s.value.index, known)

    def _statement(self, s: Stmt, known: dict[str, Hull], when: tuple[Condition, ...]) -> None:
        expressions = [e for outer in statement_expressions(s) for e in walk(outer)]
        self._indices(s, expressions, known)
        for e in expressions:
            if isinstance(e, Load):
                self._access(e.buffer, self._place(e.offset, known), when)
        match s:
            case Store():
                self._access(s.buffer, self._place(s.offset, known), when)
            case Alloc(buffer):
                self.local[buffer.name] = buffer.size
            case RoutineCall():
                self._call(s, known, when)
            case For():
                names = symbols(s.start) | symbols(s.stop)
                open_ = () if names & known.keys() else (Condition(s.start, "<", s.stop),)
                inner = {**known, s.variable: loop_hull(s, known)}
                self.block(s.body, inner, (*when, *open_))
                return
            case If(condition=Predicate(conditions)):
                guards = len(self.guards)
                self.guards += (lower for c in conditions for lower in _less(c))
                self.block(s.then, known, when)
                del self.guards[guards:]
                self.block(s.other, known, when)
                return
            case _:
                pass
        for inner_block in blocks(s):
            self.block(inner_block, known, when)

    def _indices(self, s: Stmt, expressions: Sequence[Expr], known: Known) -> None:
        found = [*statement_indices(s), *(i for e in expressions for i in indices(e))]
        found += [s.stop + s.step - 1] if isinstance(s, For) else []
        for e in (e for e in found if not isinstance(e, Sym)):
            self.use.small += magnitudes(e, known)
            self.use.divided += (hull(d, known).lo for d in divisors(e))

    def _place(self, offset: Index, known: Known) -> Hull:
        """The range of an offset, restricted by the enclosing guards."""
        found = hull(offset, known)
        for less, more in self.guards:
            rest = offset - less
            if isinstance(rest, int):
                found = Hull(found.lo, minimum(found.hi, hull(more, known).hi - 1 + rest))
        return found

    def _access(self, buffer: str, at: Hull, when: tuple[Condition, ...]) -> None:
        if buffer in self.given:
            self.use.needs += (Need(buffer, at.lo, False, when), Need(buffer, at.hi, True, when))
            return
        size = self.local[buffer]
        if not (isinstance(at.lo, int) and isinstance(at.hi, int) and isinstance(size, int)):
            raise NoHullError("own memory of routines at places that are no numbers")
        if at.lo < 0 or at.hi >= size:
            raise NoHullError(f"a routine may leave its own memory {buffer!r}")

    def _call(self, s: RoutineCall, known: Known, when: tuple[Condition, ...]) -> None:
        sizes = {n: hull(e, known) for n, e in zip(s.routine.sizes, s.sizes, strict=True)}
        buffers = {p.buffer.name: a for p, a in zip(s.routine.parameters, s.arguments, strict=True)}
        inner = use_of(s.routine, sizes)
        self.use.small += inner.small
        self.use.divided += inner.divided
        for need in needs_of(s.routine):
            argument = buffers[need.buffer]
            at = shifted(hull(need.place, sizes), hull(argument.offset, known))
            self._access(argument.buffer, at, when)


def _less(c: Condition) -> list[tuple[Index, Index]]:
    """The inequalities of a condition, as pairs (less, greater)."""
    match c.comparison:
        case "<":
            return [(c.left, c.right)]
        case "<=":
            return [(c.left, c.right + 1)]
        case ">":
            return [(c.right, c.left)]
        case ">=":
            return [(c.right, c.left + 1)]
        case _:
            return []


def applied(need: Need, call: RoutineCall) -> Need:
    """The routine's ``need`` in terms of its caller."""
    given = dict(zip(call.routine.sizes, call.sizes, strict=True))
    names = [p.buffer.name for p in call.routine.parameters]
    argument = call.arguments[names.index(need.buffer)]
    when = tuple(
        replace(c, left=substitute(c.left, given), right=substitute(c.right, given))
        for c in need.when
    )
    return Need(argument.buffer, argument.offset + substitute(need.place, given), need.last, when)
