"""Walking the scalar expressions of the tensor level."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from modelcc.ir.index import Index
from modelcc.ir.tensor import (
    Apply,
    Bind,
    Cast,
    Condition,
    Guard,
    IndexValue,
    Number,
    Read,
    Scalar,
    Select,
    Stage,
)


def operands(scalar: Scalar) -> tuple[Scalar, ...]:
    """The scalar expressions directly inside ``scalar``."""
    match scalar:
        case Number() | IndexValue() | Read():
            return ()
        case Apply(_, args):
            return args
        case Select(condition, then, other):
            return condition, then, other
        case Cast(value):
            return (value,)
        case Guard(_, inside, outside):
            return inside, outside
        case Bind(_, value, body):
            return value, body


def reads(scalar: Scalar) -> dict[str, None]:
    """Names of the tensors that ``scalar`` reads, in order of appearance."""
    if isinstance(scalar, Read):
        return {scalar.tensor: None}
    found: dict[str, None] = {}
    for operand in operands(scalar):
        found |= reads(operand)
    return found


@dataclass(frozen=True)
class Use:
    """Index expressions of one read (``tensor`` None: of a number) and what surrounds them."""

    tensor: str | None
    indices: tuple[Index, ...]
    conditions: tuple[Condition, ...] = ()
    gathered: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """As it stands in text form."""
        inner = ", ".join(map(str, self.indices))
        return f"index({inner})" if self.tensor is None else f"%{self.tensor}[{inner}]"


def uses(stage: Stage) -> tuple[Use, ...]:
    """Every place where the body of ``stage`` uses index expressions, guards outside only too."""
    return tuple(_uses(stage.body, (), ()))


def _uses(
    scalar: Scalar, conditions: tuple[Condition, ...], gathered: tuple[str, ...]
) -> Iterator[Use]:
    match scalar:
        case Read(tensor, indices):
            yield Use(tensor, indices, conditions, gathered)
        case IndexValue(index):
            yield Use(None, (index,), conditions, gathered)
        case Guard(tests, inside, outside):
            yield Use(None, (), (*conditions, *tests), gathered)
            yield from _uses(inside, (*conditions, *tests), gathered)
            yield from _uses(outside, conditions, gathered)
        case Bind(symbol, value, body):
            yield from _uses(value, conditions, gathered)
            yield from _uses(body, conditions, (*gathered, symbol))
        case _:
            for operand in operands(scalar):
                yield from _uses(operand, conditions, gathered)
