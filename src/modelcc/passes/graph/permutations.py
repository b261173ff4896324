"""Permutations of axes, as ``Transpose`` has them: axis k of the result is axis perm[k]."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.rewriting import Rewriter
from modelcc.ops.shape import Transpose

Permutation = tuple[int, ...]


def compose(first: Sequence[int], then: Sequence[int]) -> Permutation:
    """The permutation that applies ``first`` and then ``then``."""
    return tuple(first[axis] for axis in then)


def inverse(perm: Sequence[int]) -> Permutation:
    """The inverse permutation."""
    return tuple(sorted(range(len(perm)), key=lambda k: perm[k]))


def is_identity(perm: Sequence[int]) -> bool:
    """Whether it is the identity."""
    return tuple(perm) == tuple(range(len(perm)))


def swap_last(rank: int) -> Permutation:
    """The permutation that swaps the last two of ``rank`` axes."""
    return (*range(rank - 2), rank - 1, rank - 2)


def transposed(at: Rewriter, name: str, perm: Permutation) -> str:
    """``name`` transposed, merged with a transpose that defines it."""
    node = at.producer(name)
    if node is not None and isinstance(node.op, Transpose):
        name, perm = node.inputs[0], compose(node.op.perm, perm)
    return name if is_identity(perm) else at.emit(Transpose(perm), name)
