"""AMX: products of matrices of bf16 by tiles, added in f32.

A tile has up to 16 rows of 64 bytes.  ``TDPBF16PS`` adds even and odd terms of a step apart, and
takes numbers too small to be normal as 0, so results may differ from the meaning in the last bits
(Intel's Software Developer's Manual).  A routine tells the processor which tiles there are, and
gives them back when it is done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count, product
from math import prod
from typing import TypeAlias

from modelcc.ir.index import Index, Sym
from modelcc.ir.loop import (
    Buffer,
    Const,
    Convert,
    For,
    Function,
    Let,
    Load,
    MulAdd,
    Parameter,
    Splat,
    Stmt,
    Store,
    Var,
)
from modelcc.ir.types import BF16, F32
from modelcc.targets.isa.templates import RoutineText

ROWS = 16
"""Of a tile, at most."""

COLUMNS = 16
"""Of a panel: results of a tile side by side."""

DEPTHS = (32, 16)
"""Terms of a step: a whole tile's, or half of them."""

FEATURES = ("+amx-tile", "+amx-bf16")

Loops: TypeAlias = tuple[tuple[int, int], ...]
"""(count, stride) of loops, outermost first."""


@dataclass(frozen=True)
class TileProduct:
    """``c[r, j] = sum[k] a[r, k] * b[k, j]``: ``tiles`` of ``tile`` rows, by ``panels`` of columns.

    Strides are those of ``a``: of tiles, of a ``row``, of ``steps`` of ``depth`` terms side by
    side.  ``b`` has, ``panel`` apart, pairs of terms for each column of a panel, in the order of
    the steps.  Results lie row by row.
    """

    tile: int
    tiles: Loops
    row: int
    panels: int
    panel: int
    steps: Loops
    depth: int

    @property
    def rows(self) -> int:
        """All rows of ``c``."""
        return self.tile * prod(n for n, _ in self.tiles)

    @property
    def width(self) -> int:
        """Columns of ``c``."""
        return COLUMNS * self.panels

    @property
    def terms(self) -> int:
        """Of a sum."""
        return self.depth * prod(n for n, _ in self.steps)

    @property
    def name(self) -> str:
        """Tells all of it."""
        loops = ("_".join(f"{n}x{s}" for n, s in each) for each in (self.tiles, self.steps))
        tiles, steps = loops
        numbers = f"{self.tile}x{self.row}_{tiles}_by_{self.panels}x{self.panel}"
        return f"tile_product_{numbers}_of_{steps}_{self.depth}"


