"""One mutant: imported, compiled and run in a separate process, under limits."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import modelcc
from modelcc.driver import compile_model
from modelcc.feeds.random import index_limits, nominal_sizes, random_feeds
from modelcc.ir.graph import Graph
from modelcc.ir.graph_verifier import verify_graph
from modelcc.ir.index import evaluate
from modelcc.options import Options
from modelcc.pipeline import StageRun
from modelcc.runtime.errors import InputError, RunError
from modelcc.runtime.session import Session

OUTSIDE = "secret"
"""A file outside the model's folder, which no mutant may read."""


@dataclass(frozen=True)
class Limits:
    """Limits of one mutant: seconds of CPU time, bytes beyond those of the empty process, and
    whether code is generated and run."""

    seconds: int = 60
    memory: int = 3 << 30
    run: bool = True


@dataclass(frozen=True)
class Outcome:
    """The outcome of a mutant.

    ``kind`` is ``refused`` (with a message for the user), ``ran`` or ``imported``, which are
    correct, or a finding: ``fault`` (an internal exception), ``crash``, ``hang``, ``memory``,
    ``outside`` (a file outside the model was read).  ``placed`` says whether a rejection has a
    location in the model.
    """

    kind: str
    stage: str = ""
    message: str = ""
    placed: bool = False
    seconds: float = 0.0

    @property
    def is_finding(self) -> bool:
        """Whether it is a defect."""
        return self.kind not in ("refused", "ran", "imported")


def attempt(path: Path, limits: Limits) -> Outcome:
    """The outcome of the model at ``path``, from a child process."""
    return limited(lambda: _tried(path, limits), limits)


def limited(trial: Callable[[], Outcome], limits: Limits) -> Outcome:
    """The outcome of ``trial``, from a child process."""
    read, write = os.pipe()
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        _child(trial, limits, read, write)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read()
    _, status, usage = os.wait4(child, 0)
    spent = time.monotonic() - begin
    if os.WIFSIGNALED(status):
        return _killed(os.WTERMSIG(status), usage.ru_utime + usage.ru_stime, limits, spent)
    if not said:
        return Outcome("crash", message=f"exit code {os.WEXITSTATUS(status)}", seconds=spent)
    return Outcome(**json.loads(said), seconds=spent)


def _killed(number: int, used: float, limits: Limits, spent: float) -> Outcome:
    name = signal.Signals(number).name
    if number == signal.SIGXCPU or (number == signal.SIGKILL and used > limits.seconds):
        return Outcome("hang", message=f"more than {limits.seconds} s", seconds=spent)
    return Outcome("crash", message=name, seconds=spent)


def _child(trial: Callable[[], Outcome], limits: Limits, read: int, write: int) -> None:
    """Never returns."""
    os.close(read)
    faulthandler.disable()  # a crash is reported by the parent, in a line
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silence, stream)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + limits.memory, used + limits.memory))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.seconds, limits.seconds + 2))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    outcome = trial()
    said = asdict(outcome)
    del said["seconds"]
    os.write(write, json.dumps(said).encode()[:60_000])
    os._exit(0)


def _tried(path: Path, limits: Limits) -> Outcome:
    opened = _watched_files()
    outcome = _outcome(path, limits)
    outside = [name for name in opened if OUTSIDE in name or name.startswith("/etc/passwd")]
    return Outcome("outside", outcome.stage, outside[0]) if outside else outcome


def _watched_files() -> list[str]:
    """Records the names of files that are opened from now on."""
    opened: list[str] = []

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            opened.append(str(arguments[0]))

    sys.addaudithook(note)
    return opened


def _outcome(path: Path, limits: Limits) -> Outcome:
    stage = ["import"]

    def follow(run: StageRun) -> None:
        stage[0] = f"after {run.stage.label}"

    try:
        graph = modelcc.import_model(path)
        verify_graph(graph)
        if not limits.run:
            return Outcome("imported")
        stage[0] = "compile"
        compiled = compile_model(graph, Options(threads=1), observer=follow)
        stage[0] = "run"
        feeds = _feeds(graph)
        if feeds is None:
            return Outcome("imported", "inputs too large to try")
        session = compiled.target.load(compiled.artifact, 1)
        session.run(feeds)
        stage[0] = "run with hostile inputs"
        _run_hostile(session, graph)
    except (modelcc.ModelError, InputError, RunError) as error:
        named = bool(getattr(error, "where", ())) or ": " in str(error)
        return Outcome("refused", stage[0], str(error)[:2000], named)
    except MemoryError as error:
        if "the system has no" in str(error):
            return Outcome("refused", stage[0], str(error), True)
        return Outcome("memory", stage[0], last_lines(error))
    except BaseException as error:
        return Outcome("fault", stage[0], last_lines(error))
    return Outcome("ran", stage[0])


def _run_hostile(session: Session, graph: Graph) -> None:
    """Runs with invalid indices: the model may reject them, and must survive them."""
    for seed in (1, 2):
        feeds = _feeds(graph, seed, hostile=True)
        with contextlib.suppress(InputError, RunError, MemoryError):
            session.run(feeds or {})


def _feeds(graph: Graph, seed: int = 0, hostile: bool = False) -> dict[str, np.ndarray] | None:
    """Random inputs; None if they have more than a million elements."""
    types = {name: graph.types[name] for name in graph.inputs}
    sizes = nominal_sizes(graph.dims, {}, [type.shape for type in types.values()])
    elements = 0
    for type in types.values():
        product = 1
        for extent in type.shape:
            product *= evaluate(extent, sizes)
        elements += product
    if elements > 1 << 20:
        return None
    return random_feeds(types, sizes, seed, index_limits(graph), hostile)


def last_lines(error: BaseException) -> str:
    """The exception and its location, in a line."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    where = " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(frames))
    return f"{type(error).__name__}: {str(error)[:300]} | {where}"
