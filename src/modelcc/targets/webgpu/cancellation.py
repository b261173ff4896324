"""Which arithmetic compilers of shaders might take away, though its result is another one.

WGSL lets them assume that nothing is infinite or NaN and that sums do not round, so ``x - x`` may
become 0, ``(x + y) - x`` y, ``x / x`` 1, ``sqrt(x) * sqrt(x)`` a magnitude, and ``1 / (1 / x)`` x.
All of these meet a value twice, or undo a quotient or a constant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.loop import (
    Assign,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    MulAdd,
    Reduce,
    Register,
    ScalarCall,
    Select,
    Shuffle,
    Splat,
    Stmt,
    Var,
    VectorGather,
    While,
)
from modelcc.ir.loop_traversal import operands, statement_expressions, statements
from modelcc.ir.types import F32
from modelcc.targets.webgpu.arithmetic import COMPARE


@dataclass(frozen=True)
class _Origin:
    """The values that a float is made of, whether by a quotient or a root (``inverse``), and
    whether a constant was added last (``moved``)."""

    values: frozenset[Expr] = frozenset()
    inverse: bool = False
    moved: bool = False

    def __or__(self, other: _Origin) -> _Origin:
        inverse, moved = self.inverse or other.inverse, self.moved or other.moved
        return _Origin(self.values | other.values, inverse, moved)


_MOST_VALUES = 32
"""Of which an origin tells; what is made of more is a value of its own."""


def cancelled(body: Sequence[Stmt]) -> frozenset[Expr]:
    """The calls of ``body`` on f32 whose last operand is to be hidden from compilers."""
    finder = _OriginFinder()
    finder.block(body)
    return frozenset(finder.found)


class _OriginFinder:
    """Follows values through names, in the order in which statements run."""

    def __init__(self) -> None:
        self.found: set[Expr] = set()
        self._named: dict[str, _Origin] = {}

    def block(self, body: Sequence[Stmt]) -> None:
        """What statements do to names, and the calls in them."""
        for s in body:
            for e in statement_expressions(s):
                self._origin(e)
            match s:
                case Let(name, value) | Register(name, value) | Assign(name, value):
                    self._named[name] = self._origin(value)
                case For() | While():
                    self._forget(s.body)
                    self.block(s.body)
                    self._forget(s.body)
                case If():
                    self._either(s)
                case _:
                    pass

    def _forget(self, body: Sequence[Stmt]) -> None:
        """Registers that a loop assigns are values of their own in it and behind it."""
        for s in statements(body):
            if isinstance(s, Assign):
                self._named.pop(s.name, None)

    def _either(self, s: If) -> None:
        before = dict(self._named)
        self.block(s.then)
        then, self._named = self._named, before
        self.block(s.other)
        for name in self._named.keys() & then.keys():
            self._named[name] |= then[name]

    def _origin(self, e: Expr) -> _Origin:
        found = self._made(e)
        return _Origin(frozenset([e])) if len(found.values) > _MOST_VALUES else found

    def _made(self, e: Expr) -> _Origin:
        match e:
            case Var():
                return self._named.get(e.name, _Origin(frozenset([e])))
            case Load() | VectorGather():
                return _Origin(frozenset([e]))
            case Splat() | Reduce():
                return self._origin(e.value)
            case Shuffle():
                return self._origin(e.a) | self._origin(e.b)
            case Select():
                self._origin(e.condition)
                return self._origin(e.then) | self._origin(e.other)
            case MulAdd():
                parts = [self._origin(x) for x in (e.a, e.b, e.c)]
                return replace(_all(parts), moved=False)
            case ScalarCall():
                return self._called(e)
            case _:
                for inner in operands(e):
                    self._origin(inner)
                return _Origin()

    def _called(self, e: ScalarCall) -> _Origin:
        parts = [self._origin(x) for x in e.args]
        if e.args[0].dtype != F32:
            return _Origin()
        if _undoes(e, parts):
            self.found.add(e)
        if e.function in COMPARE:
            return _Origin()
        inverse = e.function in _INVERSE
        moved = e.function in _SUMS and any(isinstance(x, Const) for x in e.args)
        whole = _all(parts)
        return _Origin(whole.values, whole.inverse or inverse, moved)


def _undoes(e: ScalarCall, parts: Sequence[_Origin]) -> bool:
    """Whether a call may be undone, or take away what it is given."""
    inverse = parts[-1].inverse
    if len(parts) == 1:
        return e.function in _INVERSE and inverse
    first, second = parts
    meets = bool(first.values & second.values)
    match e.function:
        case "mul":
            return meets and (first.inverse or inverse)
        case "div":
            return meets or inverse
        case "add" | "sub":
            moves = any(isinstance(x, Const) for x in e.args)
            return meets or (moves and (first.moved or second.moved))
        case _:
            return meets and e.function in COMPARE


_SUMS = ("add", "sub")
_INVERSE = ("div", "reciprocal", "rsqrt", "sqrt")


def _all(parts: Iterable[_Origin]) -> _Origin:
    whole = _Origin()
    for part in parts:
        whole |= part
    return whole
