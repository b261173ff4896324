"""Uses of index expressions in a stage, with their context."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from modelcc.ir.index import Index
from modelcc.ir.scalar_tree import children
from modelcc.ir.tensor import Bind, Condition, Guard, IndexValue, Linear, Read, Scalar, Stage


@dataclass(frozen=True)
class Use:
    """Index expressions of one read (``tensor`` None: of a number), with their context."""

    tensor: str | None
    indices: tuple[Index, ...]
    conditions: tuple[Condition, ...] = ()
    gathered: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Its text form."""
        inner = ", ".join(map(str, self.indices))
        return f"index({inner})" if self.tensor is None else f"%{self.tensor}[{inner}]"


def uses(stage: Stage) -> tuple[Use, ...]:
    """Every use of index expressions in the body of ``stage``; a guard is one without indices."""
    return tuple(_uses(stage.body, (), ()))


def _uses(
    scalar: Scalar, conditions: tuple[Condition, ...], gathered: tuple[str, ...]
) -> Iterator[Use]:
    match scalar:
        case Read(tensor, indices):
            yield Use(tensor, indices, conditions, gathered)
        case IndexValue(index):
            yield Use(None, (index,), conditions, gathered)
        case Linear(_, row, args):
            yield Use(None, (row,), conditions, gathered)
            for arg in args:
                yield from _uses(arg, conditions, gathered)
        case Guard(tests, inside, outside):
            yield Use(None, (), (*conditions, *tests), gathered)
            yield from _uses(inside, (*conditions, *tests), gathered)
            yield from _uses(outside, conditions, gathered)
        case Bind(symbol, value, body, _, bound):
            if bound is not None:
                yield Use(None, (bound.extent,), conditions, gathered)
            yield from _uses(value, conditions, gathered)
            yield from _uses(body, conditions, (*gathered, symbol))
        case _:
            for child in children(scalar):
                yield from _uses(child, conditions, gathered)
