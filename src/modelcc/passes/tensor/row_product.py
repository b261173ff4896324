"""Products whose operand is made by stages that walk its rows: norms, softmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from modelcc.ir.index import Index, Sym, symbols
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Apply, Cast, Guard, Scalar, Stage
from modelcc.ir.types import TensorType
from modelcc.passes.tensor.reduction_domain import reduction_domain


@dataclass(frozen=True)
class RowProduct:
    """Stages of ``rows``, the last of which makes an operand of ``product``, and those of the
    product and of what follows it, which read nothing else of the rows."""

    rows: tuple[Stage, ...]
    product: tuple[Stage, ...]

    @property
    def operand(self) -> str:
        """What the rows come to."""
        return self.rows[-1].output


def match_row_product(stages: Sequence[Stage]) -> RowProduct | None:
    """``stages`` as rows and a product of them, the last one if there are several; None if they
    are no such."""
    for cut in range(len(stages) - 1, 0, -1):
        found = RowProduct(tuple(stages[:cut]), tuple(stages[cut:]))
        if stages[cut].reduce and _are_rows(found.rows) and _multiplies_rows(found):
            return found
    return None


def written_type(stage: Stage) -> TensorType | None:
    """The type of what a stage fills, an element for each point; None if it does not."""
    extents = {axis.name: axis.extent for axis in stage.axes}
    shape: list[Index] = []
    for index in stage.write:
        if isinstance(index, Sym) and index.name in extents:
            shape.append(extents.pop(index.name))
        elif index == 0:
            shape.append(1)
        else:
            return None
    left = any(extent != 1 for extent in extents.values())
    return None if left else TensorType(tuple(shape), stage.body.dtype)


def _are_rows(stages: Sequence[Stage]) -> bool:
    """Whether all walk the same rows, and the last one gives an element for each place of them."""
    if not any(stage.reduce for stage in stages) or written_type(stages[-1]) is None:
        return False
    domain = reduction_domain(stages)
    if domain is None:
        return False
    last = domain.stages[-1]
    return domain.walks_rows(last) and not domain.repeats(last)


def _multiplies_rows(found: RowProduct) -> bool:
    """Whether only sums of products read what the rows come to, along the terms, and nothing else
    of them is read."""
    made = {stage.output for stage in found.rows}
    for stage in found.product:
        own = {read for read in reads(stage.body) if read.tensor in made}
        if any(read.tensor != found.operand for read in own):
            return False
        terms = {axis.name for axis in stage.reduce}
        along = all(any(symbols(i) & terms for i in read.indices) for read in own)
        if own and not (along and _is_sum_of_products(stage, found.operand)):
            return False
    return bool({found.operand} & {r.tensor for r in reads(found.product[0].body)})


def _is_sum_of_products(stage: Stage, operand: str) -> bool:
    """Whether one factor of a stage's terms, and only one, is made of ``operand``."""
    body = _inside(stage.body)
    if stage.combine != "sum" or not (isinstance(body, Apply) and body.function == "mul"):
        return False
    return sum(any(r.tensor == operand for r in reads(factor)) for factor in body.args) == 1


def _inside(body: Scalar) -> Scalar:
    while isinstance(body, Guard | Cast):
        body = body.inside if isinstance(body, Guard) else body.value
    return body
