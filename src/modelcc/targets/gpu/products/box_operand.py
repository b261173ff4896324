"""Operands of products that TMA can copy to shared memory as boxes: read unchanged, with aligned
rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from modelcc.ir.index import (
    Index,
    ceildiv,
    coefficient,
    divides,
    floordiv,
    mod,
    substitute,
    symbols,
)
from modelcc.ir.index_expr import product
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Read
from modelcc.ir.tiles import CopyTile
from modelcc.schedule.nest import LoopVar
from modelcc.targets.gpu.contraction import Contraction, KeptFactor
from modelcc.targets.gpu.evaluation import GroupKernel, Point, extent_of
from modelcc.targets.gpu.products.image_operand import (
    BOUNDARY,
    MOST_AXES,
    ImageOperand,
    image_operand,
)
from modelcc.targets.gpu.sizes import count
from modelcc.targets.isa.tile_products import DEPTH_BYTES

BOX_COLUMNS = 8
"""Boxes of as many contiguous terms lie one after the other, as one box of all of them does."""


@dataclass(frozen=True)
class BoxOperand:
    """A tensor in ``source`` from ``offset`` on with the dimensions of ``batch``, and those
    ``along`` results and ``terms``: sizes and strides.  With ``outer`` terms, the next of these
    follows after whole blocks of ``terms``.  ``transposed``: results are contiguous, not terms."""

    source: str
    offset: Index
    batch: tuple[tuple[LoopVar, Index], ...]
    along: tuple[Index, Index]
    terms: tuple[Index, Index]
    transposed: bool
    outer: tuple[tuple[Index, Index], ...] = ()

    def copies(
        self,
        to: str,
        to_offset: Index,
        first: tuple[Index, Index],
        size: int,
        depth: int,
        batch: Point,
        arrivals: tuple[str, Index],
    ) -> list[CopyTile]:
        """Copies of ``size`` results by ``depth`` terms from the ``first`` result and term on: one,
        or, if they are transposed and do not split evenly, one for each ``depth`` results."""
        along, terms = self.along, self.terms
        before = [(v.extent, step) for v, step in self.batch]
        here = [batch[v.name] for v, _ in self.batch]
        if self.outer:
            inside = ceildiv(terms[0], depth) * depth
            before += self.outer
            here.append(floordiv(first[1], inside))
            first = first[0], mod(first[1], inside)
        parts = size // depth

        def copy(
            axes: Sequence[tuple[Index, Index]], at: Sequence[Index], box: Sequence[int], part: int
        ) -> CopyTile:
            sizes, strides = zip(*before, *axes, strict=True)
            return CopyTile(
                to, to_offset + part * depth * depth, self.source, (*here, *at), self.offset,
                sizes, strides, (*(1 for _ in before), *box), *arrivals,
            )  # fmt: skip

        if not self.transposed:
            return [copy((along, terms), first, (size, depth), 0)]
        if len(before) < MOST_AXES - 2 and divides(depth, along[0], {}):
            axes = (floordiv(along[0], depth), depth), terms, (depth, 1)
            at = floordiv(first[0], depth), first[1], 0
            return [copy(axes, at, (parts, depth, depth), 0)]
        places = (first[0] + part * depth for part in range(parts))
        return [
            copy((terms, along), (first[1], place), (depth, depth), part)
            for part, place in enumerate(places)
        ]


@dataclass(frozen=True)
class BoxProduct:
    """A contraction with its rows in the order of boxes, its terms padded to whole blocks, and its
    factors."""

    found: Contraction
    left: BoxOperand | ImageOperand
    rights: tuple[BoxOperand, ...]

    def takes(self, columns: int) -> bool:
        """Whether tiles may have ``columns`` sums: those of a right factor are whole boxes, of
        :data:`BOX_COLUMNS`, or of a block of terms if results are contiguous."""
        if len(self.rights) == 1:
            return True
        depth = DEPTH_BYTES // self.found.right.value.dtype.bytes
        return self.found.own(columns) % (depth if self.turned[1] else BOX_COLUMNS) == 0

    @property
    def turned(self) -> tuple[bool, bool]:
        """For each factor, whether it is transposed: results are contiguous, not terms."""
        left, (right, *_) = self.left, self.rights
        return isinstance(left, BoxOperand) and left.transposed, right.transposed

    def row_tiles(self, rows: int) -> Index:
        """The number of tiles of ``rows`` rows."""
        if isinstance(self.left, ImageOperand):
            return product(self.left.tiles(rows))
        return ceildiv(extent_of(self.found.rows), rows)

    def count_tiles(self, rows: int) -> int:
        """The same as an estimate."""
        if isinstance(self.left, ImageOperand):
            return self.left.count(rows)
        return -(-count(self.found.rows) // rows)


def box_product(kernel: GroupKernel, found: Contraction) -> BoxProduct | None:
    """A product of inputs that can be copied as boxes, the left ones also as windows of images;
    None if it is none.

    The number of terms is a constant: ptxas has to know which products are in flight, and does not
    see that of a loop that may not run.
    """
    if not isinstance(extent_of(found.terms), int):
        return None
    lying = replace(found, rows=_as_they_lie(found.left, found.rows))
    depth = DEPTH_BYTES // found.left.value.dtype.bytes
    one = box_operand(kernel, found.left, lying.rows, found.terms, found.batch, depth)
    if one is not None:
        others = _right_operands(kernel, found, depth)
        return BoxProduct(lying, one, others) if others else None
    image = image_operand(kernel, found.left, found, depth)
    if image is None:
        return None
    apart = len(found.terms) > 1 and image.terms != found.terms
    others = _right_operands(kernel, found, depth, apart)
    made = replace(found, rows=image.rows, terms=image.terms)
    return BoxProduct(made, image, others) if others else None


def _right_operands(
    kernel: GroupKernel, found: Contraction, depth: int, apart: bool = False
) -> tuple[BoxOperand, ...]:
    """All right factors as boxes of the same layout; none if any is none."""
    along = found.columns, found.terms, found.batch, depth, apart
    operands = [box_operand(kernel, right, *along) for right in found.rights]
    boxes = tuple(one for one in operands if one is not None)
    alike = len({(one.transposed, bool(one.outer)) for one in boxes}) == 1
    return boxes if alike and len(boxes) == len(operands) else ()


def _as_they_lie(factor: KeptFactor, variables: tuple[LoopVar, ...]) -> tuple[LoopVar, ...]:
    """Axes by decreasing stride."""
    indices = [read.indices[0] for read in reads(factor.value) if len(read.indices) == 1]
    steps = {v: coefficient(index, v.name) for index in indices[:1] for v in variables}
    known = {v: step for v, step in steps.items() if isinstance(step, int)}
    if len(known) < len(variables):
        return variables
    return tuple(sorted(variables, key=lambda v: -known[v]))


def _step(variables: Sequence[LoopVar], steps: Mapping[str, Index | None]) -> Index | None:
    """The stride of several axes as one, the last being the innermost; None if there is none."""
    several = [v for v in variables if v.extent != 1]
    for outer, inner in pairwise(several):
        within = steps[inner.name]
        if within is None or steps[outer.name] != within * inner.extent:
            return None
    return steps[several[-1].name] if several else None


def _runs(
    terms: Sequence[LoopVar], steps: Mapping[str, Index | None], depth: int
) -> tuple[Sequence[LoopVar], Sequence[LoopVar]]:
    """Outer and inner terms: the inner ones have a single stride.  All are inner unless the outer
    ones have a single stride, too, and no block of ``depth`` crosses into the next outer term."""
    first = next((n for n in range(len(terms)) if _step(terms[n:], steps) is not None), 0)
    extent = extent_of(terms[first:])
    whole = isinstance(extent, int) and depth and extent % depth == 0
    if not first or not whole or _step(terms[:first], steps) is None:
        return (), terms
    return terms[:first], terms[first:]


def box_operand(
    kernel: GroupKernel,
    factor: KeptFactor,
    along: Sequence[LoopVar],
    terms: Sequence[LoopVar],
    batch: Sequence[LoopVar],
    depth: int = 0,
    apart: bool = False,
) -> BoxOperand | None:
    """``factor`` as boxes; None unless it is an input that is read unchanged, with aligned rows.

    With a ``depth``, terms without a single stride, such as a part of the channels at each position
    of a window, are two axes, if no block crosses the outer one.  So are all whose innermost terms
    are to be ``apart``.
    """
    read = factor.value
    if not isinstance(read, Read) or len(read.indices) != 1:
        return None
    if read.tensor not in kernel.kernel.inputs:
        return None
    (index,) = read.indices
    each = BOUNDARY // read.dtype.bytes
    steps = {v.name: coefficient(index, v.name) for v in (*along, *terms, *batch)}
    offset = substitute(index, {name: 0 for name in steps})
    taken = [(v, step) for v in batch if (step := steps[v.name]) is not None and step != 0]
    across = _step(along, steps)
    outside, inside = (terms[:-1], terms[-1:]) if apart else _runs(terms, steps, depth)
    deep, outer_step = _step(inside, steps), _step(outside, steps)
    outer = ((extent_of(outside), outer_step),) if outer_step is not None else ()
    if outside and not outer:
        return None
    if across is None or deep is None or any(step is None for step in steps.values()):
        return None
    if (across == 1) == (deep == 1) or len(taken) + len(outer) > MOST_AXES - 2:
        return None
    row = deep if across == 1 else across
    told = set(kernel.dims)
    parts = (offset, row, *(step for _, step in outer), *(step for _, step in taken))
    if not all(divides(each, part, kernel.dims) and symbols(part) <= told for part in parts):
        return None
    sizes = (extent_of(along), across), (extent_of(inside), deep)
    return BoxOperand(read.tensor, offset, tuple(taken), *sizes, across == 1, outer)
