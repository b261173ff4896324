"""What a kernel is, structurally: one iteration space, an optional reduction, its epilogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Bounds, Index, Sym, coefficient, substitute, symbols
from modelcc.ir.scalar import Combine
from modelcc.ir.scalar_tree import reads, substitute_indices, transform
from modelcc.ir.tensor import Apply, Condition, Guard, Kernel, Number, Read, Scalar, Stage
from modelcc.ir.types import DType, TensorType
from modelcc.targets.cpu.expression import identity
from modelcc.targets.cpu.nest import Nest, axis_blocks, linearise, merge_loops


@dataclass(frozen=True)
class Group:
    """Stages of a kernel over one shared iteration space.

    ``nests`` are in evaluation order; at most the first one reduces.  ``stored`` names the
    tensors written to memory, the others live in registers.
    """

    nests: tuple[Nest, ...]
    stored: frozenset[str]

    @property
    def final(self) -> Nest:
        return self.nests[-1]

    @property
    def anchor(self) -> Nest | None:
        """The reducing nest, if there is one."""
        return self.nests[0] if self.nests[0].reduce else None


def shared_axes(stages: Sequence[Stage]) -> tuple[Stage, ...] | None:
    """Later stages renamed to the axes of the first one; None if they do not fit.

    A stage fits if it reads every earlier stage's result at a permutation of its own axes, each
    earlier axis exactly once; axes of extent 1 may be absent.
    """
    if len(stages) == 1:
        return tuple(stages)
    done: dict[str, Stage] = {stages[0].output: stages[0]}
    for stage in stages[1:]:
        renamed = _rename_to(stage, done, stages[0])
        if renamed is None:
            return None
        done[stage.output] = renamed
    return tuple(done.values())


def _rename_to(stage: Stage, done: Mapping[str, Stage], first: Stage) -> Stage | None:
    if stage.reduce or stage.output in done:
        return None
    values: dict[str, Index] = {}
    for read in reads(stage.body):
        source = done.get(read.tensor)
        if source is None:
            continue
        for index, target in zip(read.indices, source.write, strict=True):
            if not _match_axis(index, target, values, stage, first):
                return None
    extents = {a.name: a.extent for a in first.axes}
    for axis in stage.axes:
        if axis.name not in values:
            if axis.extent != 1:
                return None
            values[axis.name] = 0
    used = [symbols(v) for v in values.values()]
    covered = {name for names in used for name in names}
    if any(e != 1 and n not in covered for n, e in extents.items()):
        return None
    if sum(len(n) for n in used) != len(covered):
        return None
    return replace(
        stage,
        axes=first.axes,
        write=tuple(substitute(i, values) for i in stage.write),
        body=substitute_indices(stage.body, values),
    )


def _match_axis(
    index: Index, target: Index, values: dict[str, Index], stage: Stage, first: Stage
) -> bool:
    """Unify ``index`` (over the stage's axes) with ``target`` (over the first stage's axes)."""
    own = {a.name: a.extent for a in stage.axes}
    theirs = {a.name: a.extent for a in first.axes}
    names = symbols(index)
    if not names:
        return all(theirs.get(n) == 1 for n in symbols(target))
    if len(names) != 1:
        return False
    name = next(iter(names))
    if index != Sym(name) or name not in own:
        return False
    wanted = symbols(target)
    if len(wanted) == 1 and target == Sym(next(iter(wanted))):
        if own[name] != theirs[next(iter(wanted))]:
            return False
    elif target != 0 or own[name] != 1:
        return False
    return values.setdefault(name, target) == target


def make_group(
    stages: Sequence[Stage],
    outputs: frozenset[str],
    types: Mapping[str, TensorType],
    dims: Bounds,
    logical: frozenset[str],
) -> Group:
    """Nests of stages that :func:`shared_axes` accepted, loops in the order of the last output."""
    internal = frozenset(s.output for s in stages) - outputs
    blocks: dict[str, int] = {}
    for stage in reversed(stages):
        visible = replace(stage, write=()) if stage.output in internal else stage
        own = axis_blocks(_without_internal(visible, internal), types)
        blocks = {**own, **blocks}
    final = linearise(stages[-1], types, dims, logical | internal, blocks)
    order = [v.name for v in final.parallel]
    nests: list[Nest] = []
    for stage in stages:
        nest = linearise(stage, types, dims, logical | internal, blocks)
        store = final.store if stage.output in internal else nest.store
        parallel = tuple(sorted(nest.parallel, key=lambda v: order.index(v.name)))
        body = _mark_internal(nest.body, internal)
        nests.append(replace(nest, store=store, parallel=parallel, body=body))
    return Group(merge_loops(nests), outputs & frozenset(s.output for s in stages))


def _without_internal(stage: Stage, internal: frozenset[str]) -> Stage:
    """The stage with reads of internal values stripped of indices (they have no layout)."""
    return replace(stage, body=_mark_internal(stage.body, internal))


def _mark_internal(body: Scalar, internal: frozenset[str]) -> Scalar:
    def visit(node: Scalar) -> Scalar:
        if isinstance(node, Read) and node.tensor in internal:
            return replace(node, indices=())
        return node

    return transform(body, visit)


def neutral_guards(
    body: Scalar, combine: Combine, dtype: DType
) -> tuple[tuple[Condition, ...], Scalar]:
    """Guards outside which the reduction's body is neutral, and the body without them.

    ``sum of guard(c, x, 0) * w`` only needs the points where ``c`` holds.
    """
    match body:
        case Guard(conditions=conditions, inside=inside, outside=Number(value=value)) if (
            value == identity(combine, dtype)
        ):
            below, rest = neutral_guards(inside, combine, dtype)
            return (*conditions, *below), rest
        case Apply(function="mul") if combine == "sum":
            parts = [neutral_guards(a, combine, dtype) for a in body.args]
            conditions = tuple(c for below, _ in parts for c in below)
            return conditions, replace(body, args=tuple(rest for _, rest in parts))
        case _:
            return (), body


def is_contraction(nest: Nest) -> bool:
    """Whether the nest sums products of two reads that move differently in the parallel loops."""
    if nest.combine != "sum" or not nest.reduce:
        return False
    _, body = neutral_guards(nest.body, "sum", nest.body.dtype)
    if not (isinstance(body, Apply) and body.function == "mul"):
        return False
    return all(isinstance(a, Read) for a in body.args)


def contiguous_in(index: Index, variable: str) -> bool:
    """Whether the offset moves by one element per step of ``variable``."""
    return coefficient(index, variable) == 1


def fits_one_space(kernel: Kernel) -> bool:
    """Whether the kernel is one reduction (or none) with an elementwise epilogue."""
    reducing = [s for s in kernel.stages if s.reduce]
    if len(reducing) > 1 or (reducing and kernel.stages[0] is not reducing[0]):
        return False
    return shared_axes(kernel.stages) is not None
