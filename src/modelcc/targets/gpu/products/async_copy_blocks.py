"""A software pipeline: blocks of terms (K) are copied to shared memory while others are multiplied.

  the first blocks are copied, a commit group each
  for each block
    wait for its commit group, barrier
    the block that comes ``buffers - 1`` later is copied to the buffer of the previous one
    its products

One barrier per block suffices: after it, no thread uses the buffer that is filled next.  Elements
that cannot be copied are loaded before the products and stored to the buffer after them; with a
single buffer, after a second barrier.
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
from modelcc.targets.gpu.products.staged_tile import TileCopier


@dataclass(frozen=True)
class AsyncCopyBlocks:
    """The ``blocks`` of a group from number ``first`` on, whose operands ``readers`` bring into
    ``buffers`` stages of shared memory.  With ``again``, the last block is copied once more into an
    unused buffer, where that is cheaper than a condition."""

    readers: Sequence[TileCopier]
    names: FreshNames
    buffers: int
    blocks: Index
    first: Index
    ranges: Bounds
    again: bool = False

    @property
    def _ahead(self) -> int:
        """The distance in blocks from the one that is multiplied to the one that is copied."""
        return max(self.buffers - 1, 1)

    def statements(
        self, outer: Evaluation, multiply: Callable[[Index], Sequence[Stmt]]
    ) -> list[Stmt]:
        """All blocks; ``multiply`` gives the products of one in a buffer."""
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
