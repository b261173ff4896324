"""Rough time estimates of stages, to decide whether threads pay for their start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from modelcc.ir.condition import Condition
from modelcc.ir.index import (
    Bounds,
    Index,
    ceildiv,
    compare,
    evaluate,
    maximum,
    product,
    simplify,
    total,
)
from modelcc.ir.loop import For, Stmt
from modelcc.ir.scalar_tree import cost, reads
from modelcc.ir.tensor import Stage
from modelcc.ir.types import TensorType

RATE = 64
"""Vectorised operations per nanosecond of one core, and bytes that it reads from its caches."""

UNKNOWN = 128
"""Assumed size of a symbolic extent."""

WORTH_A_FORK = 5_000
"""Nanoseconds by :func:`nanoseconds`, a conservative estimate; awake threads fork and join within
500."""


def nanoseconds(stages: Sequence[Stage], types: Mapping[str, TensorType]) -> float:
    """Estimated time of ``stages`` on one core: arithmetic, or the memory that they touch.

    ``types`` are those of tensors in memory, without values passed between stages.
    """
    return evaluate(_work(stages, types, _assumed), {}) / RATE


def may_be_worth_a_fork(
    stages: Sequence[Stage], types: Mapping[str, TensorType], dims: Bounds
) -> bool:
    """Whether ``stages`` take long enough for threads, for some sizes at least."""
    return _is_worth(_work(stages, types, _itself), dims) is not False


def forks_if_worth(
    body: Sequence[Stmt], stages: Sequence[Stage], types: Mapping[str, TensorType], dims: Bounds
) -> tuple[Stmt, ...]:
    """``body``, which computes ``stages``, with parallel loops that check at run time whether sizes
    are worth threads, if it depends on them."""
    work = simplify(_work(stages, types, _itself), dims)
    if _is_worth(work, dims) is not None:
        return tuple(body)
    when = Condition(work, ">=", WORTH_A_FORK * RATE)
    return tuple(
        replace(s, when=when) if isinstance(s, For) and s.kind == "parallel" else s for s in body
    )


def _is_worth(work: Index, dims: Bounds) -> bool | None:
    """None if it depends on sizes."""
    return compare(work, ">=", WORTH_A_FORK * RATE, dims)


def _work(
    stages: Sequence[Stage], types: Mapping[str, TensorType], extent: Callable[[Index], Index]
) -> Index:
    """Operations or bytes, whichever are more, with extents mapped by ``extent``."""
    operations = total([_points(s, extent) * max(1, cost(s.body)) for s in stages])
    touched = {read.tensor: None for stage in stages for read in reads(stage.body)}
    touched |= {stage.output: None for stage in stages}
    sizes = [_bytes(types[name], stages, extent) for name in touched if name in types]
    return maximum(operations, total(sizes))


def _bytes(type_: TensorType, stages: Sequence[Stage], extent: Callable[[Index], Index]) -> Index:
    """Bytes of a tensor, at most those of as many elements as the stages have points: a gather
    reads few."""
    points = evaluate(total([_points(s, _assumed) for s in stages]), {})
    fits = evaluate(product(map(_assumed, type_.shape)), {}) <= points
    elements = (
        product(map(extent, type_.shape)) if fits else total([_points(s, extent) for s in stages])
    )
    return ceildiv(elements * type_.dtype.bits, 8)


def _points(stage: Stage, extent: Callable[[Index], Index]) -> Index:
    return product(extent(axis.extent) for axis in (*stage.axes, *stage.reduce))


def _assumed(extent: Index) -> Index:
    return extent if isinstance(extent, int) else UNKNOWN


def _itself(extent: Index) -> Index:
    return extent
