"""Scores without the number that multiplies all of them, which powers are made with anyway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from modelcc.ir.tensor import Apply, Number, Read, Scalar, Select
from modelcc.schedule.nest import Nest


def unscaled(scores: Sequence[Nest], shifted: Scalar) -> tuple[tuple[Nest, ...], float]:
    """``scores``, of which powers are made as ``shifted``, and a positive number: the last one is
    what it was, divided by that.  The largest score of a row stays the largest.

    Nests from the last one back are changed as long as each is a multiple of the one before.
    """
    if not isinstance(shifted, Read) or shifted.tensor != scores[-1].output:
        return tuple(scores), 1.0
    first, *rest = scores
    factor = 1.0
    for number in reversed(range(len(rest))):
        found = _divided(rest[number].body, scores[number].output)
        if found is None:
            break
        body, own = found
        rest[number], factor = replace(rest[number], body=body), factor * own
    return (first, *rest), factor


def _divided(body: Scalar, score: str) -> tuple[Scalar, float] | None:
    """A multiple of ``score``, or minus infinity, divided by a number, and that; else None."""
    match body:
        case Read(tensor=name) if name == score:
            return body, 1.0
        case Apply(function="mul", args=(value, Number(value=number))) if number > 0:
            found = _divided(value, score)
            return found and (found[0], found[1] * float(number))
        case Apply(function="mul", args=(Number(value=number), value)) if number > 0:
            found = _divided(value, score)
            return found and (found[0], found[1] * float(number))
        case Apply(function="div", args=(value, Number(value=number))) if number > 0:
            found = _divided(value, score)
            return found and (found[0], found[1] / float(number))
        case Select(then=value, other=Number(value=low)) if low == float("-inf"):
            found = _divided(value, score)
            return found and (replace(body, then=found[0]), found[1])
        case _:
            return None
