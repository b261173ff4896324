"""A GPU's streams, other libraries' too, that wait for each other."""

from __future__ import annotations

from typing import Any

from modelcc.runtime.stream_calls import StreamCalls


def new_event(calls: StreamCalls) -> Any:
    """One that takes no time."""
    return calls.run(calls.driver.event(timed=False))


class StreamOrder:
    """By an event that is used again: a stream waits for what it marked when it was told."""

    def __init__(self, calls: StreamCalls) -> None:
        self._calls = calls
        self._mark: Any = None

    def have_wait(self, stream: Any, other: Any) -> None:
        """What ``stream`` is asked for from now on comes after all that ``other`` has been."""
        run, driver = self._calls.run, self._calls.driver
        if self._mark is None:
            self._mark = new_event(self._calls)
        run(driver.mark(self._mark, other))
        run(driver.follow(stream, self._mark))

    def follow(self, stream: Any, other: int) -> tuple[Any, ...]:
        """As :meth:`have_wait`, where the ``other`` one may be gone: what went wrong."""
        driver, event = self._calls.driver, new_event(self._calls)
        answer = driver.mark(event, other)
        if not int(answer[0]):
            answer = driver.follow(stream, event)
        driver.drop_event(event)
        return answer

    def free(self) -> None:
        """Give the event back."""
        if self._mark is not None:
            self._calls.driver.drop_event(self._mark)
