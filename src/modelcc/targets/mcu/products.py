"""Kernels that sum products of bytes or halves, in the form that the schedules of this package
expect.

The factors are a byte or half less a zero point, maybe within a border of zeros, and a constant
weight; the elementwise stages after the sum are the *epilogue*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from modelcc.ir.condition import Condition
from modelcc.ir.index import Index, Sym, coefficient, substitute, symbols
from modelcc.ir.scalar_tree import reads, transform, walk
from modelcc.ir.tensor import Apply, Cast, Guard, Number, Read, Scalar
from modelcc.ir.types import I8, I16, I32, U8, DType
from modelcc.passes.tensor.shared_axes import shared_axes
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.nest import LoopVar, Nest
from modelcc.schedule.structure import make_group, neutral_guards


@dataclass(frozen=True)
class ByteOperand:
    """Bytes or halves ``tensor[offset]`` less ``zero``; ``pad`` if one of the ``conditions``
    (``left >= 0``) does not hold."""

    tensor: str
    offset: Index
    zero: int
    conditions: tuple[Condition, ...]
    pad: int
    dtype: DType

    @property
    def fades(self) -> bool:
        """Whether the border, if there is any, contributes 0."""
        return self.pad == self.zero or not self.conditions


@dataclass(frozen=True)
class Product:
    """``sum over reduce of operand * weights[row, place]``, plus the ``bias`` of a row, if any.

    ``pixels`` are the loops that the weights do not move along, outermost first, ``row`` is the
    one along rows of weights; ``shared`` if the operand moves along it, too (depthwise).
    ``nests`` compute outputs from the sum ``total``.
    """

    operand: ByteOperand
    weights: str
    weight: DType
    place: Index
    steps: int
    row: LoopVar
    shared: bool
    pixels: tuple[LoopVar, ...]
    reduce: tuple[LoopVar, ...]
    bias: Read | None
    total: str
    nests: tuple[Nest, ...]
    stored: frozenset[str]

    @property
    def of_bytes(self) -> bool:
        """Whether signed bytes are multiplied."""
        return self.operand.dtype == self.weight == I8

    @property
    def rows(self) -> int:
        """Rows of weights."""
        return number_in(self.row.extent)

    @property
    def points(self) -> int:
        """Number of pixels."""
        return prod(number_in(v.extent) for v in self.pixels)

    def step(self, index: Index) -> int:
        """The distance of ``index`` between consecutive pixels; 0 if it varies."""
        if not self.pixels:
            return 0
        expected = step = number_in(coefficient(index, self.pixels[-1].name))
        for v in reversed(self.pixels):
            if coefficient(index, v.name) != expected:
                return 0
            expected *= number_in(v.extent)
        return step

    def at(self, pixel: Index) -> dict[str, Index]:
        """Loop variables at the pixel of this number, for indices with a :meth:`step`."""
        point: dict[str, Index] = {v.name: 0 for v in self.pixels}
        return {**point, self.pixels[-1].name: pixel} if self.pixels else point


def find_product(kernel: CanonicalKernel) -> Product | None:
    """The kernel as a product with an epilogue; else None."""
    shared = shared_axes(kernel.stages)
    if shared is None or kernel.dims or not shared[0].reduce:
        return None
    types, stored = dict(kernel.types), frozenset(kernel.outputs)
    once = {r.tensor for s in shared for r in reads(s.body)} & kernel.constants
    weights = {r.tensor for r in reads(shared[0].body)} & once
    group = make_group(shared, stored, types, {}, frozenset(weights), pad=False)
    anchor, *nests = group.nests
    if anchor.combine != "sum" or anchor.body.dtype != I32 or anchor.own or not nests:
        return None
    if anchor.output in stored or len(weights) != 1:
        return None
    return _product(anchor, _without_copies(nests, stored), stored)


def _without_copies(nests: Sequence[Nest], stored: frozenset[str]) -> tuple[Nest, ...]:
    """Replaces values that another nest only copies by that nest's own."""
    kept: list[Nest] = []
    for nest in nests:
        before = kept[-1] if kept else None
        is_copy = isinstance(nest.body, Read) and not nest.body.indices
        if (
            before is not None
            and is_copy
            and before.output not in stored
            and (nest.body == Read(before.output, (), nest.body.dtype))
        ):
            others = [n for n in nests if n is not nest and _uses(n, before.output)]
            if not others:
                kept[-1] = replace(before, output=nest.output, store=nest.store)
                continue
        kept.append(nest)
    return tuple(kept)


def _uses(nest: Nest, tensor: str) -> bool:
    return any(read.tensor == tensor for read in reads(nest.body))


