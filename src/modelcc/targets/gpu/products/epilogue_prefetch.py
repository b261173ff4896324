"""Prefetching the operands of a product's epilogue, before the sums are complete.

A thread finishes its sums in rounds.  Loads of a round whose addresses need only indices depend on
no sum::

    round 0        index r, c; x = load bias[c]; v = load slab[r, c]; store y[r, c] = v + x
    prefetched     index r, c; x = load bias[c]
    the rest       v = load slab[r, c]; store y[r, c] = v + x

They may be issued as far ahead of the sums as registers allow.  Whatever uses a loaded value stays
in its round: there a thread waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from modelcc.ir.index import Index, Sym, minimum
from modelcc.ir.loop import (
    Assign,
    BindIndex,
    Const,
    Expr,
    For,
    IndexOf,
    Let,
    Load,
    Register,
    Stmt,
    Store,
    Var,
    VectorGather,
    VectorScatter,
)
from modelcc.ir.loop_traversal import names_used, statements, walk
from modelcc.ir.types import I64
from modelcc.targets.gpu.evaluation import Evaluation

REGISTER_BYTES = 4

PLACE_REGISTERS = 2
"""Registers of an address that is at no constant distance from another one."""


@dataclass(frozen=True)
class Room:
    """Registers of a thread for operands: while it holds all sums, and once these are in memory."""

    first: int
    later: int


@dataclass(frozen=True)
class Early:
    """Statements of all rounds: those ``before`` the sums are complete, those ``between`` storing
    the sums and the barrier, and the ``rest``."""

    before: tuple[Stmt, ...]
    between: tuple[Stmt, ...]
    rest: tuple[Stmt, ...]


@dataclass(frozen=True)
class Asked:
    """A round: the statements that load its operands, and the indices of these; and all others."""

    operands: tuple[Stmt, ...]
    rest: tuple[Stmt, ...]

    @property
    def loads(self) -> tuple[Let, ...]:
        """The prefetched operands."""
        return tuple(s for s in self.operands if isinstance(s, Let))

    def varies(self, number: str) -> bool:
        """Whether operands depend on the ``number`` of the round."""
        return number in names_used(self.operands)


@dataclass
class SharedIndices(Evaluation):
    """An evaluation that binds equal indices to one name, shared with others through ``known``."""

    known: dict[Index, Index] = field(default_factory=dict[Index, Index])

    def bind(self, stem: str, index: Index) -> Index:
        """``index`` under its name."""
        if index not in self.known:
            self.known[index] = super().bind(stem, index)
        return self.known[index]


def ask(rounds: Sequence[Sequence[Stmt]], sums: str) -> tuple[Asked, ...]:
    """What each of these consecutive rounds prefetches that no earlier one has; they read the
    memory ``sums``, and what they write."""
    every = [s for body in rounds for s in body]
    written = {s.buffer for s in statements(every) if isinstance(s, Store | VectorScatter)}
    first, later = dict[Expr, str](), set[str]()
    loads, found = list[Let](), list[tuple[list[Stmt], list[Stmt]]]()
    for body in rounds:
        own, rest = list[Stmt](), list[Stmt]()
        for s in body:
            free = later.isdisjoint(names_used([s]))
            if isinstance(s, BindIndex) and free and not _reads(s.value):
                own.append(s)
                continue
            later.update((s.name,) if isinstance(s, Let | Register) else ())
            later.update((s.symbol,) if isinstance(s, BindIndex) else ())
            if not free or not isinstance(s, Let) or not _is_operand(s.value, {sums, *written}):
                rest.append(s)
            elif s.value in first:
                dtype, lanes = s.value.dtype, s.value.lanes
                rest.append(Let(s.name, Var(first[s.value], dtype, lanes)))
            else:
                first[s.value] = s.name
                loads.append(s)
                own.append(s)
        found.append((own, rest))
    needed = _needed(loads, [s for own, _ in found for s in own])
    return tuple(_asked(own, rest, needed) for own, rest in found)


def _reads(value: Expr) -> bool:
    return any(isinstance(e, Load | VectorGather) for e in walk(value))


def _is_operand(value: Expr, others: set[str]) -> bool:
    """Whether ``value`` is loaded by indices alone, from no memory of ``others``."""
    if not isinstance(value, Load | VectorGather) or value.buffer in others:
        return False
    return not isinstance(value, VectorGather) or not _reads(value.offsets)


def _needed(loads: Sequence[Let], found: Sequence[Stmt]) -> set[str]:
    """Symbols that ``loads`` depend on."""
    needed = set(names_used(loads))
    for s in reversed(found):
        if isinstance(s, BindIndex) and s.symbol in needed:
            needed.update(names_used([s]))
    return needed


def _asked(own: Sequence[Stmt], rest: Sequence[Stmt], needed: set[str]) -> Asked:
    """A round whose indices are computed with its loads only if these need them."""
    early = [s for s in own if not isinstance(s, BindIndex) or s.symbol in needed]
    late = [s for s in own if isinstance(s, BindIndex) and s.symbol not in needed]
    return Asked(tuple(early), (*late, *rest))


# --- unrolled rounds


def one_after_the_other(rounds: Sequence[Asked], room: Room) -> Early:
    """All ``rounds``, each operand of which is prefetched as early as there is ``room``."""
    last = _last_uses(rounds)
    waiting = [one for number, asked in enumerate(rounds) for one in _pieces(number, asked)]
    held: dict[str, int] = {}
    places = set[Index]()

    def taken(room: int, due: int) -> list[Stmt]:
        """What comes next while there is room, and what is ``due`` in a round."""
        found = list[Stmt]()
        while waiting:
            number, own = waiting[0]
            further = places | set(_places(own))
            size = sum(held.values()) + _registers(own) + len(further) * PLACE_REGISTERS
            if number > due and size > room:
                break
            waiting.pop(0)
            places.update(further)
            found += own
            held.update((s.name, _registers([s])) for s in own if isinstance(s, Let))
        return found

    before, between, rest = taken(room.first, -1), taken(room.later, 0), list[Stmt]()
    for number, one in enumerate(rounds):
        rest += [*taken(room.later, number), *one.rest]
        for name in [name for name in held if last[name] <= number]:
            del held[name]
    return Early(tuple(before), tuple(between), tuple(rest))


def _pieces(number: int, asked: Asked) -> Iterator[tuple[int, list[Stmt]]]:
    """Each operand of a round ``number`` with the indices that it depends on."""
    piece = list[Stmt]()
    for s in asked.operands:
        piece.append(s)
        if isinstance(s, Let):
            yield number, piece
            piece = []
    if piece:
        yield number, piece


def _last_uses(rounds: Sequence[Asked]) -> dict[str, int]:
    """The last round that uses each operand."""
    last = {s.name: number for number, one in enumerate(rounds) for s in one.loads}
    for number, one in enumerate(rounds):
        last.update((name, number) for name in names_used(one.rest) if name in last)
    return last


def _places(body: Sequence[Stmt]) -> Iterator[Index]:
    """Indices, without added constants."""
    for s in body:
        index = s.value.index if isinstance(s, BindIndex) and isinstance(s.value, IndexOf) else 0
        if isinstance(index, int):
            continue
        atoms = (atom for _, factors in index.terms.values() for atom in factors)
        if not all(isinstance(atom, Sym) for atom in atoms):
            yield index - index.const


def _registers(body: Sequence[Stmt]) -> int:
    """Registers of the operands."""
    sizes = (s.value.lanes * s.value.dtype.bytes for s in body if isinstance(s, Let))
    return sum(-(-size // REGISTER_BYTES) for size in sizes)


# --- rounds of a loop


def in_a_loop(number: str, count: int, once: Asked, room: Room) -> Early:
    """``count`` rounds ``number`` that have all operands in common."""
    loop = (For(number, 0, count, once.rest),)
    if _registers(once.operands) <= room.first:
        return Early(once.operands, (), loop)
    return Early((), once.operands, loop)


def one_ahead(
    number: str, count: int, asked_at: Callable[[str], Asked], fresh: Callable[[str], str],
    room: Room,
) -> Early:  # fmt: skip
    """``count`` rounds ``number``, each of which loads the operands of the next one before its own
    work (the last one loads its own again): ``asked_at`` gives those of a round by its number's
    name."""
    zero, further = fresh(number), fresh(number)
    first, own, next_one = asked_at(zero), asked_at(number), asked_at(further)
    last = minimum(Sym(number) + 1, count - 1)
    before = (BindIndex(zero, IndexOf(0, I64)), *first.operands)
    kept, begin, end = list[Stmt](), list[Stmt](), list[Stmt]()
    for now, mine, then in zip(first.loads, own.loads, next_one.loads, strict=True):
        name, dtype, lanes = fresh("next"), mine.value.dtype, mine.value.lanes
        begin.append(Register(name, Var(now.name, dtype, lanes)))
        kept.append(Let(mine.name, Var(name, dtype, lanes)))
        end.append(Assign(name, Var(then.name, dtype, lanes)))
    kept += [s for s in own.operands if not isinstance(s, Let)]
    ask = (BindIndex(further, IndexOf(last, I64)), *next_one.operands)
    loop = For(number, 0, count, (*kept, *ask, *own.rest, *end))
    if _registers(first.operands) <= room.first:
        return Early(before, (), (*begin, loop))
    return Early((), before, (*begin, loop))


# --- a round where a condition holds


@dataclass(frozen=True)
class Conditional:
    """A round under a condition: ``registers`` for its operands, the loads that are ``asked`` if
    the condition holds, and, under the same condition again, the ``rest``."""

    registers: tuple[Stmt, ...]
    asked: tuple[Stmt, ...]
    rest: tuple[Stmt, ...]


def in_registers(once: Asked, fresh: Callable[[str], str]) -> Conditional:
    """The round ``once``, whose indices are computed under both conditions."""
    registers, asked, kept = list[Stmt](), list[Stmt](), list[Stmt]()
    for s in once.operands:
        if not isinstance(s, Let):
            asked.append(s)
            kept.append(s)
            continue
        name, dtype, lanes = fresh("asked"), s.value.dtype, s.value.lanes
        registers.append(Register(name, Const(0, dtype, lanes)))
        asked.append(Assign(name, s.value))
        kept.append(Let(s.name, Var(name, dtype, lanes)))
    return Conditional(tuple(registers), tuple(asked), (*kept, *once.rest))
