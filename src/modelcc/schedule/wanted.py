"""Schedules requested by users and tuning, by the keys of kernels, and choices above kernels."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from modelcc.schedule.listing import ALGORITHM, MODEL, Listing


@dataclass(frozen=True)
class Wanted:
    """Those ``given`` by a user's file must fit, and match kernels of the model.

    ``tuned`` are texts that a database has of kernels of any model, and of this model as a whole,
    maybe from another version of the compiler: those that do not fit are ignored.  ``choices`` are
    the values that a target has for a model as a whole, by name.
    """

    given: Listing = field(default_factory=Listing)
    tuned: Mapping[str, str] = field(default_factory=dict[str, str])
    choices: Mapping[str, Collection[str]] = field(default_factory=dict[str, Collection[str]])

    @property
    def anything(self) -> bool:
        """Whether any kernel might not use its default."""
        return bool(self.given.schedules or self.given.algorithms or self.tuned)

    @property
    def algorithms(self) -> Mapping[str, str]:
        """Algorithms requested for contractions, by their keys, regardless of the target's
        estimate."""
        return {**_named(self.tuned, ALGORITHM), **self.given.algorithms}

    @property
    def model(self) -> Mapping[str, str]:
        """Choices for the model as a whole."""
        tuned = _named(self.tuned, MODEL).items()
        chosen = {name: value for name, value in tuned if value in self.choices.get(name, ())}
        return {**chosen, **self.given.model}

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages on tuned choices for the model as a whole that are no longer known."""
        return tuple(
            f"model {name}: tuning chose {value!r}, which is unknown; tune the model anew"
            for name, value in _named(self.tuned, MODEL).items()
            if value not in self.choices.get(name, ())
        )


def _named(texts: Mapping[str, str], kind: str) -> dict[str, str]:
    """Entries whose names begin with ``kind``, with that prefix removed."""
    return {n.removeprefix(kind): text for n, text in texts.items() if n.startswith(kind)}
