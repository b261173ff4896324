"""What devices that work in streams ask of a vendor's driver."""

from __future__ import annotations

from typing import Any, Protocol

from modelcc.runtime.device import Groups

Answer = tuple[Any, ...]
"""A status, which is 0 if a call was taken, and what it gives then."""

INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONFIGURATION = 1, 2, 9
NOT_READY, LAUNCH_OUT_OF_RESOURCES, NOT_SUPPORTED = 600, 701, 801
CAPTURE = range(900, 909)
"""Statuses that both vendors number alike; those of what recordings do not take are many."""


class StreamDriver(Protocol):
    """The driver of one GPU.  Sizes are bytes, addresses numbers; events, graphs, streams and
    functions are whatever the driver has for them."""

    def error(self, status: Any) -> str:
        """The name of an error, "" of none."""
        ...

    def enter(self) -> Answer:
        """What this thread asks for from now on is for this GPU."""
        ...

    def close(self) -> None:
        """Nobody asks for anything any more."""

    # --- memory

    def memory(self) -> Answer:
        """Bytes that it has in all."""
        ...

    def memory_left(self) -> Answer:
        """Bytes that are free."""
        ...

    def allocate(self, size: int, stream: Any) -> Answer:
        """Memory of a pool, for what ``stream`` is asked for from now on."""
        ...

    def release(self, address: int, stream: Any) -> Answer:
        """Give memory back to the pool when ``stream`` has done its work."""
        ...

    def trim(self) -> Answer:
        """The pool keeps nothing that is not used."""
        ...

    def pin(self, size: int) -> Answer:
        """Memory of the host that the GPU copies to and from by itself."""
        ...

    def unpin(self, address: int) -> Answer:
        """Give it back."""
        ...

    def owner(self, address: int) -> Answer:
        """The number of the GPU whose memory an address is of; None of other memory."""
        ...

    # --- work in a stream

    def upload(self, to: int, source: int, size: int, stream: Any) -> Answer:
        """Copy from pinned memory."""
        ...

    def download(self, to: int, source: int, size: int, stream: Any) -> Answer:
        """Copy to pinned memory."""
        ...

    def move(self, to: int, source: int, size: int, stream: Any) -> Answer:
        """Copy within the GPU, between places that do not overlap."""
        ...

    def clear(self, address: int, size: int, stream: Any) -> Answer:
        """Set bytes to 0."""
        ...

    def launch(
        self, function: Any, grid: Groups, threads: Groups, shared: int, stream: Any, table: int
    ) -> Answer:
        """Run a kernel on arguments whose addresses stand at ``table``."""
        ...

    def begin_stream(self) -> Answer:
        """A stream that waits for no other."""
        ...

    def end_stream(self, stream: Any) -> Answer:
        """Nothing more is asked of it."""
        ...

    def wait(self, stream: Any) -> Answer:
        """The host waits for all that a stream was asked for."""
        ...

    def query(self, stream: Any) -> Answer:
        """``NOT_READY`` while a stream is at work."""
        ...

    # --- events

    def event(self, timed: bool) -> Answer:
        """One that takes the time where it is marked, or not."""
        ...

    def drop_event(self, event: Any) -> Answer:
        """It is not needed any more."""
        ...

    def mark(self, event: Any, stream: Any) -> Answer:
        """It happens when a stream has done all that it was asked for."""
        ...

    def query_event(self, event: Any) -> Answer:
        """``NOT_READY`` until it has happened."""
        ...

    def follow(self, stream: Any, event: Any) -> Answer:
        """What a stream is asked for from now on comes after an event."""
        ...

    def elapsed(self, begin: Any, end: Any) -> Answer:
        """Milliseconds between two timed events."""
        ...

    # --- code and recordings

    def unload(self, module: Any) -> Answer:
        """A module is not needed any more."""
        ...

    def begin_recording(self, stream: Any) -> Answer:
        """What this thread asks of a stream is recorded, not done."""
        ...

    def end_recording(self, stream: Any) -> Answer:
        """A graph of it."""
        ...

    def executable(self, graph: Any) -> Answer:
        """What runs the work of a graph."""
        ...

    def drop_graph(self, graph: Any) -> Answer:
        """It is not needed any more."""
        ...

    def replay(self, executable: Any, stream: Any) -> Answer:
        """Do the work of a graph."""
        ...

    def drop_executable(self, executable: Any) -> Answer:
        """It is not needed any more."""
        ...
