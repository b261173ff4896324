"""Loop variables of pixels numbered in memory order, and reversed loops over pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from modelcc.ir.index import Index, Sym, floordiv, mod
from modelcc.ir.loop import BindIndex, For, IndexOf, Stmt
from modelcc.ir.types import I64
from modelcc.schedule.expression import FreshNames
from modelcc.targets.mcu.products import Product
from modelcc.targets.mcu.some_rows import BEGIN, END, SomeRows


def pixel_at(
    product: Product, number: Index, names: FreshNames
) -> tuple[dict[str, Index], list[Stmt]]:
    """Loop variables of ``product`` at a pixel, and the statements that bind them."""
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


def backwards(
    product: Product, body: Sequence[Stmt], some: SomeRows | None, names: FreshNames
) -> list[Stmt]:
    """``body`` for every pixel, or those of some rows, from the last one to the first."""
    for n, v in reversed(list(enumerate(product.pixels))):
        rows = n == 0 and some is not None and some.rows > 1
        begin, end = (Sym(BEGIN), Sym(END)) if rows else (cast(Index, 0), v.extent)
        turn = names.fresh(v.name)
        last = BindIndex(v.name, IndexOf(begin + end - 1 - Sym(turn), I64))
        body = [For(turn, begin, end, (last, *body))]
    if some is not None and some.rows == 1:
        return [For(names.fresh("row"), Sym(BEGIN), Sym(END), tuple(body))]
    return list(body)