@cache
def tile_product(p: TileProduct) -> Function:
    """The routine, on ``%c``, ``%a`` and ``%b``."""
    a_size = sum((n - 1) * s for n, s in (*p.tiles, *p.steps, (p.tile, p.row))) + p.depth
    b_size = (p.panels - 1) * p.panel + p.terms * COLUMNS
    c = Parameter(Buffer("c", F32, p.rows * p.width), mutable=True)
    taken = (Parameter(Buffer("a", BF16, a_size)), Parameter(Buffer("b", BF16, b_size)))
    row, panel, pair, odd = map(Sym, ("r", "p", "k", "q"))
    place, source = _along("t", p.tiles)
    step, moved = _along("s", p.steps)
    at = (place * p.tile + row) * p.width + panel * COLUMNS
    a = Load("a", source + row * p.row + moved + pair * 2 + odd, BF16)
    first = panel * p.panel + step * (p.depth * COLUMNS) + pair * (2 * COLUMNS) + odd
    b = Convert(Load("b", first, BF16, COLUMNS, 2), F32)
    total = MulAdd(
        Splat(Convert(a, F32), COLUMNS), Var("terms", F32, COLUMNS), Load("c", at, F32, COLUMNS)
    )
    body: tuple[Stmt, ...] = (Let("terms", b), Store("c", at, total))
    for name, extent in (("q", 2), ("k", p.depth // 2), *_counters("s", p.steps)):
        body = (For(name, 0, extent, body),)
    body = (Store("c", at, Const(0, F32, COLUMNS)), *body)
    for name, extent in (("p", p.panels), ("r", p.tile), *_counters("t", p.tiles)):
        body = (For(name, 0, extent, body),)
    return Function(p.name, (c, *taken), (), body)


def _counters(stem: str, loops: Loops) -> Iterator[tuple[str, int]]:
    """Innermost first."""
    for number in reversed(range(len(loops))):
        yield f"{stem}{number}", loops[number][0]


def _along(stem: str, loops: Loops) -> tuple[Index, Index]:
    """How many iterations there were before this one, and how far they are from the first."""
    number: Index = 0
    moved: Index = 0
    for position, (extent, stride) in enumerate(loops):
        counter = Sym(f"{stem}{position}")
        number, moved = number * extent + counter, moved + counter * stride
    return number, moved


def routine_text(routine: Function) -> RoutineText | None:
    """How processors with AMX compute a :func:`tile_product`."""
    p = _named(routine.name)
    if p is None or routine != tile_product(p):
        return None
    return RoutineText(routine, "x86_64", FEATURES, llvm=(_LlvmText(p).text, *DECLARATIONS))


RULES = (routine_text,)

_NAME = re.compile(r"tile_product_(\d+)x(\d+)_(\w*)_by_(\d+)x(\d+)_of_(\w*)_(\d+)")


def _named(name: str) -> TileProduct | None:
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    tile, row, tiles, panels, panel, steps, depth = found.groups()
    numbers = map(int, (tile, row, panels, panel, depth))
    tile, row, panels, panel, depth = numbers
    return TileProduct(tile, _loops(tiles), row, panels, panel, _loops(steps), depth)


def _loops(text: str) -> Loops:
    pairs = (each.split("x") for each in text.split("_"))
    return tuple((int(n), int(stride)) for n, stride in pairs)


class _LlvmText:
    """Sums of up to two tiles of rows by two panels stay in tiles: 0 to 3 have the sums, 4 and 5
    rows, 6 and 7 columns."""

    def __init__(self, p: TileProduct) -> None:
        self._p = p
        self._lines: list[str] = []
        self._numbers = count()
        self._block = "entry"
        self._call("ldtilecfg", f"ptr @{p.name}.tiles")
        self._loop(p.panels // 2, lambda pair: self._panels(pair, 2))
        if p.panels % 2:
            self._panels(str(p.panels // 2), 1)
        self._call("tilerelease", "")

    @property
    def text(self) -> str:
        """The routine's definition."""
        p = self._p
        config = f'@{p.name}.tiles = private constant [64 x i8] c"{_config(p)}", align 64'
        head = f"define internal void @{p.name}(ptr noalias %c, ptr noalias %a, ptr noalias %b) #0"
        body = "\n".join(("entry:", *self._lines, "ret void"))
        return f"{config}\n{head} {{\n{body}\n}}"

    def _panels(self, pair: str, columns: int) -> None:
        """All rows by some panels."""
        p = self._p
        b = self._moved("%b", ((pair, 2 * p.panel * 2),))
        c = self._moved("%c", ((pair, 2 * COLUMNS * 4),))
        places = product(*(range(n) for n, _ in p.tiles))
        starts = [sum(i * s for i, (_, s) in zip(at, p.tiles, strict=True)) for at in places]
        for first in range(0, len(starts), 2):
            tiles = [self._moved("%a", (("1", 2 * start),)) for start in starts[first : first + 2]]
            row = p.tile * p.width * 4
            sums = [self._moved(c, (("1", (first + i) * row),)) for i in range(len(tiles))]
            self._sums(tiles, b, sums, columns)

    def _sums(self, rows: Sequence[str], b: str, sums: Sequence[str], columns: int) -> None:
        """All terms of some tiles."""
        p = self._p
        tiles = [(i, j) for i in range(len(rows)) for j in range(columns)]
        for i, j in tiles:
            self._call("tilezero", f"i8 {2 * i + j}")
        self._steps(p.steps, (), rows, b, columns)
        for i, j in tiles:
            place = self._moved(sums[i], (("1", j * COLUMNS * 4),))
            self._call("tilestored64", f"i8 {2 * i + j}, ptr {place}, i64 {4 * p.width}")

    def _steps(
        self, rest: Loops, at: tuple[str, ...], rows: Sequence[str], b: str, columns: int
    ) -> None:
        if rest:
            (extent, _), *inner = rest
            self._loop(extent, lambda i: self._steps(tuple(inner), (*at, i), rows, b, columns))
            return
        p = self._p
        moved = [(i, 2 * stride) for i, (_, stride) in zip(at, p.steps, strict=True)]
        steps = [prod(n for n, _ in p.steps[k + 1 :]) for k in range(len(p.steps))]
        b = self._moved(b, [(i, n * p.depth * COLUMNS * 2) for i, n in zip(at, steps, strict=True)])
        for j in range(columns):
            place = self._moved(b, (("1", j * p.panel * 2),))
            self._call("tileloadd64", f"i8 {6 + j}, ptr {place}, i64 64")
        for i, row in enumerate(rows):
            place = self._moved(row, moved)
            self._call("tileloadd64", f"i8 {4 + i}, ptr {place}, i64 {2 * p.row}")
            for j in range(columns):
                self._call("tdpbf16ps", f"i8 {2 * i + j}, i8 {4 + i}, i8 {6 + j}")

    def _loop(self, extent: int, body: Callable[[str], None]) -> None:
        """``body`` for each index below ``extent``."""
        if extent == 1:
            body("0")
        if extent < 2:
            return
        name, before = f"l{next(self._numbers)}", self._block
        self._lines += [f"br label %{name}", f"{name}:"]
        self._lines.append(f"%{name}.i = phi i64 [ 0, %{before} ], [ %{name}.j, %{name}.next ]")
        self._block = name
        body(f"%{name}.i")
        self._lines += [
            f"br label %{name}.next",
            f"{name}.next:",
            f"%{name}.j = add i64 %{name}.i, 1",
        ]
        self._lines.append(f"%{name}.more = icmp ult i64 %{name}.j, {extent}")
        self._lines.append(f"br i1 %{name}.more, label %{name}, label %{name}.end")
        self._lines.append(f"{name}.end:")
        self._block = f"{name}.end"

    def _moved(self, pointer: str, steps: Iterable[tuple[str, int]]) -> str:
        """``pointer`` and so many times so many bytes."""
        for times, bytes in steps:
            if times == "0" or bytes == 0:
                continue
            offset = (
                str(int(times) * bytes)
                if times.isdigit()
                else self._named(f"mul i64 {times}, {bytes}")
            )
            pointer = self._named(f"getelementptr i8, ptr {pointer}, i64 {offset}")
        return pointer

    def _named(self, value: str) -> str:
        name = f"%v{next(self._numbers)}"
        self._lines.append(f"{name} = {value}")
        return name

    def _call(self, name: str, operands: str) -> None:
        self._lines.append(f"call void @llvm.x86.{name}({operands})")


DECLARATIONS = (
    "declare void @llvm.x86.ldtilecfg(ptr)",
    "declare void @llvm.x86.tilerelease()",
    "declare void @llvm.x86.tilezero(i8)",
    "declare void @llvm.x86.tileloadd64(i8, ptr, i64)",
    "declare void @llvm.x86.tilestored64(i8, ptr, i64)",
    "declare void @llvm.x86.tdpbf16ps(i8, i8, i8)",
)


def _config(p: TileProduct) -> str:
    """Palette 1, and for each tile bytes of a row and rows."""
    sizes = [*[(p.tile, 64)] * 4, *[(p.tile, 2 * p.depth)] * 2, *[(p.depth // 2, 64)] * 2]
    wide = [byte for _, bytes in sizes for byte in (bytes, 0)]
    numbers = [1, *[0] * 15, *wide, *[0] * 16, *(rows for rows, _ in sizes), *[0] * 8]
    return "".join(f"\\{n:02X}" for n in numbers)
