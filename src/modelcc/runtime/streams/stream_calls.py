"""Errors of a GPU's driver, as messages that say what to do."""

from __future__ import annotations

from typing import Any

from modelcc.runtime.devices.device import RecordingError
from modelcc.runtime.errors import LoadError, RunError
from modelcc.runtime.streams.stream_driver import (
    CAPTURE,
    INVALID_CONFIGURATION,
    INVALID_VALUE,
    LAUNCH_OUT_OF_RESOURCES,
    NOT_SUPPORTED,
    OUT_OF_MEMORY,
    Answer,
    StreamDriver,
)

_HARMLESS = frozenset(
    (INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONFIGURATION, LAUNCH_OUT_OF_RESOURCES, NOT_SUPPORTED)
)
"""Errors of a single call, after which the GPU still works."""


class StreamCalls:
    """Results of ``driver``, for the GPU called ``name``."""

    def __init__(self, driver: StreamDriver, name: str) -> None:
        self.driver = driver
        self.name = name
        self.lost = ""

    def refusal(self, said: str) -> str:
        """Why an error ends the loading of a model, and what would help."""
        del said
        return "restart the driver, or compile for another target"

    def enter(self) -> None:
        """Makes this GPU current for this thread; RunError if it has failed."""
        if self.lost:
            raise RunError(
                f"{self.name} has failed before ({self.lost}): load the model again, and if that "
                "fails, start the process anew"
            )
        self.run(self.driver.enter())

    def load(self, answer: Answer) -> Any:
        """A result, while the model is loaded."""
        said = self.driver.error(answer[0])
        if said:
            raise LoadError(f"{self.name} does not take the model ({said}): {self.refusal(said)}")
        return answer[1] if len(answer) > 1 else None

    def run(self, answer: Answer) -> Any:
        """A result, while the model runs; an error of the GPU's is remembered as :attr:`lost`."""
        status = int(answer[0])
        if not status:
            return answer[1] if len(answer) > 1 else None
        said = self.driver.error(answer[0])
        if status in CAPTURE:
            raise RecordingError(f"{self.name} does not record this ({said})")
        if status in _HARMLESS:
            raise RunError(
                f"{self.name} did not take this call ({said}), and goes on, as do other models: "
                "smaller sizes, or less in its memory, would help"
            )
        self.lost = said
        raise RunError(
            f"{self.name} did not do its work ({said}); load the model again, and if that "
            "fails, start the process anew: a GPU that has failed takes nothing more from it"
        )
