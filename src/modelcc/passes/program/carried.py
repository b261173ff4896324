"""Memory of a loop's states: updated in place where possible, else double-buffered.

In place, the next state is computed over the current one, which is dead, or which the kernel may
overwrite::

    repeat [t < 8] carry(%c = %first then %n last %end) { call @gate(%c, %n) in place }

becomes: %first, %c, %n and %end are one buffer.  Otherwise, if the trip count is known when the
program starts, the buffer has two halves, and offsets follow the counter's parity: %c is at
``size * (t mod 2)``, %n at ``size * ((t + 1) mod 2)``.  If it is not, states are copied back.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from modelcc.ir.index import Index, Sym, bounds_of, mod
from modelcc.ir.loop import Function
from modelcc.ir.memory_rules import ALIGNMENT
from modelcc.ir.program import Launch, Program
from modelcc.ir.region import Carry
from modelcc.passes.loop.lead import MOMENTS, CallAccess, lead_of_calls
from modelcc.passes.program.dynamic_allocation import aligned
from modelcc.passes.program.storage import Storage, storage_of
from modelcc.passes.program.timeline import LoopSpan, Timeline


def share_carried(
    line: Timeline,
    storages: Sequence[Storage],
    over: Container[str] = (),
    alignment: int = ALIGNMENT,
) -> tuple[Storage, ...]:
    """Storages after merging those of the states of every loop; next states in ``over`` may
    overwrite current ones, others use a half that starts at a multiple of ``alignment``."""
    sharing = _Sharing(line, storages, over, alignment)
    for span in line.loops:
        for carry in span.loop.carries:
            sharing.merge(span, carry)
    return tuple(dict.fromkeys(sharing.home.values()))


class _Sharing:
    def __init__(
        self, line: Timeline, storages: Sequence[Storage], over: Container[str], alignment: int
    ) -> None:
        self._line = line
        self._alignment = alignment
        self._over = over
        self.home = storage_of(storages)
        self._taken: set[str] = set()

    def merge(self, span: LoopSpan, carry: Carry) -> None:
        """Merges the storages of a carry's states, as far as possible."""
        state, following = self.home[carry.state], self.home[carry.next]
        together = self._free(carry.state) and self._free(carry.next)
        alternate = span.loop.trips is not None and span.loop.condition is None
        if together and (carry.next in self._over or _in_place(self._line, carry)):
            self._keep(span, [state, following, *self._ends(span, carry)])
        elif together and alternate:
            self._halves(span, carry)
        elif self._free(carry.state):
            self._keep(span, [state, *self._ends(span, carry)])
        else:
            self._keep(span, [state])

    def _halves(self, span: LoopSpan, carry: Carry) -> None:
        state, following = self.home[carry.state], self.home[carry.next]
        half, turn = aligned(state.size, self._alignment), Sym(span.loop.counter)
        offsets: dict[str, Index] = dict.fromkeys(state.tensors, half * mod(turn, 2))
        offsets |= dict.fromkeys(following.tensors, half * mod(turn + 1, 2))
        ends = [s for s in self._ends(span, carry) if s.place == "arena"]
        if span.loop.trips is not None and self.home[carry.last] in ends:
            at_end = half * mod(span.loop.trips, 2)
            offsets |= dict.fromkeys(self.home[carry.last].tensors, at_end)
        self._keep(span, [state, following, *ends], offsets, 2 * half)

    def _ends(self, span: LoopSpan, carry: Carry) -> list[Storage]:
        """Storages of the initial and the last state, if the loop may use these."""
        initial, last = self.home[carry.initial], self.home[carry.last]
        ends = [initial] if self._free(carry.initial) and initial.last == span.begin else []
        free = self._taken.isdisjoint(last.tensors) and last.place in ("arena", "output")
        return [*ends, last] if free else ends

    def _free(self, name: str) -> bool:
        storage = self.home[name]
        return storage.place == "arena" and self._taken.isdisjoint(storage.tensors)

    def _keep(
        self,
        span: LoopSpan,
        group: Sequence[Storage],
        offsets: Mapping[str, Index] | None = None,
        size: Index | None = None,
    ) -> None:
        """One storage for ``group``, live throughout the loop."""
        keeper = next((s for s in group if s.place == "output"), group[0])
        merged = replace(
            keeper,
            tensors=tuple(n for storage in group for n in storage.tensors),
            size=keeper.size if size is None else size,
            first=min(span.begin, *(s.first for s in group)),
            last=max(span.end, *(s.last for s in group)),
            within={**keeper.within, **(offsets or {})},
        )
        self.home |= dict.fromkeys(merged.tensors, merged)
        self._taken.update(merged.tensors)


def slid_states(program: Program, line: Timeline) -> dict[str, str]:
    """Next states that a function may write over current ones, since it reads these last and
    before; with the name of the function."""
    bounds = line.bounds(program.dims)
    found: dict[str, str] = {}
    for carry in (carry for span in line.loops for carry in span.loop.carries):
        step, needed = min(line.touches[carry.next]), line.needed(carry.state)
        call = line.calls.get(step)
        callee = program.callee[call.callee] if isinstance(call, Launch) else None
        if needed is None or needed[1] != step or not isinstance(callee, Function):
            continue
        assert isinstance(call, Launch)
        named = [(p.buffer.name, n) for p, n in zip(callee.parameters, call.arguments, strict=True)]
        results, operands = (
            frozenset(own for own, name in named if name == tensor)
            for tensor in (carry.next, carry.state)
        )
        sizes = tuple(bounds_of(size, bounds) for size in call.sizes)
        least = lead_of_calls([CallAccess(callee, sizes, results, operands)], MOMENTS)
        if least is not None and least.before == 0:
            found[carry.next] = callee.name
    return found


def _in_place(line: Timeline, carry: Carry) -> bool:
    """Whether the next state may overwrite the current one."""
    written = min(line.touches[carry.next])
    needed = line.needed(carry.state)
    assert needed is not None
    if needed[1] != written:
        return needed[1] < written
    call = line.calls.get(written)
    return isinstance(call, Launch) and (carry.next, carry.state) in call.in_place
