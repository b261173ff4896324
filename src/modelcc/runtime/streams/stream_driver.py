"""The interface to a vendor's driver for devices with streams."""

from __future__ import annotations

from typing import Any, Protocol

from modelcc.runtime.devices.device import Groups

Answer = tuple[Any, ...]
"""A status, which is 0 for success, and results."""

INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONFIGURATION = 1, 2, 9
NOT_READY, LAUNCH_OUT_OF_RESOURCES, NOT_SUPPORTED = 600, 701, 801
CAPTURE = range(900, 909)
"""Statuses that both vendors number alike; errors of capture are a range."""


class StreamDriver(Protocol):
    """The driver of one GPU.  Sizes are in bytes, addresses are numbers; events, graphs, streams
    and functions are the driver's handles."""

    def error(self, status: Any) -> str:
        """The name of an error, or "" if there is none."""
        ...

    def enter(self) -> Answer:
        """Makes this GPU current for this thread."""
        ...

    def close(self) -> None:
        """Nothing is issued any more."""

    # --- memory

    def memory(self) -> Answer:
        """Bytes that it has in all."""
        ...

    def memory_left(self) -> Answer:
        """Bytes that are free."""
        ...

    def allocate(self, size: int, stream: Any) -> Answer:
        """Memory of a pool, for later work in ``stream``."""
        ...

    def release(self, address: int, stream: Any) -> Answer:
        """Returns memory to the pool after the work so far in ``stream``."""
        ...

    def trim(self) -> Answer:
        """The pool releases all unused memory."""
        ...

    def pin(self, size: int) -> Answer:
        """Pinned memory of the host."""
        ...

    def unpin(self, address: int) -> Answer:
        """Frees it."""
        ...

    def owner(self, address: int) -> Answer:
        """The number of the GPU that owns an address; None for other memory."""
        ...

    # --- work in a stream

    def upload(self, to: int, source: int, size: int, stream: Any) -> Answer:
        """Copies from pinned memory."""
        ...

    def download(self, to: int, source: int, size: int, stream: Any) -> Answer:
        """Copies to pinned memory."""
        ...

    def move(self, to: int, source: int, size: int, stream: Any) -> Answer:
        """Copies within the GPU, between ranges that do not overlap."""
        ...

    def clear(self, address: int, size: int, stream: Any) -> Answer:
        """Sets bytes to 0."""
        ...

    def launch(
        self, function: Any, grid: Groups, threads: Groups, shared: int, stream: Any, table: int
    ) -> Answer:
        """Launches a kernel; ``table`` points to the addresses of its arguments."""
        ...

    def begin_stream(self) -> Answer:
        """A non-blocking stream."""
        ...

    def end_stream(self, stream: Any) -> Answer:
        """Destroys a stream."""
        ...

    def wait(self, stream: Any) -> Answer:
        """Waits for all work in a stream."""
        ...

    def query(self, stream: Any) -> Answer:
        """``NOT_READY`` while a stream has work."""
        ...

    # --- events

    def event(self, timed: bool) -> Answer:
        """An event, with timing or without."""
        ...

    def drop_event(self, event: Any) -> Answer:
        """Destroys it."""
        ...

    def mark(self, event: Any, stream: Any) -> Answer:
        """Records it in a stream, after the work so far."""
        ...

    def query_event(self, event: Any) -> Answer:
        """``NOT_READY`` until it has completed."""
        ...

    def follow(self, stream: Any, event: Any) -> Answer:
        """Later work in a stream waits for an event."""
        ...

    def elapsed(self, begin: Any, end: Any) -> Answer:
        """Milliseconds between two timed events."""
        ...

    # --- code and recordings

    def unload(self, module: Any) -> Answer:
        """Unloads a module."""
        ...

    def begin_recording(self, stream: Any) -> Answer:
        """Starts capture: this thread's commands in a stream are recorded, not run."""
        ...

    def end_recording(self, stream: Any) -> Answer:
        """Ends capture; the graph."""
        ...

    def executable(self, graph: Any) -> Answer:
        """Instantiates a graph."""
        ...

    def drop_graph(self, graph: Any) -> Answer:
        """Destroys it."""
        ...

    def replay(self, executable: Any, stream: Any) -> Answer:
        """Launches the work of a graph."""
        ...

    def drop_executable(self, executable: Any) -> Answer:
        """Destroys it."""
        ...
