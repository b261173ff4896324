"""Which results of a kernel may lie where its operands do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from modelcc.ir.index import Sym, symbols
from modelcc.ir.scalar_tree import reads
from modelcc.ir.types import TensorType
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.nest import Nest
from modelcc.targets.cpu.plan import Plan


def pairs_in_place(
    nests: Sequence[Nest],
    stored: frozenset[str],
    kernel: CanonicalKernel,
    types: Mapping[str, TensorType],
) -> list[tuple[str, str]]:
    """(output, input) pairs in which every read of the input is where the output is written,
    by that nest or an earlier one."""
    pairs: list[tuple[str, str]] = []
    for position, nest in enumerate(nests):
        if nest.output not in stored:
            continue
        for name in kernel.inputs:
            same = types[name] == types[nest.output] and name not in kernel.constants
            if same and _read_in_place(name, nest, nests[: position + 1], nests[position + 1 :]):
                pairs.append((nest.output, name))
    return pairs


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


def _is_pointwise(name: str, nests: Sequence[Nest]) -> bool:
    """Whether elements of arrays that ``name`` goes into are used where they are made: others
    would be read after results took its place."""
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
    """Whether the reductions walk the rows that are later written (row kernels)."""
    return len({n.parallel for n in nests}) == 1 and nests[-1].parallel[-1:] != ()
