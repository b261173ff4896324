"""A model compiled by a process of its own, so that the caller's keeps no memory of the compiler.

It is a plain subprocess (:mod:`modelcc.compiling_server`): forking is unsafe in a process with
threads, and ``multiprocessing`` runs the user's script again.  It stays for a while for more to
compile, and ends with its caller; a session of its own keeps the terminal's Ctrl-C from it.
"""

from __future__ import annotations

import atexit
import copyreg
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache as once
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any

from modelcc.artifact.file import Artifact, read_artifact
from modelcc.compiling_server import Finished, ModelRequest, Ready, Told
from modelcc.frontends.choice import frontend_of
from modelcc.ir.errors import Error, ModelError
from modelcc.ir.graph import Graph
from modelcc.options import Options

if TYPE_CHECKING:
    from modelcc.report.report import StageTime
    from modelcc.targets.base import Progress

_SERVER = """
import sys
sys.path[:] = sys.argv[1:]
from modelcc.compiling_server import serve
serve()
"""


class ProcessError(ModelError):
    """No other process compiles: it cannot be started, or it ended without an answer."""


def compiled_apart(
    model: Any, options: Options, cache: Path | None, jobs: int, progress: Progress | None
) -> tuple[Artifact, tuple[StageTime, ...]]:
    """As the driver compiles ``model``; only a framework's objects become graphs in this process.

    :class:`ProcessError` besides what the driver raises.
    """
    plain = isinstance(model, str | Path | bytes | Graph)
    source = model if plain else frontend_of(model).read(model, dict(options.dims))
    with TemporaryDirectory(prefix="modelcc-") as folder:
        target = Path(folder) / "model.mcc"
        request = ModelRequest(source, options, cache, jobs, progress is not None, target)
        times = _processes().times(request, progress)
        return read_artifact(target), times


class CompilingProcess:
    """A process that compiles one model after the other."""

    def __init__(self) -> None:
        """Start it; :class:`ProcessError` if what was started does not say that it is one."""
        if getattr(sys, "frozen", False) or not sys.executable:
            raise _without("there is no Python interpreter to start")
        command, pipe = [sys.executable, "-c", _SERVER, *sys.path], subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, start_new_session=True
            )
        except OSError as error:
            raise _without(str(error)) from error
        assert self._process.stdin and self._process.stdout
        self._requests: IO[bytes] = self._process.stdin
        self._answers: IO[bytes] = self._process.stdout
        try:
            self._check(isinstance(self._message(), Ready))
        except BaseException:
            self.end()
            raise

    def answer(self, request: ModelRequest, progress: Progress | None) -> Finished | Error:
        """What it says at last; :class:`ProcessError` if that is nothing, and it is ended then."""
        try:
            self._send(request)
            while isinstance(message := self._message(), Told):
                if progress is not None:
                    progress(message.what, message.done, message.total)
            self._check(isinstance(message, Finished | Error))
        except BaseException:  # of the user's, too, so that nobody waits for what is still to come
            self.end()
            raise
        return message

    def end(self) -> None:
        """End it, whatever it is doing, and what it has started."""
        if self._process.poll() is None:
            with suppress(OSError):
                _kill(self._process)
        for pipe in (self._requests, self._answers):
            with suppress(OSError):  # what was to be sent
                pipe.close()
        self._process.wait()

    def _send(self, request: ModelRequest) -> None:
        """Pickled without copies of arrays."""
        pickler = pickle.Pickler(self._requests, protocol=5)
        pickler.dispatch_table = {**copyreg.dispatch_table, MappingProxyType: _reduced}
        try:
            pickler.dump(request)
            self._requests.flush()
        except (OSError, pickle.PicklingError, AttributeError, TypeError) as error:
            raise _without(f"the model cannot be sent to it: {error}") from error

    def _message(self) -> Any:
        try:
            return pickle.load(self._answers)
        except (OSError, EOFError, pickle.UnpicklingError):
            return None

    def _check(self, right: bool) -> None:
        if not right:
            self.end()
            raise _without(f"it ended with status {self._process.returncode}")


def _kill(process: subprocess.Popen[bytes]) -> None:
    if os.name == "posix":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def _without(reason: str) -> ProcessError:
    hint = "its standard error says more; without 'separate' this process compiles"
    return ProcessError(f"no other process compiles: {reason}", (), hint)


class CompilingProcesses:
    """The process that has compiled last, for more; another one for whoever cannot wait."""

    def __init__(self) -> None:
        self._idle: list[CompilingProcess] = []
        self._owner = os.getpid()

    def times(self, request: ModelRequest, progress: Progress | None) -> tuple[StageTime, ...]:
        """How long the stages took; the artifact is in its file.  Raises what the driver does."""
        answer = self._of_last(request, progress)
        if answer is None:
            answer = self._answer(CompilingProcess(), request, progress)
        if isinstance(answer, Error):
            raise answer
        return answer.times

    def end(self) -> None:
        """End what is waiting, unless it is another process's of which this one is a fork."""
        idle, self._idle = self._idle, []
        for process in idle if self._owner == os.getpid() else ():
            process.end()

    def _of_last(self, request: ModelRequest, progress: Progress | None) -> Finished | Error | None:
        """None if there is no process, or it has ended meanwhile."""
        if self._owner != os.getpid():
            self._idle, self._owner = [], os.getpid()
        try:
            return self._answer(self._idle.pop(), request, progress)
        except (IndexError, ProcessError):
            return None

    def _answer(
        self, process: CompilingProcess, request: ModelRequest, progress: Progress | None
    ) -> Finished | Error:
        answer = process.answer(request, progress)
        others, self._idle = self._idle, [process]
        for other in others:
            other.end()
        return answer


@once
def _processes() -> CompilingProcesses:
    """For the process, as those that they start."""
    made = CompilingProcesses()
    atexit.register(made.end)
    return made


def _reduced(table: Mapping[Any, Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return read_only, (dict(table),)


def read_only(table: dict[Any, Any]) -> Mapping[Any, Any]:
    """A table that nobody changes, which pickle has no name for."""
    return MappingProxyType(table)
