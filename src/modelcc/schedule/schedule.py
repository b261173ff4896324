"""Schedules: how the loops of one kernel run.  Data; no schedule changes what is computed.

Loops are called as :mod:`modelcc.schedule.nest` names those of the canonical kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from modelcc.schedule.group_schedule import GroupSchedule

Factors: TypeAlias = tuple[tuple[str, int], ...]
"""Loops and numbers of their points."""

Exchange: TypeAlias = Literal["", "load", "store", "runs"]
"""What is exchanged within a tile: vectors ``load`` ed or ``store`` d across memory are transposed
in registers, short ``runs`` of several rows are moved together."""


@dataclass(frozen=True)
class Tiled:
    """Stages that share their axes, in register tiles.

    Loop ``vector`` is cut into vectors of ``lanes`` (none: one point at a time).  ``tile`` has the
    points of a tile along parallel loops, ``unroll`` those of an iteration along loops of a sum,
    whose steps go in the order of the inputs they read if ``by_input``.  ``dots``: steps of the sum
    are dot products, of four bytes or two bf16.  ``folded``: vectors lie along the sum and are
    folded at its end.  ``matrices``: a tile is a block of sums in memory, by instructions for
    products of matrices.  ``padded``: loops run over whole blocks of padded axes.  ``blocks`` has
    the points of parts that loops of a product are cut into, so that what a part reads stays in
    cache: the one along vectors goes around the loops that use these again, that of the sum around
    all rows.  The outermost loop is divided into ``parallel`` parts at least (1: it is not).
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
    """Stages that walk rows several times while these are in cache: in vectors of ``lanes``,
    ``unroll`` of them at once where a row is summed up."""

    lanes: int = 1
    unroll: int = 1
    parallel: int = 1


Step: TypeAlias = Tiled | Rows
"""A part of a schedule that is planned by itself."""


@dataclass(frozen=True)
class StraightRows:
    """Rows in ``parts`` that are loops of their own (none: as it seems best)."""

    parts: tuple[Tiled, ...] = ()
    parallel: bool = False


@dataclass(frozen=True)
class RowBlocks:
    """Two contractions of which one sums rows of the other, by blocks of ``rows`` and ``keys``
    (0: all keys at once).

    ``scores`` and ``total`` are the tiles of the two products in a whole block (None: those that
    seem best).  ``steps`` has all else in the order of its statements: what is done to rows of
    scores, products in what is left at the ends (none: as it seems best).
    """

    rows: int
    keys: int = 0
    parallel: bool = False
    scores: Tiled | None = None
    total: Tiled | None = None
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class RowSums:
    """One row times a matrix of which ``terms`` rows at once (0: as many as seem best) are added to
    sums in the first cache, by blocks of ``block`` columns.

    ``steps`` are in the order of their statements (none: as it seems best): sums are cleared, rows
    are added, what is left of rows, results are written; and again for columns that are no whole
    block.
    """

    block: int
    parallel: bool = False
    terms: int = 0
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class ComputeAt:
    """Stages of several iteration spaces, which alternate block by block if ``parallel`` or if
    there are blocks."""

    groups: tuple[Tiled, ...]
    parallel: bool = False


Part: TypeAlias = Tiled | Rows | StraightRows
"""How stages that belong together run."""


@dataclass(frozen=True)
class Parts:
    """Unrelated parts of a kernel, one after the other."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class LibraryCall:
    """A product of matrices by ``symbol`` of the library ``name``."""

    name: str
    symbol: str


Schedule: TypeAlias = Parts | RowBlocks | RowSums | ComputeAt | LibraryCall | GroupSchedule
"""How a kernel runs."""


class ScheduleError(Exception):
    """A schedule that does not fit a kernel or a machine, and why."""


class NoScheduleError(Exception):
    """The stages of a kernel share neither their axes nor their rows."""
