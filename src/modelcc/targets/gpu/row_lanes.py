"""How the threads of a group read rows of keys or values, each by lanes side by side."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.index import Index, floordiv, minimum, mod
from modelcc.ir.tensor import Condition
from modelcc.schedule.group_schedule import FlashDecoding, GroupDecode


@dataclass(frozen=True)
class RowLanes:
    """Rows of ``size`` elements in vectors of ``lanes``, read by ``threads`` in warps of ``warp``:
    ``across`` lanes of a warp have ``own`` vectors each, and as many rows at once as there are
    ``slots``."""

    size: int
    threads: int
    warp: int
    lanes: int

    @staticmethod
    def of(size: int, s: GroupDecode | FlashDecoding) -> RowLanes:
        """As a schedule says."""
        return RowLanes(size, s.threads, s.warp, s.lanes)

    @property
    def vectors(self) -> int:
        """Of a row."""
        return self.size // self.lanes

    @property
    def across(self) -> int:
        """Lanes that have a row together, a power of two."""
        return min(1 << (self.vectors - 1).bit_length(), self.warp)

    @property
    def own(self) -> int:
        """Vectors of a lane."""
        return -(-self.vectors // self.across)

    @property
    def pitch(self) -> int:
        """Elements of a row and what lanes have beyond it."""
        return self.own * self.across * self.lanes

    @property
    def slots(self) -> int:
        """Rows at once."""
        return self.threads // self.across

    def within(self, lane: Index) -> Index:
        """The number of a warp's ``lane`` among those that read a row together."""
        return mod(lane, self.across)

    def slot(self, warp: Index, lane: Index) -> Index:
        """The number of a lane's row among those that are read at once."""
        return warp * (self.warp // self.across) + floordiv(lane, self.across)

    def vector(self, lane: Index, own: int) -> tuple[Index, tuple[Condition, ...]]:
        """The number of a lane's vector ``own``, or the row's last one, and what says that there is
        such a vector."""
        vector = self.within(lane) + own * self.across
        if (own + 1) * self.across <= self.vectors:
            return vector, ()
        return minimum(vector, self.vectors - 1), (Condition(vector, "<", self.vectors),)
