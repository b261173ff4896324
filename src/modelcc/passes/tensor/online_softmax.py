"""Row weights that can be computed before the whole row is known.

Softmax needs the maximum and the sum of a row.  Block by block of the row, a running maximum
suffices: where a block raises it, the sums so far are multiplied by ``exp(old - new)`` (Milakov and
Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modelcc.ir.index import Bounds, Index, coefficient, compare, substitute
from modelcc.ir.scalar_tree import index_symbols, reads
from modelcc.ir.tensor import (
    Apply,
    Condition,
    Guard,
    IndexValue,
    Number,
    Read,
    Scalar,
    Select,
    Stage,
)
from modelcc.passes.tensor.fused_kernel import with_values
from modelcc.passes.tensor.gemm_pair import GemmPair


@dataclass(frozen=True)
class OnlineSoftmax:
    """A weight is ``power`` times ``factor``, which is constant within a row.

    ``power`` is ``exp(shifted - maximum of shifted)``, or any pointwise function if there is no
    ``maximum``.  ``sums`` are sums of these exponentials along a row, by their names; ``factor`` is
    computed from them (None: 1).  All are over the axes of the pair.
    """

    power: Scalar
    maximum: Stage | None
    shifted: Scalar | None
    sums: tuple[Stage, ...]
    factor: tuple[tuple[str, Scalar], ...]


def online_softmax(pair: GemmPair) -> OnlineSoftmax | None:
    """The weights of ``pair`` in this form; None if they have another."""
    bodies: dict[str, Scalar] = {}
    reductions: dict[str, Stage] = {}
    for stage in pair.weights:
        body = with_values(stage.body, bodies)
        if stage.reduce:
            reductions[stage.output] = _over(stage, body)
        else:
            bodies[stage.output] = body
    last = pair.scores[-1]
    score = Read(last.output, last.write, last.body.dtype)
    power, factor = _split(bodies.get(pair.weight, score), pair, reductions)
    return _checked(power, factor, reductions)


def seen_keys(pair: GemmPair, weights: OnlineSoftmax) -> Index | None:
    """The number of keys that the row ``pair.row`` attends to, from the first on; None if all.

    The exponentials of masked scores are those of minus infinity: 0.
    """
    last = pair.scores[-1]
    if not (isinstance(weights.shifted, Read) and weights.shifted.tensor == last.output):
        return None
    match last.body:
        case Select(
            condition=Apply(function="ge", args=(IndexValue(index=index), Number(value=0))),
            other=Number(value=value),
        ) if value == float("-inf") and coefficient(index, pair.key.name) == -1:
            rest = substitute(index, {pair.key.name: 0}) + 1
            return rest if coefficient(rest, pair.row.name) == 1 else None
        case _:
            return None


def of_some_keys(value: Scalar, pair: GemmPair, dims: Bounds) -> Scalar:
    """A result's ``value``, and 0 for rows without keys, like an empty sum: the quotient of such
    sums is undefined."""
    keys = pair.key.extent
    if compare(keys, ">=", 1, dims):
        return value
    return Guard((Condition(0, "<", keys),), value, Number(0.0, value.dtype), value.dtype)


def _over(stage: Stage, body: Scalar) -> Stage:
    return Stage(stage.output, stage.axes, stage.write, body, stage.reduce, stage.combine)


def _split(
    whole: Scalar, pair: GemmPair, reductions: Mapping[str, Stage]
) -> tuple[Scalar, tuple[tuple[str, Scalar], ...]]:
    """``whole`` without its factor that is constant within a row, and how to multiply by that."""

    def is_of_row(scalar: Scalar) -> bool:
        names = {r.tensor for r in reads(scalar)}
        return pair.key.name not in index_symbols(scalar) and names <= reductions.keys()

    match whole:
        case Apply(function="mul" | "div", args=(left, right)) if is_of_row(right):
            power, factor = _split(left, pair, reductions)
            return power, (*factor, (whole.function, right))
        case Apply(function="mul", args=(left, right)) if is_of_row(left):
            power, factor = _split(right, pair, reductions)
            return power, (*factor, (whole.function, left))
        case _:
            return whole, ()


def _checked(
    power: Scalar,
    factor: tuple[tuple[str, Scalar], ...],
    reductions: Mapping[str, Stage],
) -> OnlineSoftmax | None:
    maxima = [s for s in reductions.values() if s.combine == "max"]
    sums = tuple(s for s in reductions.values() if s.combine == "sum")
    if len(maxima) + len(sums) != len(reductions) or len(maxima) > 1:
        return None
    used = {r.tensor for _, f in factor for r in reads(f)}
    if used - {s.output for s in sums}:
        return None
    if not maxima:
        plain = all(_of_points(b, reductions) for b in (power, *(s.body for s in sums)))
        return OnlineSoftmax(power, None, None, sums, factor) if plain else None
    (maximum,) = maxima
    shifted = [_shifted(b, maximum) for b in (power, *(s.body for s in sums))]
    if any(x is None or x != maximum.body for x in shifted):
        return None
    if not _of_points(maximum.body, reductions):
        return None
    return OnlineSoftmax(power, maximum, maximum.body, sums, factor)


def _of_points(body: Scalar, reductions: Mapping[str, Stage]) -> bool:
    return not any(r.tensor in reductions for r in reads(body))


def _shifted(body: Scalar, maximum: Stage) -> Scalar | None:
    """``x`` if ``body`` is ``exp(x - maximum)``."""
    match body:
        case Apply(function="exp", args=(Apply(function="sub", args=(x, Read(tensor=name))),)) if (
            name == maximum.output
        ):
            return x
        case _:
            return None
