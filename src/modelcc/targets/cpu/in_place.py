"""Which results of a kernel may overwrite its operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from modelcc.ir.index import Index, Sym, substitute, symbols
from modelcc.ir.scalar_tree import reads, transform, walk
from modelcc.ir.tensor import Guard, Read, Scalar
from modelcc.ir.types import TensorType
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.nest import Nest
from modelcc.targets.cpu.plan import Plan


def pairs_in_place(
    nests: Sequence[Nest],
    stored: frozenset[str],
    kernel: CanonicalKernel,
    types: Mapping[str, TensorType],
    together: frozenset[tuple[str, str]] = frozenset(),
) -> list[tuple[str, str]]:
    """(output, input) pairs in which every read of the input is at the index the output is written
    to, by that nest or an earlier one; of pairs ``together``, whose nests are fused point by point,
    by a later one as well if the element was loaded before."""
    pairs: list[tuple[str, str]] = []
    for position, nest in enumerate(nests):
        if nest.output not in stored:
            continue
        before, after = nests[: position + 1], nests[position + 1 :]
        for name in kernel.inputs:
            same = types[name] == types[nest.output] and name not in kernel.constants
            if not same:
                continue
            early, late = before, after
            if (nest.output, name) in together:
                early, late = map(_without_single_loops, (before, after))
                late = [] if _at_hand(name, early[-1], early, late) else late
            if _read_in_place(name, early[-1], early, late):
                pairs.append((nest.output, name))
    return pairs


def _without_single_loops(nests: Sequence[Nest]) -> list[Nest]:
    """Nests with the variables of loops of one iteration replaced by 0."""
    return [
        replace(
            nest,
            body=transform(nest.body, lambda s, at=at: _placed(s, at)),
            store=substitute(nest.store, at),
        )
        for nest in nests
        for at in [{v.name: 0 for v in nest.parallel if v.extent == 1}]
    ]


def _placed(node: Scalar, at: Mapping[str, Index]) -> Scalar:
    if isinstance(node, Read):
        return replace(node, indices=tuple(substitute(i, at) for i in node.indices))
    return node


def pairs_of_parts(
    plans: Sequence[Plan], kernel: CanonicalKernel, types: Mapping[str, TensorType]
) -> list[tuple[str, str]]:
    """(output, input) pairs of parts of one stage, all of which read the input in place."""
    pairs: dict[tuple[str, str], None] = {}
    elsewhere: set[tuple[str, str]] = set()
    for plan in plans:
        found = pairs_in_place(plan.group.nests, plan.group.stored, kernel, types)
        read = {r.tensor for nest in plan.group.nests for r in reads(nest.body)}
        pairs |= dict.fromkeys(found)
        elsewhere |= {(y, x) for y in plan.group.stored for x in read} - set(found)
    return [pair for pair in pairs if pair not in elsewhere]


def _read_in_place(name: str, writer: Nest, before: Sequence[Nest], after: Sequence[Nest]) -> bool:
    early = [r for n in before for r in reads(n.body) if r.tensor == name]
    late = [r for n in after for r in reads(n.body) if r.tensor == name]
    reduced = [r for n in before if n.reduce for r in reads(n.body) if r.tensor == name]
    exact = all(r.indices == (writer.store,) for r in early)
    pointwise = _is_pointwise(name, before)
    once = {v.name for v in writer.parallel if v.extent != 1} <= symbols(writer.store)
    walked = not reduced or _row_walk(before)
    return bool(early) and exact and once and not late and pointwise and walked


def _at_hand(name: str, writer: Nest, before: Sequence[Nest], after: Sequence[Nest]) -> bool:
    """Whether reads after the write are of an element that was unconditionally loaded before it."""
    late = [(n, r) for n in after for r in reads(n.body) if r.tensor == name]
    exact = all(r.indices == (writer.store,) and not (n.own or n.reduce) for n, r in late)
    loaded = (n for n in before if not (n.own or n.reduce))
    return exact and any(name in _loaded(n.body) for n in loaded)


def _loaded(body: Scalar) -> frozenset[str]:
    """Tensors that are read unconditionally."""
    guarded = {r for node in walk(body) if isinstance(node, Guard) for r in reads(node.inside)}
    return frozenset(r.tensor for r in reads(body) if r not in guarded)


def _is_pointwise(name: str, nests: Sequence[Nest]) -> bool:
    """Whether elements of arrays computed from ``name`` are used at their own point: others would
    be read after results have overwritten ``name``."""
    made: dict[str, Nest] = {}
    for nest in nests:
        for read in reads(nest.body):
            writer = made.get(read.tensor)
            if writer is not None and (
                writer.own != nest.own or read.indices != tuple(Sym(v.name) for v in nest.own)
            ):
                return False
        found = {r.tensor for r in reads(nest.body)}
        if nest.own and (name in found or found & made.keys()):
            made[nest.output] = nest
    return True


def _row_walk(nests: Sequence[Nest]) -> bool:
    """Whether the reductions traverse the rows that are later written (row kernels)."""
    return len({n.parallel for n in nests}) == 1 and nests[-1].parallel[-1:] != ()
