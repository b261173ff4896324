"""Layouts of products' weights: terms (K) in the order of the other operand, so that both are read
contiguously, in aligned rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from math import prod

from modelcc.ir.index import Index, Sym, symbols
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Read, Stage
from modelcc.ir.types import BF16, F16, I8, DType, Layout, Part, TensorType
from modelcc.passes.tensor.row_product import match_row_product
from modelcc.passes.tensor.twin_products import twin_stages
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.products.staged_tile import VECTOR_BYTES
from modelcc.targets.gpu.products.tensor_product import UNSIGNED, families
from modelcc.targets.gpu.sizes import FEW, number
from modelcc.targets.isa.fragments import INTEGERS


def with_weights(kernel: CanonicalKernel, layouts: Mapping[str, Layout]) -> CanonicalKernel:
    """``kernel`` with operands in these ``layouts``."""
    types = ((n, replace(t, layout=layouts.get(n, t.layout))) for n, t in kernel.types)
    return replace(kernel, types=tuple(types))


def weight_layouts(kernel: CanonicalKernel, machine: GpuModel) -> dict[str, Layout]:
    """Layouts of weights that images are convolved with: constants, read with results contiguous.
    Terms are in the order of the image's dimensions.  Results are innermost, or terms are: for
    bytes, which tensor cores read by terms only, and where rows of results would not be aligned.  A
    matrix gets a layout only in these cases, that of bytes where ``machine`` has matrix
    instructions for them, if there are enough results for tiles.  For
    windows over one or a few channels, channels are innermost, if they are so in images.  Twin
    products have the same order, or none; terms are innermost in a 16-bit matrix, so that halves of
    tiles may have any width (boxes of columns restrict it)."""
    found = match_row_product(kernel.stages)
    first, *later = kernel.stages if found is None else found.product
    if later and later[0].reduce and twin_stages((first, *later)) is not None:
        second, *rest = later
        each = [_layouts(kernel, one, rest, machine, True) for one in (first, second)]
        parts = {layout.parts for found in each for layout in found.values()}
        return {**each[0], **each[1]} if all(each) and len(parts) == 1 else {}
    return _layouts(kernel, first, later, machine)


def _layouts(
    kernel: CanonicalKernel,
    stage: Stage,
    later: Sequence[Stage],
    machine: GpuModel,
    by_term: bool = False,
) -> dict[str, Layout]:
    """The layout of the weight of ``stage``, unless one of ``later`` stages reads it; with terms
    innermost (``by_term``) for 16-bit types, if possible."""
    found = _weight_and_image(kernel, stage)
    if found is None:
        return {}
    weight, image = found
    if any(read.tensor == weight.tensor for other in later for read in reads(other.body)):
        return {}
    type_ = dict(kernel.types)[weight.tensor]
    innermost = len(stage.reduce) == 1 and (
        _are_multiplied(weight.dtype, machine) and not _has_few_columns(weight, image, stage, type_)
        if weight.dtype in INTEGERS
        else by_term and weight.dtype in (F16, BF16)
    )
    order = _order(weight, image, stage, type_, innermost)
    if order is None or order == list(range(len(order))):
        return {}
    return {weight.tensor: Layout(tuple(map(Part, order)), ((0, 0),) * len(order))}


def _are_multiplied(dtype: DType, machine: GpuModel) -> bool:
    """Whether ``machine`` has matrix instructions for bytes ``dtype``."""
    return not {*families(dtype), UNSIGNED}.isdisjoint(machine.matrix)


def _has_few_columns(weight: Read, image: Read, stage: Stage, type_: TensorType) -> bool:
    """Whether a matrix has too few of them for tiles."""
    rows = frozenset[str]().union(*map(symbols, image.indices))
    names = [_axis(i, stage) for i in weight.indices]
    own = {a.name for a in stage.axes} - rows
    return prod(number(type_.shape[d]) for d, name in enumerate(names) if name in own) < FEW


def filter_order(
    stage: Stage, weight: str, types: Mapping[str, TensorType]
) -> tuple[int, ...] | None:
    """The order that dimensions of ``weight``, a filter of windows over an image, would have as a
    constant; None if it has that one, or the stage is something else."""
    found = list(dict.fromkeys(reads(stage.body)))
    if stage.combine != "sum" or len(found) != 2 or weight not in {r.tensor for r in found}:
        return None
    own, image = found if found[0].tensor == weight else reversed(found)
    if image.tensor == weight or not _is_plain(own, stage, types[weight]):
        return None
    rows = {a.name for a in stage.axes} - {_axis(i, stage) for i in own.indices}
    if not moves_windows(image, stage) or _are_few(stage, rows):
        return None
    order = _order(own, image, stage, types[weight], False)
    return None if order is None or order == list(range(len(order))) else tuple(order)


def moves_windows(image: Read, stage: Stage) -> bool:
    """Whether neighbouring results read the same elements of it, as other terms."""
    terms, results = ({a.name for a in axes} for axes in (stage.reduce, stage.axes))
    return any(symbols(i) & terms and symbols(i) & results for i in image.indices)


def _is_plain(weight: Read, stage: Stage, type_: TensorType) -> bool:
    """Whether it has its original layout, and each dimension moves along an axis of its own."""
    moving = [i for i in weight.indices if not isinstance(i, int)]
    return type_.layout is None and len({_axis(i, stage) for i in moving} - {""}) == len(moving)


def _weight_and_image(kernel: CanonicalKernel, stage: Stage) -> tuple[Read, Read] | None:
    """The weight and the image of a convolution, if the weight is a constant as it was given."""
    found = list(dict.fromkeys(reads(stage.body)))
    if stage.combine != "sum" or len(found) != 2:
        return None
    weights = [read for read in found if read.tensor in kernel.constants]
    if len(weights) != 1:
        return None
    (weight,) = weights
    if not _is_plain(weight, stage, dict(kernel.types)[weight.tensor]):
        return None
    (image,) = (read for read in found if read is not weight)
    return weight, image


def _axis(index: Index, stage: Stage) -> str:
    """The axis of ``index``, or of a part of it if terms are split into parts; empty if there are
    several, or none."""
    moving = symbols(index)
    terms = moving.intersection(a.name for a in stage.reduce)
    alone = terms or moving
    return next(iter(alone)) if len(alone) == 1 else ""


def _order(
    weight: Read, image: Read, stage: Stage, type_: TensorType, by_term: bool
) -> list[int] | None:
    """Dimensions of ``weight`` from the outermost to the innermost one; terms are innermost if
    ``by_term`` and rows of them are aligned."""
    results = {a.name for a in stage.axes}
    names = [_axis(i, stage) for i in weight.indices]
    moving = [symbols(i) for i in image.indices]
    shared = frozenset[str]().union(*moving)
    batch = [d for d, name in enumerate(names) if name in results & shared]
    columns = [d for d, name in enumerate(names) if name in results - shared]
    terms = [d for d, name in enumerate(names) if name not in results]
    if not columns and batch:
        return _of_one_channel(weight, image, stage)
    if not columns or stage.write[-1] != Sym(names[columns[-1]]):
        return None
    if any(names[d] not in shared for d in terms):
        return None
    terms.sort(key=lambda d: max(n for n, own in enumerate(moving) if names[d] in own))
    off = bool(terms) and not _on_boundaries(type_, columns) and _on_boundaries(type_, terms)
    rows = results - {name for name in names if name}
    if terms and _on_boundaries(type_, terms) and (by_term or _are_few(stage, rows)):
        return [*batch, *columns, *terms]
    if len(stage.reduce) == 1:
        few = prod(number(type_.shape[d]) for d in columns) < FEW
        return [*batch, *columns, *terms] if off and not few else None
    return [*batch, *columns, *terms] if off or weight.dtype == I8 else [*batch, *terms, *columns]


def _are_few(stage: Stage, rows: Set[str]) -> bool:
    """Whether a product has so few rows that it is bound by reading the weight: a constant number,
    as a weight has one layout for all values of a named number."""
    extents = [a.extent for a in stage.axes if a.name in rows]
    return all(isinstance(e, int) for e in extents) and prod(map(number, extents)) < FEW


def _of_one_channel(weight: Read, image: Read, stage: Stage) -> list[int] | None:
    """Dimensions of weights of windows over one or a few channels: channels innermost, if they are
    so in the image and in the result."""
    terms = {a.name for a in stage.reduce}
    names = [_axis(i, stage) for i in weight.indices]
    moved = {a.name for a in stage.axes}.difference(names)
    windows = any(symbols(i) & terms and symbols(i) & moved for i in image.indices)
    channels = [d for d, name in enumerate(names) if name and name not in terms]
    last = names[channels[-1]]
    if not windows or stage.write[-1] != Sym(last) or last not in symbols(image.indices[-1]):
        return None
    return [*(d for d in range(len(names)) if d not in channels), *channels]


def _on_boundaries(type_: TensorType, dims: Sequence[int]) -> bool:
    """Whether rows along the last of ``dims`` are aligned to vectors."""
    extent = type_.shape[dims[-1]]
    return isinstance(extent, int) and extent * type_.dtype.bytes % VECTOR_BYTES == 0
