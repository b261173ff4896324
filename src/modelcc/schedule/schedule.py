"""Schedules: how the loops of one kernel run.  Data; no schedule changes what is computed.

Loops are called as :mod:`modelcc.schedule.nest` names those of the canonical kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from modelcc.schedule.group_schedule import GroupSchedule

Factors: TypeAlias = tuple[tuple[str, int], ...]
"""Loops and their factors."""

Exchange: TypeAlias = Literal["", "load", "store", "runs"]
"""How data are exchanged within a tile: strided vectors to ``load`` or to ``store`` are transposed
in registers, short ``runs`` of several rows are moved together."""


@dataclass(frozen=True)
class Tiled:
    """Stages that share their axes, in register tiles.

    Loop ``vector`` is vectorised by ``lanes`` (none: scalar code).  ``tile`` has the tile sizes of
    parallel loops, ``unroll`` the unroll factors of reduction loops, whose steps follow the order
    of the inputs they read if ``by_input``.  ``dots``: reduction steps are dot products, of four
    bytes or two bf16.  ``folded``: vectors lie along the reduction and are reduced horizontally at
    its end.  ``matrices``: a tile is a block of sums in memory, by instructions for products of
    matrices.  ``padded``: loops run over whole blocks of padded axes.  ``blocks`` has the sizes of
    cache blocks of a product's loops: the block along vectors goes around the loops that reuse it,
    that of the reduction around all rows.  The outermost loop is divided into ``parallel`` parts at
    least (1: serial).
    """

    vector: str = ""
    lanes: int = 1
    tile: Factors = ()
    unroll: Factors = ()
    blocks: Factors = ()
    by_input: bool = False
    exchange: Exchange = ""
    dots: bool = False
    folded: bool = False
    padded: bool = True
    matrices: bool = False
    parallel: int = 1


@dataclass(frozen=True)
class Rows:
    """Stages that traverse rows several times while these are in cache: in vectors of ``lanes``,
    ``unroll`` of them at once in reductions of a row."""

    lanes: int = 1
    unroll: int = 1
    parallel: int = 1


Step: TypeAlias = Tiled | Rows
"""A part of a schedule that is planned independently."""


@dataclass(frozen=True)
class StraightRows:
    """Rows in ``parts``, each with its own loop (none: chosen by default)."""

    parts: tuple[Tiled, ...] = ()
    parallel: bool = False


@dataclass(frozen=True)
class RowBlocks:
    """Two contractions, the second of which sums rows of the first, by blocks of ``rows`` and
    ``keys`` (0: all keys at once).

    ``scores`` and ``total`` are the tiles of the two products in a whole block (None: default).
    ``steps`` has all others in statement order: operations on rows of scores, products in the
    remainders (none: default).
    """

    rows: int
    keys: int = 0
    parallel: bool = False
    scores: Tiled | None = None
    total: Tiled | None = None
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class RowSums:
    """One row times a matrix, of which ``terms`` rows at once (0: default) are added to sums in the
    L1 cache, by blocks of ``block`` columns.

    ``steps`` are in statement order (none: default): sums are cleared, rows are added, the
    remaining rows, results are written; and again for the partial block of columns.
    """

    block: int
    parallel: bool = False
    terms: int = 0
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class ComputeAt:
    """Stages of several iteration spaces, interleaved block by block if ``parallel`` or if
    there are blocks."""

    groups: tuple[Tiled, ...]
    parallel: bool = False


Part: TypeAlias = Tiled | Rows | StraightRows
"""The schedule of stages that belong together."""


@dataclass(frozen=True)
class Parts:
    """Unrelated parts of a kernel, one after the other."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class LibraryCall:
    """A matrix product by ``symbol`` of the library ``name``."""

    name: str
    symbol: str


Schedule: TypeAlias = Parts | RowBlocks | RowSums | ComputeAt | LibraryCall | GroupSchedule
"""How a kernel runs."""


class ScheduleError(Exception):
    """A schedule that does not fit a kernel or a machine; the message says why."""


class NoScheduleError(Exception):
    """Raised if the stages of a kernel share neither their axes nor their rows."""
