"""Moves the scale of attention's scores into the exponentials."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from modelcc.ir.scalar_tree import walk
from modelcc.ir.tensor import Apply, Number, Read, Scalar, Select
from modelcc.schedule.nest import Nest


def unscaled(scores: Sequence[Nest], shifted: Scalar) -> tuple[tuple[Nest, ...], float]:
    """``scores``, of which ``shifted`` are exponents, and a positive number: the last score is
    divided by that number.  The maximum of a row remains the maximum.

    Nests from the last one back are changed as long as each is a multiple of the previous one.
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


def overflows(scores: Sequence[Nest], inputs: Collection[str], factor: float) -> bool:
    """Whether ``factor`` times a finite score may be infinite: a mask of the ``inputs`` that is
    added to the products, or a number in place of them, may be the most negative f32."""
    if factor <= 1.0:
        return False
    most = float(np.finfo(np.float32).max) / factor
    nodes = [node for nest in scores[1:] for node in walk(nest.body)]
    large = (n for n in nodes if isinstance(n, Number) and most < abs(float(n.value)) < inf)
    return any(large) or any(isinstance(n, Read) and n.tensor in inputs for n in nodes)


def _divided(body: Scalar, score: str) -> tuple[Scalar, float] | None:
    """A multiple of ``score``, or -inf, divided by a number, and that number; else None."""
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
