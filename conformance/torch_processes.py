"""Entries of torch's database in separate processes: a crash or a hang affects one sample only."""

from __future__ import annotations

import multiprocessing
import resource
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from conformance.torch_database import REFUSED, Half, Outcome, Share, first_line, label

SECONDS = 60
"""CPU time limit of a sample in seconds."""
BUSY = 10
"""Wall time limit relative to the CPU time limit, for loaded machines."""
TOGETHER = 8
"""Samples compiled together; individually only if that fails."""

_CONTEXT = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Position:
    """Entry ``place`` after ``done`` samples; the next ones are tried ``together``, ``index``
    individually."""

    place: int = 0
    done: int = 0
    together: int = TOGETHER
    index: int | None = None


def outcomes(half: Half, ops: Sequence[Any], share: Share) -> Iterator[Outcome]:
    """Outcomes of every sample of some entries, in a new process after each crash."""
    at: Position | None = Position()
    while at is not None:
        ours, theirs = _CONTEXT.Pipe(duplex=False)
        process = _CONTEXT.Process(target=_serve, args=(half, ops, share, at, theirs), daemon=True)
        process.start()
        theirs.close()
        at = None
        for message in _received(ours):
            if isinstance(message, Outcome):
                yield message
            else:
                at = message
        process.kill()
        process.join()
        if at is not None and at.index is not None:
            code = process.exitcode
            slow = code in (-signal.SIGKILL, -signal.SIGXCPU)
            what = f"more than {SECONDS} s" if slow else f"exit code {code}"
            yield Outcome(label(ops[at.place]), at.index, f"crash: {what}")
            at = replace(at, done=at.done + 1)
        if at is not None:
            at = replace(at, together=1, index=None)


def _received(pipe: Connection) -> Iterator[Outcome | Position | None]:
    while True:
        try:
            if not pipe.poll(SECONDS * BUSY):
                return
            yield pipe.recv()
        except EOFError:
            return


def _serve(half: Half, ops: Sequence[Any], share: Share, start: Position, pipe: Connection) -> None:
    """Sends the position before each attempt, the outcome of each sample, and None at the end."""
    for place in range(start.place, len(ops)):
        _serve_entry(half, ops[place], share, start, pipe)
        start = Position(place + 1)
    pipe.send(None)


def _serve_entry(half: Half, op: Any, share: Share, start: Position, pipe: Connection) -> None:
    pipe.send(start)
    try:
        made = half.samples(op, share)
    except Exception as error:
        pipe.send(Outcome(label(op), 0, f"{REFUSED}: no samples: {first_line(error)}"))
        return
    for done in range(start.done, len(made), start.together):
        some = made[done : done + start.together]
        alone = len(some) == 1
        pipe.send(replace(start, done=done, index=some[0][0] if alone else None))
        _allow_time()
        whole = half.attempt(op, [sample for _, sample in some])
        for k, (index, sample) in enumerate(some):
            pipe.send(replace(start, done=done + k, index=index))
            _allow_time()
            own = whole if alone or whole == "passed" else half.attempt(op, [sample])
            pipe.send(Outcome(label(op), index, own))


def _allow_time() -> None:
    used = int(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (used + SECONDS, resource.RLIM_INFINITY))
