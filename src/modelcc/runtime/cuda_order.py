"""A GPU's streams, other libraries' too, that wait for each other."""

from __future__ import annotations

from typing import Any

from modelcc.runtime.cuda_calls import CudaCalls


def new_event(calls: CudaCalls) -> Any:
    """One that takes no time."""
    kind = int(calls.api.CUevent_flags.CU_EVENT_DISABLE_TIMING)
    return calls.run(calls.api.cuEventCreate(kind))


class StreamOrder:
    """By an event that is used again: a stream waits for what it marked when it was told."""

    def __init__(self, calls: CudaCalls) -> None:
        self._calls = calls
        self._mark: Any = None

    def have_wait(self, stream: Any, other: Any) -> None:
        """What ``stream`` is asked for from now on comes after all that ``other`` has been."""
        run, api = self._calls.run, self._calls.api
        if self._mark is None:
            self._mark = new_event(self._calls)
        run(api.cuEventRecord(self._mark, other))
        run(api.cuStreamWaitEvent(stream, self._mark, 0))

    def follow(self, stream: Any, other: int) -> tuple[Any, ...]:
        """As :meth:`have_wait`, where the ``other`` one may be gone: what went wrong."""
        api, event = self._calls.api, new_event(self._calls)
        answer = api.cuEventRecord(event, other)
        if not int(answer[0]):
            answer = api.cuStreamWaitEvent(stream, event, 0)
        api.cuEventDestroy(event)
        return answer

    def free(self) -> None:
        """Give the event back."""
        if self._mark is not None:
            self._calls.api.cuEventDestroy(self._mark)
