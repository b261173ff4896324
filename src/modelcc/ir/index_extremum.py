"""Minimum and maximum of index expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from modelcc.ir.index_expr import Atom, Expr, Index


class Extremum(Atom):
    """The least or the greatest of at least two values."""

    __slots__ = ("args",)
    __match_args__ = ("args",)
    word: ClassVar[str] = ""

    args: Final[tuple[Index, ...]]

    def __init__(self, args: tuple[Index, ...]) -> None:
        text = f"{self.word}({', '.join(map(str, args))})"
        super().__init__(text, text)
        self.args = args

    def operands(self) -> tuple[Index, ...]:
        return self.args


class IndexMin(Extremum):
    """The least of at least two values; use :func:`minimum` to build."""

    __slots__ = ()
    word = "min"


class IndexMax(Extremum):
    """The greatest of at least two values; use :func:`maximum` to build."""

    __slots__ = ()
    word = "max"


def minimum(*args: Index) -> Index:
    """The least of ``args`` (at least one)."""
    kept = _pruned(args, IndexMin, 1)
    return kept[0] if len(kept) == 1 else IndexMin(kept)


def maximum(*args: Index) -> Index:
    """The greatest of ``args`` (at least one)."""
    kept = _pruned(args, IndexMax, -1)
    return kept[0] if len(kept) == 1 else IndexMax(kept)


def broadcast_extent(extents: Sequence[Index]) -> Index:
    """The broadcast of ``extents``, each of which is 1 or the same value: 0 if one is 0.

    >>> from modelcc.ir.index import Sym
    >>> str(broadcast_extent((Sym("a"), Sym("b"))))
    'max(a, b)*min(a, b, 1)'
    """
    return maximum(*extents) * minimum(1, *extents)


def broadcast_parts(e: Index) -> tuple[Index, ...] | None:
    """The arguments of :func:`broadcast_extent` that give ``e``, or of the maximum to which it
    simplifies if none can be 0; None for other expressions, such as max(a - b, 0)."""
    if isinstance(e, int):
        return None
    greatest = [a for _, mono in e.terms.values() for a in mono if isinstance(a, IndexMax)]
    if len(greatest) != 1 or any(isinstance(a, int) for a in greatest[0].args):
        return None
    (found,) = greatest
    return found.args if e in (found, broadcast_extent(found.args)) else None


def _within(arg: Index, kind: type[Extremum]) -> tuple[Index, ...] | None:
    """Arguments of the extremum that ``arg`` is, up to a constant: max(a, b) + 1 has a + 1 and
    b + 1."""
    match arg:
        case Extremum(args) if isinstance(arg, kind):
            return args
        case Expr() if len(arg.terms) == 1:
            ((factor, factors),) = arg.terms.values()
            if factor == 1 and len(factors) == 1 and isinstance(factors[0], kind):
                return tuple(part + arg.const for part in factors[0].args)
        case _:
            pass
    return None


def _pruned(args: tuple[Index, ...], kind: type[Extremum], sign: int) -> tuple[Index, ...]:
    """Flattened, sorted arguments; of those with a constant distance only the extreme one."""
    if not args:
        raise ValueError(f"{kind.word}() needs at least one argument")
    kept: list[Index] = []
    pending = list(args)
    while pending:
        arg = pending.pop()
        inner = _within(arg, kind)
        if inner is not None:
            pending.extend(inner)
            continue
        for position, other in enumerate(kept):
            distance = arg - other
            if isinstance(distance, int):
                kept[position] = other if distance * sign >= 0 else arg
                break
        else:
            kept.append(arg)
    return tuple(sorted(kept, key=lambda e: (isinstance(e, int), str(e))))
