"""How tiles of m × m outputs cover the images of a Winograd convolution."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from modelcc.ir.index import Index, Sym
from modelcc.ir.tensor import Axis

ROW, COLUMN, IMAGE, BLOCK = "wr", "wt", "wn", "wb"


@dataclass(frozen=True)
class Span:
    """``count`` tiles from ``start``, of which ``outputs`` rows (or columns) exist."""

    start: int
    count: int
    outputs: int


@dataclass(frozen=True)
class TileRegion:
    """A rectangle of equal tiles, indexed by the symbols of its ``axes``."""

    rows: Span
    columns: Span


@dataclass(frozen=True)
class Tiles:
    """Tiles of ``m`` × ``m`` over ``images`` of ``height`` × ``width`` outputs.

    With ``blocks`` > 1, the rows of tiles are split into that many equal blocks, each with
    intermediate values of its own: :attr:`outer` axes come first in them.  Images of an unknown
    number are at least such blocks.
    """

    m: int
    images: Index
    height: int
    width: int
    blocks: int = 1

    @property
    def rows(self) -> int:
        """Rows of tiles of one image."""
        return -(-self.height // self.m)

    @property
    def columns(self) -> int:
        """Columns of tiles."""
        return -(-self.width // self.m)

    @property
    def apart(self) -> bool:
        """Whether blocks have values of their own."""
        return self.blocks > 1 or not isinstance(self.images, int)

    @property
    def outer(self) -> tuple[Axis, ...]:
        """Axes over blocks."""
        if not self.apart:
            return ()
        return (Axis(IMAGE, self.images), Axis(BLOCK, self.blocks))

    def inner(self, part: TileRegion) -> tuple[Axis, ...]:
        """Axes over the tiles of ``part`` (in one block)."""
        within = (Axis(ROW, part.rows.count), Axis(COLUMN, part.columns.count))
        return within if self.apart else (Axis(IMAGE, self.images), *within)

    @property
    def everything(self) -> TileRegion:
        """All tiles (of a block)."""
        rows = self.rows // self.blocks
        return TileRegion(Span(0, rows, self.m), Span(0, self.columns, self.m))

    def parts(self) -> Iterator[TileRegion]:
        """Rectangles of tiles whose outputs exist alike: whole ones, edges, the corner."""
        rows = self.rows // self.blocks
        for vertical in _spans(rows, self.height if self.blocks == 1 else rows * self.m, self.m):
            for across in _spans(self.columns, self.width, self.m):
                yield TileRegion(vertical, across)

    @property
    def count(self) -> int:
        """Tiles of a block."""
        images = self.images if isinstance(self.images, int) and not self.apart else 1
        return images * (self.rows // self.blocks) * self.columns

    def number(self, part: TileRegion) -> Index:
        """The tile's number within its block."""
        row: Index = Sym(ROW) + part.rows.start
        if not self.apart:
            row = Sym(IMAGE) * self.rows + row
        return row * self.columns + Sym(COLUMN) + part.columns.start

    def corner(self, part: TileRegion) -> tuple[Index, Index]:
        """Row and column of the tile's first output."""
        row: Index = Sym(ROW) + part.rows.start
        if self.blocks > 1:
            row = Sym(BLOCK) * (self.rows // self.blocks) + row
        return row * self.m, (Sym(COLUMN) + part.columns.start) * self.m


def _spans(tiles: int, extent: int, m: int) -> tuple[Span, ...]:
    whole, rest = divmod(extent, m)
    found = (Span(0, whole, m), Span(whole, tiles - whole, rest))
    return tuple(s for s in found if s.count)
