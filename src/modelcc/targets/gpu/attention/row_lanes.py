"""How the threads of a group load rows of keys or values, several neighbouring lanes for each."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.index import Index, floordiv, minimum, mod
from modelcc.ir.tensor import Condition
from modelcc.schedule.group_schedule import FlashDecoding, GroupDecode


@dataclass(frozen=True)
class RowLanes:
    """Rows of ``size`` elements in vectors of ``lanes``, loaded by ``threads`` in warps of
    ``warp``: ``across`` lanes of a warp have ``own`` vectors each of a row, and ``slots`` rows are
    loaded at once."""

    size: int
    threads: int
    warp: int
    lanes: int

    @staticmethod
    def of(size: int, s: GroupDecode | FlashDecoding) -> RowLanes:
        """The distribution by a schedule."""
        return RowLanes(size, s.threads, s.warp, s.lanes)

    @property
    def vectors(self) -> int:
        """Vectors of a row."""
        return self.size // self.lanes

    @property
    def across(self) -> int:
        """Lanes that load a row together, a power of two."""
        return min(1 << (self.vectors - 1).bit_length(), self.warp)

    @property
    def own(self) -> int:
        """Vectors of a lane."""
        return -(-self.vectors // self.across)

    @property
    def pitch(self) -> int:
        """Elements of a row, padded to the lanes' vectors."""
        return self.own * self.across * self.lanes

    @property
    def slots(self) -> int:
        """Rows at once."""
        return self.threads // self.across

    def within(self, lane: Index) -> Index:
        """The index of a warp's ``lane`` among those that load a row together."""
        return mod(lane, self.across)

    def slot(self, warp: Index, lane: Index) -> Index:
        """The index of a lane's row among those that are loaded at once."""
        return warp * (self.warp // self.across) + floordiv(lane, self.across)

    def vector(self, lane: Index, own: int) -> tuple[Index, tuple[Condition, ...]]:
        """The index of a lane's vector ``own``, or of the row's last one, and the condition that
        there is such a vector."""
        vector = self.within(lane) + own * self.across
        if (own + 1) * self.across <= self.vectors:
            return vector, ()
        return minimum(vector, self.vectors - 1), (Condition(vector, "<", self.vectors),)
