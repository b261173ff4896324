"""A model compiled by a process of its own, so that the caller's keeps no memory of the compiler.

That process reads a pickled request on its standard input and answers with pickled messages on its
standard output: what progress it makes, at last how long its stages took, or an error.  The
artifact goes through a file.  It is a plain subprocess: forking is unsafe in a process with
threads, and ``multiprocessing`` runs the user's script again.
"""

from __future__ import annotations

import copyreg
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any

from modelcc.artifact.file import Artifact, read_artifact
from modelcc.frontends.choice import frontend_of
from modelcc.ir.errors import Error, ModelError
from modelcc.ir.graph import Graph
from modelcc.options import Options

if TYPE_CHECKING:
    from modelcc.report.report import StageTime
    from modelcc.targets.base import Progress

_WORKER = """
import sys
sys.path[:] = sys.argv[1:]
from modelcc.compiling_process import serve
serve()
"""


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
class Told:
    """Arguments of a progress callback."""

    what: str
    done: int
    total: int


@dataclass(frozen=True)
class Finished:
    """The artifact is in its file."""

    times: tuple[StageTime, ...]


def compiled_apart(
    model: Any, options: Options, cache: Path | None, jobs: int, progress: Progress | None
) -> tuple[Artifact, tuple[StageTime, ...]]:
    """As the driver compiles ``model``; only a framework's objects become graphs in this process.

    :class:`ModelError` besides what the driver raises if the process cannot do it.
    """
    plain = isinstance(model, str | Path | bytes | Graph)
    source = model if plain else frontend_of(model).read(model, dict(options.dims))
    with TemporaryDirectory(prefix="modelcc-") as folder:
        target = Path(folder) / "model.mcc"
        request = ModelRequest(source, options, cache, jobs, progress is not None, target)
        times = _exchange(request, progress)
        return read_artifact(target), times


def _exchange(request: ModelRequest, progress: Progress | None) -> tuple[StageTime, ...]:
    command = [sys.executable, "-c", _WORKER, *sys.path]
    pipes = partial(subprocess.Popen, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with pipes(command) as process:
        assert process.stdin and process.stdout
        try:
            with process.stdin:
                _send(request, process.stdin)
            while isinstance(answer := pickle.load(process.stdout), Told):
                if progress is not None:
                    progress(answer.what, answer.done, answer.total)
        except (BrokenPipeError, EOFError) as error:
            status = process.wait()
            raise ModelError(
                f"the process that compiles ended with status {status}", (),
                "its standard error says why; without 'separate' this process compiles",
            ) from error  # fmt: skip
        finally:
            process.kill()
    if isinstance(answer, Finished):
        return answer.times
    raise answer


def _send(request: ModelRequest, file: IO[bytes]) -> None:
    """Pickled without copies of arrays."""
    pickler = pickle.Pickler(file, protocol=5)
    pickler.dispatch_table = {**copyreg.dispatch_table, MappingProxyType: _reduced}
    pickler.dump(request)


def _reduced(table: Mapping[Any, Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return read_only, (dict(table),)


def read_only(table: dict[Any, Any]) -> Mapping[Any, Any]:
    """A table that nobody changes, which pickle has no name for."""
    return MappingProxyType(table)


def serve() -> None:
    """Answer the request on standard input."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what others print must not mix with answers

    def answer(message: Told | Finished | Error) -> None:
        pickle.dump(message, answers)
        answers.flush()

    def tell(what: str, done: int, total: int) -> None:
        answer(Told(what, done, total))

    request: ModelRequest = pickle.load(sys.stdin.buffer)
    try:
        answer(_finished(request, tell))
    except Error as error:
        answer(error)


def _finished(request: ModelRequest, progress: Progress) -> Finished:
    driver: Any = import_module("modelcc.driver")
    config = driver.BuildConfig(request.cache, request.jobs, progress if request.tells else None)
    compiled = driver.compile_model(request.model, request.options, config)
    compiled.save(request.target)
    return Finished(compiled.times)
