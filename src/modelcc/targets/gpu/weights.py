"""In which order weights of products lie: terms as the other operand has them, so that both are
read side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from modelcc.ir.index import Index, Sym, symbols
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Read, Stage
from modelcc.ir.types import I8, Layout, Part
from modelcc.schedule.canonical import CanonicalKernel


def with_weights(kernel: CanonicalKernel, layouts: Mapping[str, Layout]) -> CanonicalKernel:
    """``kernel``, whose operands lie as ``layouts`` say."""
    types = ((n, replace(t, layout=layouts.get(n, t.layout))) for n, t in kernel.types)
    return replace(kernel, types=tuple(types))


def weight_layouts(kernel: CanonicalKernel) -> dict[str, Layout]:
    """Of weights that images are convolved with: constants whose results lie side by side in the
    product.  Terms are in the order of the image's dimensions; results are innermost, or, of bytes,
    which matrix units read by terms only, these."""
    stage, *later = kernel.stages
    found = _weight_and_image(kernel, stage)
    if found is None:
        return {}
    weight, image = found
    if any(read.tensor == weight.tensor for other in later for read in reads(other.body)):
        return {}
    order = _order(weight, image, stage)
    if order is None or order == list(range(len(order))):
        return {}
    return {weight.tensor: Layout(tuple(map(Part, order)), ((0, 0),) * len(order))}


def _weight_and_image(kernel: CanonicalKernel, stage: Stage) -> tuple[Read, Read] | None:
    """What is convolved, if the first one is a constant that lies as it is written."""
    found = list(dict.fromkeys(reads(stage.body)))
    if stage.combine != "sum" or len(found) != 2:
        return None
    weights = [read for read in found if read.tensor in kernel.constants]
    if len(weights) != 1 or len(stage.reduce) < 2:
        return None
    (weight,) = weights
    plain = dict(kernel.types)[weight.tensor].layout is None
    if not plain or len({_axis(i, stage) for i in weight.indices} - {""}) < len(weight.indices):
        return None
    (image,) = (read for read in found if read is not weight)
    return weight, image


def _axis(index: Index, stage: Stage) -> str:
    """The axis that ``index`` goes along, of a part of it if terms are cut into parts; empty if it
    goes along several others, or none."""
    moving = symbols(index)
    terms = moving.intersection(a.name for a in stage.reduce)
    alone = terms or moving
    return next(iter(alone)) if len(alone) == 1 else ""


def _order(weight: Read, image: Read, stage: Stage) -> list[int] | None:
    """Dimensions of ``weight`` from the outermost to the innermost one."""
    results = {a.name for a in stage.axes}
    names = [_axis(i, stage) for i in weight.indices]
    moving = [symbols(i) for i in image.indices]
    shared = frozenset[str]().union(*moving)
    batch = [d for d, name in enumerate(names) if name in results & shared]
    columns = [d for d, name in enumerate(names) if name in results - shared]
    terms = [d for d, name in enumerate(names) if name not in results]
    if not columns or stage.write[-1] != Sym(names[columns[-1]]):
        return None
    if any(names[d] not in shared for d in terms):
        return None
    terms.sort(key=lambda d: max(n for n, own in enumerate(moving) if names[d] in own))
    return [*batch, *columns, *terms] if weight.dtype == I8 else [*batch, *terms, *columns]
