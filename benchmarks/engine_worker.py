"""An engine in a process of its own, which answers when it is asked."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Refused:
    """Why an engine does not run a model."""

    reason: str


class Worker:
    """A process that runs ``serve`` of a connection and ``arguments``; what does not answer within
    ``limit`` seconds is refused."""

    def __init__(self, serve: Callable[..., None], arguments: Sequence[Any], limit: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._own, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, *arguments), daemon=False)
        self._process.start()
        theirs.close()
        self._limit = limit

    def answer(self) -> Any:
        """What the process says next."""
        start = time.perf_counter()
        if not self._own.poll(self._limit):
            return Refused(f"no answer in {time.perf_counter() - start:.0f} s")
        try:
            return self._own.recv()
        except EOFError:
            return Refused("the process ended")

    def ask(self, question: Any) -> Any:
        """What it says to ``question``."""
        self._own.send(question)
        return self.answer()

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._process.terminate()
        self._process.join()
