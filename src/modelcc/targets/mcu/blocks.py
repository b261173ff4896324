"""Blocks of a product: some pixels by some rows of weights, with their epilogue.

If its parameters depend on rows alone, as in requantization, it is a routine shared by all layers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from modelcc.ir.argument import Argument
from modelcc.ir.condition import Condition
from modelcc.ir.index import Index, Sym, minimum, substitute
from modelcc.ir.loop import (
    Alloc,
    Buffer,
    Const,
    Expr,
    For,
    Function,
    If,
    Load,
    Parameter,
    Predicate,
    RoutineCall,
    Stmt,
    Store,
)
from modelcc.ir.loop_text import print_function
from modelcc.ir.scalar_tree import map_indices, reads, transform
from modelcc.ir.tensor import Apply, Cast, IndexValue, Number, Read, Scalar
from modelcc.ir.types import I32, I64, DType
from modelcc.schedule.expression import FreshNames, PointEmitter
from modelcc.schedule.nest import LoopVar
from modelcc.targets.mcu.products import Product, place_in_row

WORD = 4
"""Bytes of a word."""

_DIGITS = 8
_STEP, _PIXEL, _ROW = "step", "pixel", "row"


@dataclass(frozen=True)
class SumBlock:
    """``pixels`` by ``rows`` of the sums of a product; ``whole``: all rows of a block exist."""

    product: Product
    names: FreshNames
    pixels: int
    rows: int
    whole: bool

    def statements(
        self, start: Index, first: Index, dot: Callable[[str], RoutineCall], limit: Index
    ) -> list[Stmt]:
        """The block at pixel ``start`` and row ``first`` of ``limit``, whose sums ``dot``
        computes."""
        sums, count = self.names.fresh("sums"), self.pixels * self.rows
        body: list[Stmt] = [Alloc(Buffer(sums, I32, count, "local", WORD))]
        emitter = PointEmitter(self.names, None)
        for row in range(self.rows):
            bias = self._bias(emitter, first + row, limit)
            body += self._taken(emitter)
            places = range(row * self.pixels, (row + 1) * self.pixels)
            body += [Store(sums, place, bias) for place in places]
        body.append(dot(sums))
        for row in range(self.rows):
            own = emitter if self.whole or row == 0 else PointEmitter(self.names, None)
            found: list[Stmt] = []
            for pixel in range(self.pixels):
                total = Load(sums, row * self.pixels + pixel, I32)
                found += self._epilogue(own, start + pixel, first + row, total)
            there = Predicate((Condition(first + row, "<", limit),))
            body += found if own is emitter else [If(there, tuple(found))]
        return body

    def rest(
        self, start: Index, first: Index, dot: Callable[[str], RoutineCall], count: Index
    ) -> list[Stmt]:
        """The ``count`` remaining rows from ``first`` on, in sequence."""
        sums, row = self.names.fresh("sums"), self.names.fresh("row")
        emitter = PointEmitter(self.names, None)
        bias = self._bias(emitter, first + Sym(row), first + count)
        before = (*self._taken(emitter), Store(sums, Sym(row), bias))
        total = Load(sums, Sym(row), I32)
        after = self._epilogue(emitter, start, first + Sym(row), total)
        return [
            Alloc(Buffer(sums, I32, self.rows, "local", WORD)),
            For(row, 0, count, before),
            dot(sums),
            For(row, 0, count, tuple(after)),
        ]

    def _bias(self, emitter: PointEmitter, row: Index, limit: Index) -> Expr:
        """The bias of a row; of the last one if the row does not exist."""
        bias = self.product.bias
        if bias is None:
            return Const(0, I32)
        there = row if self.whole else minimum(row, limit - 1)
        return emitter.emit(bias, {self.product.row.name: there}, {})

    def _epilogue(self, emitter: PointEmitter, pixel: Index, row: Index, total: Load) -> list[Stmt]:
        product = self.product
        point = {**product.at(pixel), product.row.name: row}
        values: dict[str, Expr] = {product.total: emitter.name("sum", total)}
        for nest in product.nests:
            value = emitter.emit(nest.body, point, values)
            if nest is not product.nests[-1]:
                value = values[nest.output] = emitter.name("v", value)
            if nest.output in product.stored:
                emitter.statements.append(Store(nest.output, substitute(nest.store, point), value))
        return self._taken(emitter)

    def _taken(self, emitter: PointEmitter) -> list[Stmt]:
        found, emitter.statements = emitter.statements, []
        return found


class RowTensor(NamedTuple):
    """The tensor ``name`` of a routine: ``width`` elements of ``tensor`` per row."""

    name: str
    tensor: str
    dtype: DType
    width: int


@dataclass(frozen=True)
class SharedRows:
    """A product as a routine for any number of rows: ``parameters`` are tensors of one or more
    elements per row, ``numbers`` scalars common to all rows, ``step`` is the distance of the
    results of consecutive pixels."""

    product: Product
    parameters: tuple[RowTensor, ...]
    numbers: tuple[int, ...]
    output: str

    @property
    def sizes(self) -> tuple[str, ...]:
        """The last sizes of the routine, which are ``numbers``."""
        return tuple(map(_number_name, range(len(self.numbers))))

    def buffers(self, rows: Index, pixels: int) -> list[Parameter]:
        """The last buffers of the routine."""
        taken = [Buffer(p.name, p.dtype, p.width * rows, align=WORD) for p in self.parameters]
        nest = next(n for n in self.product.nests if n.output in self.product.stored)
        size = Sym(_STEP) * (pixels - 1) + rows
        result = Buffer(nest.output, nest.body.dtype, size, align=WORD)
        return [*map(Parameter, taken), Parameter(result, mutable=True)]

    def arguments(self, own: Product, start: Index, row: Index = 0) -> list[Argument]:
        """Arguments for these of the product ``own``, from a pixel ``start`` and a row on."""
        point = {**own.at(start), own.row.name: row}
        store = next(n.store for n in own.nests if n.output in own.stored)
        parts = [Argument(p.tensor, p.width * row) for p in self.parameters]
        return [*parts, Argument(self.output, substitute(store, point))]


def shared_rows(product: Product) -> SharedRows | None:
    """None if there are several results, or parameters that depend on more than rows."""
    stored = [n for n in product.nests if n.output in product.stored]
    row = product.row
    found = [r for n in product.nests for r in reads(n.body) if r.indices]
    every = dict.fromkeys((*((product.bias,) if product.bias else ()), *found))
    places = {r: place_in_row(r, row) for r in every}
    widths = {r.tensor: place[0] for r, place in places.items() if place}
    if (
        len(stored) != 1
        or None in places.values()
        or not widths.keys().isdisjoint(product.stored)
        or any(place and place[0] != widths[r.tensor] for r, place in places.items())
        or substitute(stored[0].store, {row.name: 1})
        != (substitute(stored[0].store, {row.name: 0}) + 1)
    ):
        return None
    names = {tensor: f"p{n}" for n, tensor in enumerate(widths)}
    point, index = LoopVar(_PIXEL, 1 << 20, _PIXEL), LoopVar(_ROW, 1 << 20, _ROW)
    inner = {n.output: f"t{k}" for k, n in enumerate(product.nests)} | {product.total: "total"}
    inner[stored[0].output] = "y"

    numbers = _Numbers()

    def renamed(scalar: Scalar) -> Scalar:
        def visit(node: Scalar) -> Scalar:
            if not isinstance(node, Read):
                return numbers.taken_from(node)
            return replace(node, tensor=names.get(node.tensor, inner.get(node.tensor, node.tensor)))

        body = map_indices(scalar, lambda i: substitute(i, {row.name: Sym(_ROW)}))
        return transform(body, visit)

    store = Sym(_PIXEL) * Sym(_STEP) + Sym(_ROW)
    nests = tuple(
        replace(n, output=inner[n.output], store=store, body=renamed(n.body)) for n in product.nests
    )
    bias = renamed(product.bias) if product.bias else None
    assert bias is None or isinstance(bias, Read)
    general = replace(
        product, weights="weights", row=index, pixels=(point,), bias=bias, total="total",
        nests=nests, stored=frozenset({"y"}),
    )  # fmt: skip
    types = {r.tensor: r.dtype for r in every}
    parameters = (RowTensor(names[t], t, types[t], width) for t, width in widths.items())
    return SharedRows(general, tuple(parameters), tuple(numbers.found), stored[0].output)


@dataclass(frozen=True)
class _Numbers:
    """Multipliers, shifts and addends of an epilogue, which differ from layer to layer."""

    found: dict[int, str] = field(default_factory=dict[int, str])

    def taken_from(self, node: Scalar) -> Scalar:
        """``node`` with such a number replaced by a symbol."""
        match node:
            case Apply("mul", (x, Number(value)), dtype) if dtype == I64 and abs(value) < 1 << 31:
                return replace(node, args=(x, Cast(self._symbol(value), I64)))
            case Apply("shl", (Number(value), x), dtype) if dtype == I32:
                return replace(node, args=(self._symbol(value), x))
            case Apply("rounding_high_word" | "add", (x, Number(value)), dtype) if dtype == I32:
                return replace(node, args=(x, self._symbol(value)))
            case Apply("shr", (x, Number(value)), dtype) if dtype == I32 and value not in (1, 31):
                byte = Apply("and", (self._symbol(value), Number(255, I32)), I32)
                return replace(node, args=(x, byte))
            case _:
                return node

    def _symbol(self, value: float) -> Scalar:
        name = self.found.setdefault(int(value), _number_name(len(self.found)))
        return IndexValue(Sym(name), I32)


def _number_name(place: int) -> str:
    return f"n{place}"


def routine(
    stem: str, parameters: Sequence[Parameter], sizes: Sequence[str], body: Sequence[Stmt]
) -> Function:
    """The function under a unique name."""
    plain = Function(stem, tuple(parameters), tuple(sizes), tuple(body))
    digest = hashlib.sha256(print_function(plain).encode()).hexdigest()[:_DIGITS]
    return replace(plain, name=f"{stem}_{digest}")
