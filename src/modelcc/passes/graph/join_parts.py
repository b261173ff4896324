"""Sums of tensors with disjoint non-zero parts, as concatenations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from modelcc.ir.graph import Graph, Node
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ops.arithmetic import Add
from modelcc.ops.shape import Concat
from modelcc.ops.slicing import Unslice


@dataclass(frozen=True)
class JoinParts:
    """Adjacent parts along an axis are concatenated.

    Gradients of a tensor whose slices have different readers, such as the gates of an LSTM and
    packed queries, keys and values, are such sums.  (-0.0 stays, where a sum with 0 gives 0.)

    before::

        "mcc.graph"() ({
        ^bb0(%a: tensor<2x3xf32>, %b: tensor<2x1xf32>, %c: tensor<2x4xf32>):
          %x = "mcc.Unslice"(%a) {starts = [0, 1], steps = [1, 1], shape = [2, 4]}
          %y = "mcc.Unslice"(%b) {starts = [0, 0], steps = [1, 1], shape = [2, 4]}
          %s = "mcc.Add"(%x, %c)
          %r = "mcc.Add"(%s, %y)
          "mcc.return"(%r)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%a: tensor<2x3xf32>, %b: tensor<2x1xf32>, %c: tensor<2x4xf32>):
          %j = "mcc.Concat"(%b, %a) {axis = 1}
          %r = "mcc.Add"(%c, %j)
          "mcc.return"(%r)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        return rewrite(graph, (joined_parts,), self.limit)


@dataclass(frozen=True)
class PlacedPart:
    """A term that is ``part`` from ``start`` on along ``axis``, and 0 elsewhere."""

    term: str
    part: str
    axis: int
    start: int
    extent: int

    @property
    def end(self) -> int:
        """End of the part."""
        return self.start + self.extent


def joined_parts(node: Node, at: Rewriter) -> Replacement:
    """The whole sum that ``node`` completes, with adjacent parts concatenated."""
    if not isinstance(node.op, Add) or _is_term(node.outputs[0], at):
        return None
    terms = _terms(node.outputs[0], at)
    found = [piece for piece in (_piece(term, at) for term in terms) if piece is not None]
    runs = [run for run in _runs(found) if len(run) > 1]
    if not runs:
        return None
    gone = {piece.term for run in runs for piece in run}
    rest = [term for term in terms if term not in gone]
    made = [_joined(run, node.outputs[0], at) for run in runs]
    total, *others = [*rest, *made]
    for term in others:
        total = at.emit(Add(), total, term)
    return total


def _is_term(name: str, at: Rewriter) -> bool:
    """Whether ``name`` is only a partial sum of a longer one of the same shape."""
    if at.uses(name) != 1 or at.is_output(name):
        return False
    (reader,) = at.consumers(name)
    return isinstance(reader.op, Add) and at.type_of(reader.outputs[0]) == at.type_of(name)


def _terms(total: str, at: Rewriter) -> list[str]:
    """The terms of a sum, whatever its association, from left to right."""
    found: list[str] = []
    stack = [total]
    while stack:
        name = stack.pop()
        made = at.producer(name)
        if made is not None and isinstance(made.op, Add) and (name == total or _is_term(name, at)):
            stack += reversed(made.inputs)
        else:
            found.append(name)
    return found


def _piece(term: str, at: Rewriter) -> PlacedPart | None:
    made = at.producer(term)
    if made is None or not isinstance(made.op, Unslice) or at.uses(term) != 1:
        return None
    part = at.type_of(made.inputs[0]).shape
    axes = [a for a, (own, full) in enumerate(zip(part, made.op.shape, strict=True)) if own != full]
    if len(axes) != 1 or any(step != 1 for step in made.op.steps):
        return None
    start, extent = made.op.starts[axes[0]], part[axes[0]]
    if not (isinstance(start, int) and isinstance(extent, int)):
        return None
    return PlacedPart(term, made.inputs[0], axes[0], start, extent)


def _runs(pieces: list[PlacedPart]) -> Iterator[list[PlacedPart]]:
    """Runs of adjacent pieces along an axis."""
    ordered = sorted(pieces, key=lambda p: (p.axis, p.start))
    for _, group in groupby(ordered, key=lambda p: p.axis):
        run: list[PlacedPart] = []
        for piece in group:
            if run and run[-1].end != piece.start:
                yield run
                run = []
            run.append(piece)
        yield run


def _joined(run: list[PlacedPart], total: str, at: Rewriter) -> str:
    first, last = run[0], run[-1]
    joined = at.emit(Concat(first.axis), *(piece.part for piece in run))
    whole = at.type_of(total).shape
    if last.end - first.start == whole[first.axis]:
        return joined
    starts = tuple(first.start if a == first.axis else 0 for a in range(len(whole)))
    return at.emit(Unslice(starts, (1,) * len(whole), whole), joined)
