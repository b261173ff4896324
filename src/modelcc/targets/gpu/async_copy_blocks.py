"""Blocks of terms that are copied to shared memory while threads multiply those before.

  the first blocks are copied, a batch each
  for each block
    wait for its batch, barrier
    the block that comes ``buffers - 1`` later is copied to the buffer that the last one was in
    its products

One barrier for a block is enough: behind it nobody uses the buffer that is filled next any more.
Elements that cannot be copied are read before the products, and put into the buffer behind them; if
there is only one, behind a second barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from modelcc.ir.copies import CommitCopies, WaitCopies
from modelcc.ir.index import Bounds, Index, Range, Sym, compare, minimum, mod, symbols
from modelcc.ir.loop import Barrier, For, Stmt
from modelcc.ir.tensor import Condition
from modelcc.schedule.expression import FreshNames
from modelcc.targets.gpu.evaluation import Evaluation, only_where
from modelcc.targets.gpu.staged_tile import TileCopier


@dataclass(frozen=True)
class AsyncCopyBlocks:
    """A group's ``blocks``, the one with number ``first`` and those behind it, whose operands
    ``readers`` bring into so many ``buffers``.  Behind the last one it is read ``again``, where
    that is better than a condition, into a buffer that nobody uses."""

    readers: Sequence[TileCopier]
    names: FreshNames
    buffers: int
    blocks: Index
    first: Index
    ranges: Bounds
    again: bool = False

    @property
    def _ahead(self) -> int:
        """Blocks from the one that is multiplied to the one that is on its way."""
        return max(self.buffers - 1, 1)

    def statements(
        self, outer: Evaluation, multiply: Callable[[Index], Sequence[Stmt]]
    ) -> list[Stmt]:
        """All blocks, of which one in a buffer is what ``multiply`` makes of its number."""
        return [*self._first_blocks(outer), self._all_blocks(outer, multiply)]

    def _first_blocks(self, outer: Evaluation) -> list[Stmt]:
        result: list[Stmt] = []
        for block in range(self._ahead):
            inner = outer.nested()
            for reader in self.readers:
                reader.begin(block, self.first + block, inner, self.ranges)
                inner.statements += reader.put(block)
            result += self._where_block(block, self.ranges, inner.statements)
            result.append(CommitCopies())
        return result

    def _where_block(self, block: Index, ranges: Bounds, body: Sequence[Stmt]) -> list[Stmt]:
        known = compare(block, "<", self.blocks, ranges)
        if known is not None:
            return list(body) if known else []
        return only_where((Condition(block, "<", self.blocks),), body)

    def _all_blocks(self, outer: Evaluation, multiply: Callable[[Index], Sequence[Stmt]]) -> Stmt:
        ahead = self._ahead
        block, inner, copies = self.names.fresh("kb"), outer.nested(), outer.nested()
        which = inner.bind("now", mod(Sym(block), self.buffers))
        into = inner.bind("next", mod(Sym(block) + ahead, self.buffers))
        ranges = {**self.ranges, block: Range(0, self.blocks - 1)}
        there = {**ranges, block: Range(0, self.blocks - 1 - ahead)}
        for reader in self.readers:
            if not reader.holds:
                reader.begin(into, self.first + Sym(block) + ahead, copies, there)
        inner.statements += [WaitCopies(ahead - 1), Barrier()]
        copied = self._where_block(Sym(block) + ahead, ranges, copies.statements)
        inner.statements += [*(copied if self.buffers > 1 else ()), CommitCopies()]
        held = [reader for reader in self.readers if reader.holds]
        coming: Index = Sym(block) + ahead
        if held and self.again:
            coming = inner.bind("kb", minimum(coming, self.blocks - 1))
            ranges = {**ranges, **dict.fromkeys(symbols(coming), Range(0, self.blocks - 1))}
        for reader in held:
            reader.fetch(self.first + coming, inner, ranges)
        inner.statements += multiply(which)
        if self.buffers == 1:
            inner.statements += [Barrier(), *copied]
        for reader in held:
            inner.statements += reader.put(into)
        return For(block, 0, self.blocks, tuple(inner.statements))
