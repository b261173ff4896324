"""Steps planned within a larger schedule: tiles and rows, in sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from modelcc.schedule.schedule import Rows, ScheduleError, Step, Tiled
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.pieces import Piece
from modelcc.targets.cpu.plan import Plan
from modelcc.targets.cpu.rows import RowPlan


@dataclass
class Steps:
    """Steps in statement order, as ``wanted``; without any, by default.

    ``made`` records the schedule of each, with its stages if tiled.
    """

    wanted: tuple[Step, ...] = ()
    made: list[tuple[Piece | None, Step]] = field(default_factory=list[tuple[Piece | None, Step]])

    @property
    def schedules(self) -> tuple[Step, ...]:
        """The schedule of each step."""
        return tuple(step for _, step in self.made)

    def tiled(self, piece: Piece, machine: CpuModel) -> Plan:
        """The plan of the next step; :class:`ScheduleError` if the wanted one does not fit."""
        wanted = self._next()
        if isinstance(wanted, Rows):
            raise ScheduleError(f"step {len(self.made) + 1} is tiled, not rows")
        plan, _ = piece.plan(machine, wanted)
        self.made.append((piece, plan.schedule))
        return plan

    def rows(self, plan: Callable[[Rows | None], RowPlan | None]) -> RowPlan:
        """The same for a step along rows, planned by ``plan``."""
        wanted = self._next()
        if isinstance(wanted, Tiled):
            raise ScheduleError(f"step {len(self.made) + 1} is rows, not tiled")
        found = plan(wanted)
        assert found is not None
        self.made.append((None, found.schedule))
        return found

    def _next(self) -> Step | None:
        number = len(self.made)
        if not self.wanted:
            return None
        if number >= len(self.wanted):
            raise ScheduleError(f"there are more steps than {number}")
        if self.wanted[number].parallel != 1:
            raise ScheduleError("a function forks once, for the whole: steps are not parallel")
        return self.wanted[number]

    def check(self) -> None:
        """:class:`ScheduleError` if more steps were wanted than there are."""
        if len(self.wanted) > len(self.made):
            raise ScheduleError(f"there are {len(self.made)} steps, not {len(self.wanted)}")
