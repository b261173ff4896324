"""Schedules that were asked for, by the keys of kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from modelcc.schedule.listing import DIRECT, Listing
from modelcc.schedule.schedule import Schedule

ALGORITHM = "algorithm "
"""What precedes the key of a contraction among tuned kernels, with ``direct`` for its text."""


@dataclass(frozen=True)
class Wanted:
    """Those ``given`` by a user's file must fit, and be of kernels that there are.

    ``tuned`` are texts that a database has of kernels of any model, maybe from another version of
    the compiler: one that does not fit is not used.
    """

    given: Listing = field(default_factory=Listing)
    tuned: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def anything(self) -> bool:
        """Whether any kernel might not have its default."""
        return bool(self.given.schedules or self.given.direct or self.tuned)

    @property
    def direct(self) -> frozenset[str]:
        """Keys of contractions that are computed as they are, whatever a target expects."""
        tuned = (name for name, text in self.tuned.items() if text == DIRECT)
        return self.given.direct | {name.removeprefix(ALGORITHM) for name in tuned}


def as_given(schedules: Mapping[str, Schedule]) -> Wanted:
    """What a file with ``schedules`` asks for, on any machine."""
    return Wanted(Listing("", schedules))