def _product(anchor: Nest, nests: tuple[Nest, ...], stored: frozenset[str]) -> Product | None:
    conditions, body = neutral_guards(anchor.body, "sum", I32)
    match body:
        case Apply("mul", (left, right), _):
            pass
        case _:
            return None
    for one, other in ((left, right), (right, left)):
        operand, weights = _difference(one), _weight(other)
        if operand is not None and weights is not None and len(weights.indices) == 2:
            if conditions and not operand.fades:
                return None
            found = replace(operand, conditions=(*conditions, *operand.conditions))
            return _arranged(anchor, nests, stored, found, weights)
    return None


def _arranged(
    anchor: Nest,
    nests: tuple[Nest, ...],
    stored: frozenset[str],
    operand: ByteOperand,
    weights: Read,
) -> Product | None:
    row_index, place = weights.indices
    by_name = {v.name: v for v in anchor.variables}
    if not isinstance(row_index, Sym) or row_index.name not in {v.name for v in anchor.parallel}:
        return None
    row = by_name[row_index.name]
    ones = {v.name: 0 for v in anchor.variables if v.extent == 1}
    reduce = tuple(v for v in anchor.reduce if v.extent != 1)
    pixels = tuple(v for v in anchor.parallel if v != row and v.extent != 1)
    if symbols(place) & {v.name for v in anchor.parallel}:
        return None
    numbers = [v.extent for v in (row, *reduce, *pixels)]
    if not all(isinstance(n, int) for n in numbers):
        return None
    offset = substitute(operand.offset, ones)
    found = tuple(replace(c, left=substitute(c.left, ones)) for c in operand.conditions)
    if any(c.comparison != ">=" for c in found):
        return None
    bias, nests = _without_bias(anchor.output, nests, row)
    return Product(
        replace(operand, offset=offset, conditions=found),
        weights.tensor, weights.dtype, substitute(place, ones),
        prod(number_in(v.extent) for v in reduce), row, row.name in symbols(offset), pixels, reduce,
        bias, anchor.output, nests, stored,
    )  # fmt: skip


def _difference(scalar: Scalar) -> ByteOperand | None:
    """``i32(i16(read) - i16(number))``, or a read without the difference."""
    found: tuple[Condition, ...] = ()
    pad: float | None = None
    match scalar:
        case Cast(Apply("sub", (Cast(Read() as read, _), Number(value)), _), _):
            pass
        case Cast(Apply("sub", (Cast(Guard(conditions, Read() as read, Number(pad))), zero), _), _):
            if zero != Number(pad, zero.dtype):
                return None
            value, found = pad, conditions
        case Cast(Guard(conditions, Read() as read, Number(pad)), _):
            value, found = 0, conditions
        case Cast(Read() as read, _):
            value = 0
        case _:
            return None
    if read.dtype not in (I8, U8, I16) or len(read.indices) != 1 or (value and read.dtype == I16):
        return None
    border = int(value if pad is None else pad)
    return ByteOperand(read.tensor, read.indices[0], int(value), found, border, read.dtype)


def _weight(scalar: Scalar) -> Read | None:
    match scalar:
        case Cast(Read(dtype=dtype) as read, _) if dtype in (I8, I16):
            return read
        case _:
            return None


def _without_bias(
    total: str, nests: tuple[Nest, ...], row: LoopVar
) -> tuple[Read | None, tuple[Nest, ...]]:
    """The bias of each row that is first added to the sum, which is then initialised with it."""
    nodes = [node for nest in nests for node in walk(nest.body)]
    uses = [n for n in nodes if isinstance(n, Read) and n.tensor == total]
    found = [n for n in nodes if isinstance(n, Apply) and _is_bias(n, total, row)]
    if len(set(found)) != 1 or len(uses) != len(found):
        return None, nests
    add = found[0]
    sums, bias = sorted(add.args, key=lambda a: isinstance(a, Read) and a.tensor != total)
    assert isinstance(bias, Read)

    def visit(node: Scalar) -> Scalar:
        return sums if node == add else node

    return bias, tuple(replace(n, body=transform(n.body, visit)) for n in nests)


def _is_bias(node: Apply, total: str, row: LoopVar) -> bool:
    if node.function != "add":
        return False
    names = [a.tensor for a in node.args if isinstance(a, Read)]
    others = [a for a in node.args if isinstance(a, Read) and a.tensor != total]
    if len(names) != 2 or total not in names or len(others) != 1:
        return False
    return others[0].tensor != total and place_in_row(others[0], row) is not None


def place_in_row(read: Read, row: LoopVar) -> tuple[int, int] | None:
    """How many elements a tensor has per row, and which of them is read; None if it is read
    otherwise."""
    if len(read.indices) != 1:
        return None
    width = coefficient(read.indices[0], row.name)
    place = substitute(read.indices[0], {row.name: 0})
    if not isinstance(width, int) or not isinstance(place, int):
        return None
    return (width, place) if 0 <= place < width else None


def number_in(index: Index | None) -> int:
    """``index`` if it is an integer, else 0."""
    return index if isinstance(index, int) else 0
