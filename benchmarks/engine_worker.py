"""An engine in a separate process, queried on demand."""

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
"""Grace period in seconds for a process to exit."""


@dataclass(frozen=True)
class Refused:
    """Why an engine does not run a model."""

    reason: str


class Worker:
    """A process that runs ``serve`` with a connection and ``arguments``; a query not answered
    within ``limit`` seconds counts as refused."""

    def __init__(self, serve: Callable[..., None], arguments: Sequence[Any], limit: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._own, theirs = context.Pipe()
        given = serve, theirs, *arguments
        self._process = context.Process(target=_serve_apart, args=given, daemon=False)
        self._process.start()
        theirs.close()
        self._limit = limit

    def tell(self, question: Any) -> None:
        """Sends a query without waiting; ignored if the process has ended."""
        with suppress(OSError):
            self._own.send(question)

    def answer(self, limit: float | None = None) -> Any:
        """The next answer, within ``limit`` seconds instead of the default."""
        start = time.perf_counter()
        if not self._own.poll(self._limit if limit is None else limit):
            return Refused(f"no answer in {time.perf_counter() - start:.0f} s")
        try:
            return self._own.recv()
        except (EOFError, OSError):
            return Refused("the process ended")

    def ask(self, question: Any, limit: float | None = None) -> Any:
        """The answer to ``question``."""
        self.tell(question)
        return self.answer(limit)

    def close(self) -> None:
        """Kills the process and its children."""
        self._process.terminate()
        self._process.join(PATIENCE)
        if self._process.pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.join(PATIENCE)  # one blocked in a driver does not end even then


def _serve_apart(serve: Callable[..., None], *arguments: Any) -> None:
    """In its own process group: child processes of an engine, such as compilers, end with it."""
    os.setpgrp()
    serve(*arguments)
