"""Loop variables of pixels that are numbered in the order of memory."""

from __future__ import annotations

from modelcc.ir.index import Index, Sym, floordiv, mod
from modelcc.ir.loop import BindIndex, IndexOf, Stmt
from modelcc.ir.types import I64
from modelcc.schedule.expression import FreshNames
from modelcc.targets.mcu.products import Product


def pixel_at(
    product: Product, number: Index, names: FreshNames
) -> tuple[dict[str, Index], list[Stmt]]:
    """Loop variables of ``product`` at a pixel, and what binds them."""
    if product.step(product.operand.offset) and not product.operand.conditions:
        return product.at(number), []
    bound: list[Stmt] = []
    point: dict[str, Index] = {}
    for position, v in reversed(list(enumerate(product.pixels))):
        own = mod(number, v.extent) if position else number
        name = names.fresh(v.name)
        bound.append(BindIndex(name, IndexOf(own, I64)))
        point[v.name] = Sym(name)
        number = floordiv(number, v.extent)
    return point, bound
