"""Order between a GPU's streams, including other libraries'."""

from __future__ import annotations

from typing import Any

from modelcc.runtime.streams.stream_calls import StreamCalls


def new_event(calls: StreamCalls) -> Any:
    """An event without timing."""
    return calls.run(calls.driver.event(timed=False))


class StreamOrder:
    """Streams wait for an event that is reused: a wait refers to its latest record."""

    def __init__(self, calls: StreamCalls) -> None:
        self._calls = calls
        self._mark: Any = None

    def have_wait(self, stream: Any, other: Any) -> None:
        """Later work in ``stream`` comes after all work so far in ``other``."""
        run, driver = self._calls.run, self._calls.driver
        if self._mark is None:
            self._mark = new_event(self._calls)
        run(driver.mark(self._mark, other))
        run(driver.follow(stream, self._mark))

    def follow(self, stream: Any, other: int) -> tuple[Any, ...]:
        """As :meth:`have_wait`, where the ``other`` stream may be gone: the error."""
        driver, event = self._calls.driver, new_event(self._calls)
        answer = driver.mark(event, other)
        if not int(answer[0]):
            answer = driver.follow(stream, event)
        driver.drop_event(event)
        return answer

    def free(self) -> None:
        """Destroys the event."""
        if self._mark is not None:
            self._calls.driver.drop_event(self._mark)
