"""Schedules of kernels for accelerators: how they run as groups of threads.  Data, as all schedules
are; the text form is that of :mod:`modelcc.schedule.text`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Pointwise:
    """A thread for ``lanes`` neighbouring results, ``threads`` to a group.

    Each does all of a reduction; neighbours have neighbouring results.
    """

    threads: int
    lanes: int = 1


@dataclass(frozen=True)
class GroupTranspose:
    """Points by square tiles of ``side`` along two axes: an operand whose elements lie side by side
    along one of them goes through shared memory to results that do along the other one.
    ``threads`` of a group ``read`` vectors of so many elements, and have ``lanes`` points each."""

    side: int
    threads: int
    read: int = 1
    lanes: int = 1


@dataclass(frozen=True)
class GroupWindows:
    """Windows that overlap, by strips: each of the ``threads`` of a group has ``points`` results
    along an axis, of ``lanes`` neighbours each, and reads what several windows share once.

    A group has blocks of ``lines`` beside each other along another axis of the windows and of
    ``columns`` vectors (0: all there are), where these make up all its threads.
    """

    threads: int
    points: int
    lanes: int = 1
    lines: int = 1
    columns: int = 0


@dataclass(frozen=True)
class GroupArrays:
    """Stages that hand on small arrays, which are in registers: a thread for ``lanes`` neighbouring
    points of the axes that they share, ``threads`` to a group.

    Runs of stages that share other axes have groups of their own.
    """

    threads: int
    lanes: int = 1


@dataclass(frozen=True)
class GroupReduction:
    """``results`` of a group, each by ``threads``, a power of two, that take every so-manieth term
    and combine what they have.

    Neighbouring threads have neighbouring terms, or (``across``) neighbouring results.  Threads
    take vectors of ``lanes`` terms, and read so many of them ``ahead`` of the first that they use.
    Those of a ``warp`` combine registers, and then warps what they have in shared memory (1: all
    is in shared memory).  Of a contraction with so few ``rows`` the same threads have all of them,
    and a result is one of the other operand's.  Neighbours ``across`` are vectors of so many
    ``columns`` each.
    """

    threads: int
    results: int = 1
    across: bool = False
    lanes: int = 1
    warp: int = 1
    ahead: int = 1
    rows: int = 1
    columns: int = 1


@dataclass(frozen=True)
class GroupRows:
    """Stages that walk ``rows`` of a group, each by ``threads``, a power of two.

    A thread keeps its ``kept`` elements of a row in registers (0: it walks the row again for each
    reduction that needs all of an earlier one), vectors of ``lanes`` each.  A ``warp`` is as in
    :class:`GroupReduction`.  With ``ahead`` it keeps what is read after the reductions, too, which
    is on its way before them.
    """

    threads: int
    rows: int = 1
    kept: int = 0
    lanes: int = 1
    warp: int = 1
    ahead: bool = False


@dataclass(frozen=True)
class GroupRowProduct:
    """A contraction of few rows that stages before it make: each group makes all of these as
    ``rows`` says, in shared memory, with the same threads that then share the terms of its results
    as ``product`` says."""

    rows: GroupRows
    product: GroupReduction


@dataclass(frozen=True)
class GroupProduct:
    """A contraction by tiles of ``rows`` by ``columns`` results and ``terms`` of the sum in shared
    memory, of which a thread has ``thread_rows`` by ``thread_columns`` results in registers.

    A thread's columns lie side by side by ``lanes``.  With two ``buffers`` a tile is loaded while
    the one before is used; of more, all but one are being filled by copies.  ``parts`` are those of
    :class:`TensorProduct`.  ``interleaved`` threads of a warp share rows, and columns, two by two.
    With ``blocked`` sums the terms of a tile are added up by themselves first.
    """

    rows: int
    columns: int
    terms: int
    thread_rows: int
    thread_columns: int
    lanes: int = 1
    buffers: int = 1
    parts: int = 1
    interleaved: bool = False
    blocked: bool = False

    @property
    def threads(self) -> int:
        """Threads of a group."""
        return self.rows // self.thread_rows * (self.columns // self.thread_columns)


@dataclass(frozen=True)
class TensorProduct:
    """A contraction on matrix units: tiles of ``rows`` by ``columns`` results and ``terms`` of the
    sum in shared memory, which ``warp_rows`` by ``warp_columns`` warps multiply.

    Of so many ``buffers`` all but one are being filled while that one is used.  ``instruction`` is
    the family that warps of ``warp`` threads use (with ``wgmma`` four of them are one); a name that
    ends in ``tf32`` allows operands in f32 to be rounded to 10 bits of mantissa, one in ``tf32x3``
    has them as sums of two such numbers.  The terms of a tile are cut into ``parts``, of a group
    each, the last of which adds all sums.  Of so many ``groups`` each has several tiles, one after
    the other, and finishes the results of one while it multiplies the next (0: a group for each
    tile).  With ``wgmma`` and a tile for each group a thread has ``ahead`` registers for operands
    of what follows sums, to ask for before these are known.  Without ``copies`` operands pass
    through registers, where they are a block ahead, so that one buffer is enough.
    """

    rows: int
    columns: int
    terms: int
    warp_rows: int = 2
    warp_columns: int = 2
    buffers: int = 2
    instruction: str = "mma"
    parts: int = 1
    groups: int = 0
    ahead: int = 0
    warp: int = 32
    copies: bool = True

    @property
    def threads(self) -> int:
        """Threads of a group."""
        together = 4 * self.warp if self.instruction == "wgmma" else self.warp
        return together * self.warp_rows * self.warp_columns


@dataclass(frozen=True)
class GroupAttention:
    """Two contractions of which one sums rows of the other: blocks of ``rows``, which stay, and of
    ``keys``, which pass by, in shared memory; ``threads`` of a group have ``thread_rows`` rows
    each.  With ``lanes`` threads copy operands beside and load vectors of so many, and those of a
    ``warp`` exchange registers; they may be ``interleaved`` as those of :class:`GroupProduct`."""

    rows: int
    keys: int
    threads: int
    thread_rows: int
    lanes: int = 1
    warp: int = 1
    interleaved: bool = False


@dataclass(frozen=True)
class TensorAttention:
    """The same on matrix units: blocks of ``rows``, a warp for 16 of them, with ``wgmma`` four for
    64, with ``mfma`` one of 64 threads, with ``wmma_gfx11`` and ``wmma_gfx12`` one of 32, and of
    ``keys``."""

    rows: int
    keys: int
    instruction: str = "mma"

    @property
    def threads(self) -> int:
        """Threads of a group."""
        return (4 if self.instruction == "mfma" else 2) * self.rows


@dataclass(frozen=True)
class GroupChain:
    """Sums of rows of tiles that products make: blocks of ``rows``, which stay, and of ``keys``,
    which pass by, in shared memory; ``threads`` of a group have ``thread_rows`` rows each.  They
    load vectors of ``lanes`` and, with these, copy factors without registers if there are
    ``copies``."""

    rows: int
    keys: int
    threads: int
    thread_rows: int
    lanes: int = 1
    copies: bool = False


@dataclass(frozen=True)
class TensorChain:
    """The same on matrix units: a warp for 16 of a block's ``rows``, and blocks of ``keys``, of
    which the next one is copied while one is used."""

    rows: int
    keys: int

    @property
    def threads(self) -> int:
        """Threads of a group."""
        return 2 * self.rows


@dataclass(frozen=True)
class GroupDecode:
    """The same with few rows, whose scores a group has in shared memory; ``threads`` of a group
    read ``keys`` and values each at once, by vectors of ``lanes``, and those of a ``warp`` combine
    registers."""

    threads: int
    keys: int
    lanes: int
    warp: int


@dataclass(frozen=True)
class FlashDecoding:
    """Few rows by many keys: lanes that read a key together keep its row's largest score, sum and
    totals so far.  In a step they have ``keys``, and as many values, by vectors of ``lanes``, which
    each thread copies to as many ``buffers`` ahead; those of a ``warp`` combine registers.  Keys
    are cut into ``parts``, of a group each, the last of which puts all together."""

    threads: int
    keys: int
    lanes: int
    warp: int
    buffers: int = 2
    parts: int = 1


@dataclass(frozen=True)
class GroupScatter:
    """Updates at places from memory, ``threads`` to a group: each walks those that may meet, and
    does the ones that one of ``owners`` has: every so-manieth place."""

    threads: int
    owners: int = 1


@dataclass(frozen=True)
class ListedScatter:
    """The same by groups that look at each update once and list their own: those at every
    so-manieth place, of ``shares``.  Of a block each of the ``threads`` looks at as many as
    ``each``, and those of a ``warp`` add up counts in registers.  So many ``columns`` of an update
    have a thread each, vectors of ``lanes``; a group has as many updates at once as it has threads
    for them."""

    threads: int
    shares: int
    columns: int = 1
    each: int = 8
    lanes: int = 1
    warp: int = 1


GroupSchedule: TypeAlias = (
    Pointwise
    | GroupTranspose
    | GroupWindows
    | GroupArrays
    | GroupReduction
    | GroupRows
    | GroupRowProduct
    | GroupProduct
    | TensorProduct
    | GroupAttention
    | TensorAttention
    | GroupChain
    | TensorChain
    | GroupDecode
    | FlashDecoding
    | GroupScatter
    | ListedScatter
)
"""How a kernel runs as groups of threads."""
