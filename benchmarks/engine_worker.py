"""An engine in a process of its own, which answers when it is asked."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

PATIENCE = 2.0
"""Seconds in which a process that is to end may do so by itself."""


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
        given = serve, theirs, *arguments
        self._process = context.Process(target=_serve_apart, args=given, daemon=False)
        self._process.start()
        theirs.close()
        self._limit = limit

    def tell(self, question: Any) -> None:
        """Ask without waiting; nothing happens if the process has ended."""
        with suppress(OSError):
            self._own.send(question)

    def answer(self, limit: float | None = None) -> Any:
        """What the process says next, within ``limit`` seconds instead of those of all answers."""
        start = time.perf_counter()
        if not self._own.poll(self._limit if limit is None else limit):
            return Refused(f"no answer in {time.perf_counter() - start:.0f} s")
        try:
            return self._own.recv()
        except (EOFError, OSError):
            return Refused("the process ended")

    def ask(self, question: Any, limit: float | None = None) -> Any:
        """What it says to ``question``."""
        self.tell(question)
        return self.answer(limit)

    def close(self) -> None:
        """End the process, whatever it is doing, and those that it has started."""
        self._process.terminate()
        self._process.join(PATIENCE)
        if self._process.pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.join(PATIENCE)  # one that a driver holds does not even end then


def _serve_apart(serve: Callable[..., None], *arguments: Any) -> None:
    """In a group of processes of its own: what an engine starts, as compilers, ends with it."""
    os.setpgrp()
    serve(*arguments)
