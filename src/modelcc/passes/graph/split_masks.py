"""Splits masks into a causal part and the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.graph import Node
from modelcc.ir.index import Index, compare
from modelcc.ir.rewriting import Rewriter
from modelcc.ops.attention import Attention
from modelcc.ops.comparison import Greater, Where
from modelcc.ops.elementwise import Add, And, Not, Or
from modelcc.ops.generate import Iota
from modelcc.ops.reduce import ReduceMean, ReduceMin
from modelcc.passes.graph.causal_masks import (
    SWALLOWS_SCORES,
    causal_offset,
    number_everywhere,
    same_matrix,
    triangle_of,
)
from modelcc.passes.graph.products import swapped


@dataclass(frozen=True)
class SplitMask:
    """Query i sees keys up to i + ``offset``, with ``rest`` added to their scores.

    ``shown`` is where ``rest`` hides no key, if it hides them by a finite number: fully masked rows
    then weight all keys equally, including later ones.
    """

    offset: Index
    rest: str
    shown: str | None = None


def split_mask(at: Rewriter, mask: str, queries: Index, keys: Index) -> SplitMask | None:
    """The parts of an added mask; None if no part of it is causal."""
    node = at.producer(mask)
    match node.op if node is not None else None:
        case Where() if node is not None:
            return _split_choice(at, node, queries, keys)
        case Add() if node is not None:
            found = (_split_sum(at, *pair, queries, keys) for pair in swapped(node))
            return next((split for split in found if split), None)
        case _:
            return None


def attention_of_split(at: Rewriter, node: Node, split: SplitMask) -> str:
    """The result of the Attention ``node``, whose mask has these parts."""
    op, (q, k, v, _) = node.op, node.inputs
    assert isinstance(op, Attention)
    mixed = at.emit(replace(op, causal=True, offset=split.offset), q, k, v, split.rest)
    if split.shown is None:
        return mixed
    queries, keys = (at.type_of(name).shape[2] for name in (q, k))
    nothing = _sees_nothing(at, split, split.shown, queries, keys)
    return at.emit(Where(), nothing, at.emit(ReduceMean((2,)), v), mixed)


def _sees_nothing(at: Rewriter, split: SplitMask, shown: str, queries: Index, keys: Index) -> str:
    """For each query, whether the first visible key comes later."""
    place = at.emit(Iota((keys,)))
    never = at.constant(np.array(np.iinfo(np.int64).max))
    places = at.emit(Where(), shown, place, never)
    first = at.emit(ReduceMin((at.type_of(places).rank - 1,)), places)
    return at.emit(Greater(), first, at.emit(Iota((queries, 1), 0, split.offset)))


def _split_sum(
    at: Rewriter, name: str, other: str, queries: Index, keys: Index
) -> SplitMask | None:
    """The parts of a sum: keys hidden by infinity stay hidden whatever is added."""
    causal = causal_offset(at, name, queries, keys, least=-np.inf)
    if causal is not None:
        return SplitMask(causal, other)
    split = split_mask(at, name, queries, keys)
    if split is None or split.shown is not None:
        return None
    return SplitMask(split.offset, at.emit(Add(), split.rest, other))


def _split_choice(at: Rewriter, node: Node, queries: Index, keys: Index) -> SplitMask | None:
    condition, yes, no = node.inputs
    kept = number_everywhere(at, yes) == 0
    shown, hidden = (yes, no) if kept else (no, yes)
    low = number_everywhere(at, hidden)
    if number_everywhere(at, shown) != 0 or low is None or low > SWALLOWS_SCORES:
        return None
    facts = list(_facts(at, condition, kept))
    found = ((fact, _offset(at, node, fact, queries, keys)) for fact in facts)
    causal = {fact: offset for fact, offset in found if offset is not None}
    rest = [fact for fact in facts if fact not in causal]
    if len(causal) != 1 or not rest:
        return None
    ((offset,), seen) = causal.values(), _all_of(at, rest)
    zero, number = (at.constant(x, at.type_of(node.outputs[0]).dtype) for x in (0.0, low))
    mask = at.emit(Where(), seen, zero, number)
    return SplitMask(offset, mask, None if np.isinf(low) else seen)


@dataclass(frozen=True)
class _Fact:
    """A condition and its truth value."""

    name: str
    holds: bool


def _facts(at: Rewriter, name: str, holds: bool) -> Iterator[_Fact]:
    """Facts implied by ``name`` being true, or false."""
    node = at.producer(name)
    match node.op if node is not None else None:
        case Not() if node is not None:
            yield from _facts(at, node.inputs[0], not holds)
        case And() | Or() if node is not None and isinstance(node.op, And) == holds:
            for operand in node.inputs:
                yield from _facts(at, operand, holds)
        case _:
            yield _Fact(name, holds)


def _offset(at: Rewriter, node: Node, fact: _Fact, queries: Index, keys: Index) -> Index | None:
    """The offset implied by a fact: every query sees the keys up to it, and some more."""
    if at.type_of(fact.name).shape[-2:] != (queries, keys) or not same_matrix(at, node, fact.name):
        return None
    found = triangle_of(at, fact.name)
    if found is None or found.inside != fact.holds:
        return None
    return found.offset if compare(found.offset, ">=", 0, at.bounds) else None


def _all_of(at: Rewriter, facts: list[_Fact]) -> str:
    names = [f.name if f.holds else at.emit(Not(), f.name) for f in facts]
    while len(names) > 1:
        names[:2] = [at.emit(And(), *names[:2])]
    return names[0]
