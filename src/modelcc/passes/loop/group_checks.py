"""Checks of indices from memory, which rarely fail: one branch for several of them.

    let %x0 = load %x[2*i]
    let %i0 = select(lt(%x0, i64(0)), add(%x0, i64(8)), %x0)
    check %i0 below [8]
    store %y[2*i] = load %t[%i0]
    let %x1 = load %x[2*i + 1]
    …                                          // the same with %i1

becomes::

    let %x0 = load %x[2*i]
    let %x1 = load %x[2*i + 1]
    register %i0 = %x0
    register %i1 = %x1
    if rare or(ge(bitcast[u64](%i0), u64(8)), ge(bitcast[u64](%i1), u64(8))) {
      assign %i0 = select(lt(%x0, i64(0)), add(%x0, i64(8)), %x0)
      check %i0 below [8]
      …
    }
    store %y[2*i] = load %t[%i0]
    …

Negative indices are rare, too: an index in range needs neither.  The condition may hold without a
failing check, for inactive lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import zip_longest

from modelcc.ir.copies import Prefetch
from modelcc.ir.index import Sym
from modelcc.ir.loop import (
    Alloc,
    Assign,
    BindIndex,
    Bitcast,
    Check,
    Comment,
    Const,
    Convert,
    Expr,
    Function,
    If,
    IndexOf,
    Let,
    Load,
    Reduce,
    Register,
    ScalarCall,
    Select,
    Splat,
    Stmt,
    Store,
    Var,
    VectorGather,
    VectorScatter,
)
from modelcc.ir.loop_traversal import checks_in, map_blocks, names_used, statement_expressions, walk
from modelcc.ir.types import BOOL, I64, U64

MOST = 2
"""Checks of a group.  More would wait for more loads before the first use of an index (on a long
row of indices, 4 at a time took 1.1 times as long)."""


def group_checks(function: Function) -> Function:
    """``function`` with grouped checks, where loads of indices may be hoisted above stores."""
    if not checks_in(function):
        return function
    mutable = frozenset(p.buffer.name for p in function.parameters if p.mutable or p.shared)
    return replace(function, body=_block(function.body, mutable))


@dataclass(frozen=True)
class _Index:
    """An index before and after negative values are wrapped, the statement that names it, and its
    check."""

    raw: Expr
    definition: Let | BindIndex
    check: Check

    @property
    def register(self) -> str:
        """The register of the index."""
        match self.definition:
            case Let(name):
                return name
            case BindIndex(symbol):
                return f"{symbol}.index"

    @property
    def final(self) -> Expr:
        return Var(self.register, I64, self.raw.lanes)

    @property
    def outside(self) -> Expr:
        """Whether any lane of the raw index is outside of the bound."""
        limit: Expr = IndexOf(self.check.extent, I64)
        lanes = self.raw.lanes
        limit = limit if lanes == 1 else Splat(limit, lanes)
        sides = (Bitcast(self.final, U64), Bitcast(limit, U64))
        return ScalarCall("ge", sides, BOOL, lanes)

    def checked(self) -> tuple[Stmt, ...]:
        """The index with negative values wrapped, and its check."""
        value, check = _wide(self.definition.value), replace(self.check, value=self.final)
        return (check,) if value == self.raw else (Assign(self.register, value), check)


@dataclass
class _CheckGroup:
    """Indices that are checked together, and the statements after that."""

    indices: list[_Index] = field(default_factory=list[_Index])
    before: list[Stmt] = field(default_factory=list[Stmt])
    after: list[Stmt] = field(default_factory=list[Stmt])

    def statements(self) -> list[Stmt]:
        if not self.indices:
            return [*self.before, *self.after]
        registers = [Register(i.register, i.raw) for i in self.indices]
        checked = tuple(s for i in self.indices for s in i.checked())
        branch = If(_any([i.outside for i in self.indices]), checked, rare=True)
        bound = [
            BindIndex(i.definition.symbol, i.final)
            for i in self.indices
            if isinstance(i.definition, BindIndex)
        ]
        return [*self.before, *registers, branch, *bound, *self.after]


def _block(body: tuple[Stmt, ...], mutable: frozenset[str]) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    group = _CheckGroup()
    pairs = zip_longest(body, body[1:])
    for s, following in pairs:
        index = _index(s, following)
        if index is not None:
            next(pairs)
            if not _joins(group, index, mutable):
                result += group.statements()
                group = _CheckGroup()
            group.indices.append(index)
            continue
        s = map_blocks(s, lambda inner: _block(inner, mutable))
        group.after.append(s)
        if not isinstance(s, _PASSABLE):
            result += group.statements()
            group = _CheckGroup()
    return (*result, *group.statements())


_PASSABLE = (Let, BindIndex, Store, VectorScatter, Prefetch, Comment, Alloc)
"""Statements above which a load of an index may be hoisted if it does not depend on them."""


def _joins(group: _CheckGroup, index: _Index, mutable: frozenset[str]) -> bool:
    """Whether the dependences of ``index`` are before the checks of ``group``, or were moved
    there."""
    if len(group.indices) >= MOST:
        return False
    needed, moved = set(names_used((Let("", index.raw),))), list[Let]()
    stay: list[Stmt] = []
    for s in reversed(group.after):
        defined = _defined(s)
        if defined is None or defined not in needed:
            stay.append(s)
            continue
        if not isinstance(s, Let) or _reads(s, mutable):
            return False
        moved.append(s)
        needed |= set(names_used((s,)))
    if needed & {i.definition.symbol for i in group.indices if isinstance(i.definition, BindIndex)}:
        return False
    if needed & {i.register for i in group.indices}:
        return False
    group.before += reversed(moved)
    group.after[:] = reversed(stay)
    return True


def _defined(s: Stmt) -> str | None:
    match s:
        case Let(name) | Register(name):
            return name
        case BindIndex(symbol):
            return symbol
        case Alloc(buffer):
            return buffer.name
        case _:
            return None


def _reads(s: Let, mutable: frozenset[str]) -> bool:
    """Whether ``s`` reads memory that the function may write."""
    expressions = (e for outer in statement_expressions(s) for e in walk(outer))
    return any(isinstance(e, Load | VectorGather) and e.buffer in mutable for e in expressions)


def _index(s: Stmt, following: Stmt | None) -> _Index | None:
    """The index that ``s`` names if ``following`` checks it."""
    if not isinstance(following, Check):
        return None
    match s, following.value:
        case Let(name, value), Var(checked) if name == checked:
            pass
        case BindIndex(symbol, value), IndexOf(Sym(checked)) if symbol == checked:
            pass
        case _:
            return None
    return _Index(_wide(_counted(value)), s, following)


def _counted(value: Expr) -> Expr:
    """``value``, or its raw index if negative ones are wrapped."""
    match value:
        case Convert(inner, dtype):
            return Convert(_counted(inner), dtype)
        case Select(ScalarCall("lt", (x, Const(0))), _, other) if x == other:
            return other
        case _:
            return value


def _wide(value: Expr) -> Expr:
    return value if value.dtype == I64 else Convert(value, I64)


def _any(conditions: Sequence[Expr]) -> Expr:
    """Whether any lane of any of ``conditions`` holds."""
    widths = dict.fromkeys(c.lanes for c in conditions)
    folded = [_folded([c for c in conditions if c.lanes == lanes]) for lanes in widths]
    return reduce(_or, folded)


def _folded(conditions: Sequence[Expr]) -> Expr:
    together = reduce(_or, conditions)
    return together if together.lanes == 1 else Reduce("or", together)


def _or(a: Expr, b: Expr) -> Expr:
    return ScalarCall("or", (a, b), BOOL, a.lanes)
