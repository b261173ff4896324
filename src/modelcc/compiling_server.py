"""The process that compiles for another one, and what the two tell each other.

It reads pickled requests on its standard input and answers with pickled messages on its standard
output: that it is there, what progress it makes, at last how long the stages took, or an error.
Artifacts go through files.
"""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Timer
from typing import IO, TYPE_CHECKING, Any

from modelcc.heap import release_heap
from modelcc.ir.errors import Error
from modelcc.ir.graph import Graph
from modelcc.options import Options

if TYPE_CHECKING:
    from modelcc.report.report import StageTime
    from modelcc.targets.base import Progress

PATIENCE = 20.0
"""Seconds without a request, after which it ends: time to trace the next graph of a model."""


@dataclass(frozen=True)
class ModelRequest:
    """What to compile, how, and the file for the artifact; ``tells`` of its progress."""

    model: str | Path | bytes | Graph
    options: Options
    cache: Path | None
    jobs: int
    tells: bool
    target: Path


@dataclass(frozen=True)
class Ready:
    """The first message."""


@dataclass(frozen=True)
class Told:
    """Arguments of a progress callback."""

    what: str
    done: int
    total: int


@dataclass(frozen=True)
class Finished:
    """The artifact is in its file."""

    times: tuple[StageTime, ...]


Message = Ready | Told | Finished | Error


def serve() -> None:
    """Answer requests on standard input until it ends, or none comes for a while."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what others print must not mix with answers
    _answer(answers, Ready())
    while _is_asked(sys.stdin.buffer):
        request: ModelRequest = pickle.load(sys.stdin.buffer)
        try:
            message = _finished(request, answers)
        except Error as error:
            message = error
        _answer(answers, message)
        del request
        release_heap()


def _is_asked(requests: Any) -> bool:
    """Whether there is another request; the process ends in here if none comes."""
    alarm = Timer(PATIENCE, os._exit, (0,))
    alarm.daemon = True
    alarm.start()
    asked = bool(requests.peek(1))
    alarm.cancel()
    return asked


def _answer(answers: IO[bytes], message: Message) -> None:
    try:
        pickle.dump(message, answers)
        answers.flush()
    except BrokenPipeError:
        os._exit(0)  # nobody is there to hear it


def _finished(request: ModelRequest, answers: IO[bytes]) -> Finished:
    def tell(what: str, done: int, total: int) -> None:
        _answer(answers, Told(what, done, total))

    progress: Progress | None = tell if request.tells else None
    driver: Any = import_module("modelcc.driver")
    config = driver.BuildConfig(request.cache, request.jobs, progress)
    compiled = driver.compile_model(request.model, request.options, config)
    compiled.save(request.target)
    return Finished(compiled.times)
