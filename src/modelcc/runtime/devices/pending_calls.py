"""Asynchronous calls, which return before the device is done: index faults are found later.

The faults of each call are copied to host memory of its own, and read when the device says that the
copy is done.  Whoever uses any of this has the device's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from modelcc.runtime.devices.device import Device, LateCopy
from modelcc.runtime.devices.device_recordings import FaultPlaces, IndexFault
from modelcc.runtime.errors import RunError

_MOST = 64
"""Calls that may be pending; the next one waits for them."""


@dataclass(frozen=True)
class FaultReadback:
    """The faults of recorded work in ``places``, once their ``copy`` has arrived."""

    copy: LateCopy
    places: FaultPlaces

    def take(self) -> IndexFault | None:
        """The first index that is out of range."""
        return self.places.fault(self.copy.take())


@dataclass
class _Fault:
    """A fault of a call; ``reported`` if its error has been raised."""

    text: str
    reported: bool = False

    def error(self, earlier: bool) -> RunError:
        """The error for the current caller, ``earlier`` if it is about an earlier call."""
        self.reported = True
        return RunError(f"{self.text} (in an earlier call)" if earlier else self.text)


class PendingCall:
    """A call; its results are invalid if an index was out of range in it, or in a call among its
    ``sources``, whose results it uses.  ``failure`` makes the error of the former."""

    def __init__(
        self, failure: Callable[[int, int], RunError], sources: Sequence[PendingCall] = ()
    ) -> None:
        self._failure = failure
        self._sources = sources
        self._notes: Sequence[FaultReadback] = ()
        self._fault: _Fault | None = None
        self._inherited = False
        self.ended = False
        """Whether its outcome is known."""

    @property
    def succeeded(self) -> bool:
        """Whether it is known to have succeeded."""
        return self.ended and self._fault is None

    def begin(self, notes: Sequence[FaultReadback]) -> None:
        """It has been issued, and its faults come with these readbacks."""
        self._notes = notes

    def has_ended(self) -> bool:
        """Whether the device is done, without waiting."""
        return not self._notes or self._notes[-1].copy.has_come()

    def end(self) -> _Fault | None:
        """The call's fault, once it :meth:`has_ended`, as have earlier calls, unless it was
        reported."""
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
        """RunError, each time, if its results are known to be invalid; ``earlier`` if another call
        is about to use them."""
        if self._fault is not None:
            raise self._fault.error(earlier or self._inherited)


class PendingCalls:
    """Pending calls of a model, in their order."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._begun: deque[PendingCall] = deque()
        self._faults: deque[_Fault] = deque()

    def add(self, call: PendingCall, notes: Sequence[FaultReadback]) -> None:
        """It has been issued; its faults come with ``notes``."""
        call.begin(notes)
        self._begun.append(call)
        if not (notes or len(self._begun) > 1):
            self.settle()

    def settle(self) -> None:
        """Finds the outcomes of calls that the device has done."""
        while self._begun and self._begun[0].has_ended():
            fault = self._begun.popleft().end()
            if fault is not None:
                self._faults.append(fault)

    def check(self) -> None:
        """Before an asynchronous call: RunError about an earlier one that has failed, unless it was
        reported."""
        self.settle()
        if len(self._begun) >= _MOST:
            self._device.synchronize()
            self.settle()
        self._tell()

    def finish(self) -> None:
        """Before a synchronous call: as :meth:`check`, about all earlier ones."""
        if self._begun:
            self._device.synchronize()
            self.settle()
        self._tell()

    def _tell(self) -> None:
        while self._faults:
            fault = self._faults.popleft()
            if not fault.reported:
                raise fault.error(earlier=True)
