"""Asynchronous calls, which return before the device is done: faults of indices are found later.

What each call notes comes to the host in memory of its own, and is looked at when the device says
that it is there. Whoever uses any of this has the device's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from modelcc.runtime.device import Device, LateCopy
from modelcc.runtime.device_recordings import FaultPlaces, IndexFault
from modelcc.runtime.errors import RunError

_MOST = 64
"""Calls that may be on their way; the next one waits for them."""


@dataclass(frozen=True)
class FaultReadback:
    """What recorded work has noted in ``places``, once its ``copy`` has come."""

    copy: LateCopy
    places: FaultPlaces

    def take(self) -> IndexFault | None:
        """The first index that is out of range."""
        return self.places.fault(self.copy.take())


@dataclass
class _Fault:
    """Of a call; ``reported`` if somebody has had the error."""

    text: str
    reported: bool = False

    def error(self, earlier: bool) -> RunError:
        """For whoever asks now, of an ``earlier`` call than the one that this is about."""
        self.reported = True
        return RunError(f"{self.text} (in an earlier call)" if earlier else self.text)


class PendingCall:
    """A call; its results are none if an index was out of range in it, or in a call among its
    ``sources``, whose results it computes with.  ``failure`` makes the error of the former."""

    def __init__(
        self, failure: Callable[[int, int], RunError], sources: Sequence[PendingCall] = ()
    ) -> None:
        self._failure = failure
        self._sources = sources
        self._notes: Sequence[FaultReadback] = ()
        self._fault: _Fault | None = None
        self._inherited = False
        self.ended = False
        """Whether it is known how."""

    @property
    def succeeded(self) -> bool:
        """Whether it is known to have ended, and well."""
        return self.ended and self._fault is None

    def begin(self, notes: Sequence[FaultReadback]) -> None:
        """It has been asked for, and will have noted this."""
        self._notes = notes

    def has_ended(self) -> bool:
        """Whether the device is done, without waiting."""
        return not self._notes or self._notes[-1].copy.has_come()

    def end(self) -> _Fault | None:
        """Look at what it has noted, when it :meth:`has_ended`, as have calls before: what nobody
        has been told yet."""
        found = [fault for notes in self._notes if (fault := notes.take()) is not None]
        if found:
            self._fault = _Fault(str(self._failure(*found[0])))
        else:
            self._fault = next(filter(None, (s._fault for s in self._sources)), None)
            self._inherited = self._fault is not None
        self._notes = self._sources = ()
        self.ended = True
        return self._fault if found else None

    def refuse(self, earlier: bool = False) -> None:
        """RunError if its results are known to be none, each time; ``earlier`` if a call is being
        made that would take them."""
        if self._fault is not None:
            raise self._fault.error(earlier or self._inherited)


class PendingCalls:
    """Those of a model, in their order."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._begun: deque[PendingCall] = deque()
        self._faults: deque[_Fault] = deque()

    def add(self, call: PendingCall, notes: Sequence[FaultReadback]) -> None:
        """It has been asked for; what it has noted comes with ``notes``."""
        call.begin(notes)
        self._begun.append(call)
        if not (notes or len(self._begun) > 1):
            self.settle()

    def settle(self) -> None:
        """Find out how the calls that the device is done with have ended."""
        while self._begun and self._begun[0].has_ended():
            fault = self._begun.popleft().end()
            if fault is not None:
                self._faults.append(fault)

    def check(self) -> None:
        """Before a call that nobody waits for: RunError about an earlier one that has ended, of
        which nobody has been told."""
        self.settle()
        if len(self._begun) >= _MOST:
            self._device.synchronize()
            self.settle()
        self._tell()

    def finish(self) -> None:
        """Before a call that is waited for: as :meth:`check`, about all earlier ones."""
        if self._begun:
            self._device.synchronize()
            self.settle()
        self._tell()

    def _tell(self) -> None:
        while self._faults:
            fault = self._faults.popleft()
            if not fault.reported:
                raise fault.error(earlier=True)
