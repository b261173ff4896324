"""Two products with a common operand, and their common pointwise epilogue: gated products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from modelcc.ir.index import Index, Sym
from modelcc.ir.scalar_tree import reads, substitute_stage
from modelcc.ir.tensor import Apply, Guard, Scalar, Stage
from modelcc.passes.tensor.shared_axes import renamed_to
from modelcc.passes.tensor.unify_axes import unify_axes


def twin_stages(stages: Sequence[Stage]) -> tuple[Stage, ...] | None:
    """``stages`` on the axes of the first one, if the first two are sums of products over the same
    points and terms with a common factor, and all others are their pointwise epilogue; otherwise
    None."""
    if len(stages) < 3:
        return None
    first, second, *later = stages
    twin = _on_axes_of(second, first)
    if twin is None or not have_common_factor(first.body, twin.body):
        return None
    done = {first.output: first, twin.output: twin}
    for stage in later:
        renamed = renamed_to(stage, done, first)
        if renamed is None:
            return None
        done[stage.output] = renamed
    return tuple(done.values())


def have_common_factor(one: Scalar, other: Scalar) -> bool:
    """Whether both are products, possibly under the same guards, with a common factor."""
    match one, other:
        case Guard(), Guard():
            same = (one.conditions, one.outside) == (other.conditions, other.outside)
            return same and have_common_factor(one.inside, other.inside)
        case Apply(function="mul"), Apply(function="mul"):
            return any(factor in other.args for factor in one.args)
        case _:
            return False


def _on_axes_of(second: Stage, first: Stage) -> Stage | None:
    """``second`` on the axes and terms of ``first``, if their results have the same shape."""
    if first.combine != "sum" or second.combine != "sum" or second.output == first.output:
        return None
    if any(read.tensor == first.output for read in reads(second.body)):
        return None
    if [a.extent for a in second.reduce] != [a.extent for a in first.reduce]:
        return None
    if len(first.write) != len(second.write) or len(first.axes) != len(second.axes):
        return None
    values = unify_axes([(second.write, first.write)], second.axes, first.axes)
    if values is None or len(values) < sum(a.extent != 1 for a in first.axes):
        return None
    units: Mapping[str, Index] = {a.name: 0 for a in second.axes if a.extent == 1}
    terms = {a.name: Sym(b.name) for a, b in zip(second.reduce, first.reduce, strict=True)}
    named = substitute_stage(second, {**units, **values, **terms})
    return replace(named, axes=first.axes, reduce=first.reduce)
