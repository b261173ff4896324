"""Epilogues of contractions that another algorithm computes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from modelcc.ir.index import Index, Sym, substitute
from modelcc.ir.scalar_tree import substitute_indices
from modelcc.ir.tensor import Axis, Read, Scalar, Stage
from modelcc.passes.tensor.fused_kernel import with_values


def followed(
    chain: Sequence[Stage],
    value: Scalar,
    axes: tuple[Axis, ...],
    at: Mapping[str, Index],
    suffix: str,
    stored: Collection[str],
) -> Iterator[Stage]:
    """``chain`` over ``axes``, where its own axes have the values ``at``; its first is ``value``.

    Intermediate results are in tensors of their own, with ``suffix`` in their names; ``stored``
    ones are written where they were.
    """
    own = tuple(Sym(a.name) for a in axes)
    made = {chain[0].output: value}
    for stage in chain:
        body = made.get(stage.output)
        if body is None:
            body = with_values(substitute_indices(stage.body, at), made)
        if stage is not chain[-1]:
            name = f"{stage.output}.{suffix}"
            yield Stage(name, axes, own, body)
            body = Read(name, own, body.dtype)
        made[stage.output] = body
        if stage.output in stored:
            where = tuple(substitute(index, at) for index in stage.write)
            yield Stage(stage.output, axes, where, body)
