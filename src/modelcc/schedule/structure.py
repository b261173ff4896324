"""The structure of a kernel: one iteration space, an optional reduction, its epilogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Bounds, Index
from modelcc.ir.scalar import WORD_DOTS, Combine, identity
from modelcc.ir.scalar_tree import reads, transform
from modelcc.ir.tensor import Apply, Axis, Cast, Condition, Guard, Number, Read, Scalar, Stage
from modelcc.ir.types import DType, TensorType
from modelcc.passes.tensor.register_axes import shared_depth
from modelcc.schedule.nest import (
    Nest,
    Offsets,
    axis_blocks,
    covers_blocks,
    divides,
    linearise,
    merge_loops,
)
from modelcc.schedule.quotients import quotient_blocks


@dataclass(frozen=True)
class Group:
    """Stages of a kernel over one shared iteration space.

    ``nests`` are in evaluation order; at most the first ones reduce, several over the same points
    and terms.  ``stored`` names the tensors written to memory, the others live in registers.
    ``bare`` maps an axis to the tensors that must not be accessed past its end, for lack of
    padding; loops over ``ragged`` axes do pass it.
    """

    nests: tuple[Nest, ...]
    stored: frozenset[str]
    bare: Mapping[str, frozenset[str]]
    ragged: frozenset[str]
    blocks: Mapping[str, int]

    @property
    def final(self) -> Nest:
        return self.nests[-1]

    @property
    def anchor(self) -> Nest | None:
        """The reducing nest, or the first one, if there is one."""
        return self.nests[0] if self.nests[0].reduce else None

    @property
    def anchors(self) -> tuple[Nest, ...]:
        """All reducing nests."""
        return tuple(nest for nest in self.nests if nest.reduce)


def make_group(
    stages: Sequence[Stage],
    outputs: frozenset[str],
    types: Mapping[str, TensorType],
    dims: Bounds,
    logical: frozenset[str],
    pad: bool = True,
) -> Group:
    """Nests of stages that :func:`shared_axes` accepted, loops in the order of the last output.

    With ``pad``, loops over a parallel axis may exceed its end up to a whole block.
    """
    internal = frozenset(s.output for s in stages) - outputs
    blocks: dict[str, int] = {}
    for stage in reversed(stages):
        blocks = {**axis_blocks(stage, types), **blocks}
    if not any(stage.reduce for stage in stages):
        for stage in stages:
            blocks = {**quotient_blocks(stage, dims, _last_place(stage, types)), **blocks}
    unfilled = {
        a.name
        for stage in stages
        for a in stage.axes
        if a.name in blocks and not divides(blocks[a.name], a.extent)
    }
    if not pad:
        blocks = {name: block for name, block in blocks.items() if name not in unfilled}
    depth = shared_depth(stages)
    stages = [replace(s, body=strip_indices(s.body, internal, depth)) for s in stages]
    offsets: dict[tuple[Axis, ...], Offsets] = {}
    own = offsets.setdefault(_own_axes(stages[-1], depth), {})
    final = linearise(stages[-1], types, dims, logical | internal, blocks, own, depth)
    order = [v.name for v in final.parallel]
    nests: list[Nest] = []
    for stage in stages:
        nest = final
        if stage is not stages[-1]:
            own = offsets.setdefault(_own_axes(stage, depth), {})
            nest = linearise(stage, types, dims, logical | internal, blocks, own, depth)
        store = final.store if stage.output in internal else nest.store
        parallel = tuple(sorted(nest.parallel, key=lambda v: order.index(v.name)))
        nests.append(replace(nest, store=store, parallel=parallel))
    bare = _bare_tensors(stages, types)
    # Lanes missing from some block are found by their axis, which a merged loop would lose.
    lanes = frozenset(f"{axis}v" for axis in unfilled & bare.keys())
    return Group(
        merge_loops(nests, lanes),
        outputs & frozenset(s.output for s in stages),
        bare,
        frozenset(unfilled if pad else ()),
        blocks,
    )


def _bare_tensors(
    stages: Sequence[Stage], types: Mapping[str, TensorType]
) -> dict[str, frozenset[str]]:
    """Axis → tensors with an access along it that whole blocks of their layout do not cover."""
    bare: dict[str, set[str]] = {}
    for stage in stages:
        accesses = [(r.tensor, r.indices) for r in reads(stage.body)]
        for tensor, indices in (*accesses, (stage.output, stage.write)):
            for axis in stage.axes:
                if tensor in types and not covers_blocks(indices, axis, types[tensor]):
                    bare.setdefault(axis.name, set()).add(tensor)
    return {axis: frozenset(tensors) for axis, tensors in bare.items()}


def _last_place(stage: Stage, types: Mapping[str, TensorType]) -> Index | None:
    """The index along which results are contiguous; None if a layout decides that."""
    stored = types.get(stage.output)
    plain = stored is not None and stored.layout is None
    return stage.write[-1] if plain and stage.write else None


def _own_axes(stage: Stage, depth: int | None) -> tuple[Axis, ...]:
    return () if depth is None else stage.axes[depth:]


def strip_indices(body: Scalar, internal: frozenset[str], depth: int | None = None) -> Scalar:
    """Reads of register values without indices: they are read at their own point.

    Of arrays, the indices of their own axes stay, from ``depth`` on.
    """

    def visit(node: Scalar) -> Scalar:
        if isinstance(node, Read) and node.tensor in internal:
            return replace(node, indices=() if depth is None else node.indices[depth:])
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
        case Cast() if combine == "sum":
            conditions, rest = neutral_guards(body.value, combine, body.value.dtype)
            return conditions, replace(body, value=rest)
        case _:
            return (), body


def is_contraction(nest: Nest) -> bool:
    """Whether the nest sums products of two reads, or of sums and differences of reads.

    A factor may be decoded from a field of a word, or be a word of several packed numbers.
    """
    if nest.combine != "sum" or not nest.reduce:
        return False
    _, body = neutral_guards(nest.body, "sum", nest.body.dtype)
    if not (isinstance(body, Apply) and body.function in ("mul", *WORD_DOTS)):
        return False
    return all(_is_linear(a) or is_decoded(a) for a in body.args)


def decodes(nest: Nest) -> bool:
    """Whether the nest is a contraction with a decoded factor."""
    body = neutral_guards(nest.body, "sum", nest.body.dtype)[1]
    factors = body.args if isinstance(body, Apply) and body.function == "mul" else ()
    return is_contraction(nest) and any(map(is_decoded, factors))


def multiplies_pairs(nest: Nest) -> bool:
    """Whether the nest is a contraction of words of two packed numbers each."""
    body = neutral_guards(nest.body, "sum", nest.body.dtype)[1]
    return is_contraction(nest) and isinstance(body, Apply) and body.function == "dot_halves"


def is_decoded(scalar: Scalar) -> bool:
    """Whether the scalar is a bit field of a loaded word, times one read, minus another product."""
    match scalar:
        case Apply(function="sub", args=(Apply(function="mul", args=args), Apply(function="mul"))):
            return isinstance(args[1], Read) and _is_field(args[0])
        case _:
            return False


def _is_field(scalar: Scalar) -> bool:
    match scalar:
        case Cast(
            value=Apply(function="and", args=(Apply(function="shr", args=(Read(), _)), Number()))
        ):
            return True
        case _:
            return False


def _is_linear(scalar: Scalar) -> bool:
    """Whether the scalar is a read, maybe converted, or sums and differences of such."""
    if isinstance(scalar, Apply) and scalar.function in ("add", "sub"):
        return all(_is_linear(a) for a in scalar.args)
    return isinstance(scalar.value if isinstance(scalar, Cast) else scalar, Read)
