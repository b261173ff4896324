"""Workers on both trees, and their output."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from threading import Timer
from typing import IO

from benchmarks.replay.records import Job, Outcome, outcome_from, to_json
from benchmarks.trees import ROOT, environment_of


@dataclass(frozen=True)
class Limits:
    """Concurrent processes, and the time limit of each in seconds."""

    jobs: int
    timeout: float


def run_all(
    jobs: Sequence[Job], place: Limits, done: Callable[[Job, list[Outcome]], None]
) -> dict[Job, list[Outcome]]:
    """The outcomes of every job; `done` is called with each as it ends."""
    found: dict[Job, list[Outcome]] = {}
    with ThreadPoolExecutor(place.jobs) as threads:
        running = {threads.submit(outcomes_of, job, place): job for job in jobs}
        try:
            for future in as_completed(running):
                job = running[future]
                found[job] = future.result()
                done(job, found[job])
        finally:
            threads.shutdown(cancel_futures=True)
    return found


def outcomes_of(job: Job, place: Limits) -> list[Outcome]:
    """A worker's results; an unfinished job has an outcome that says why."""
    command = (sys.executable, "-m", "benchmarks.replay.worker", to_json(job))
    environment = {**environment_of(Path(job.sources)), "PYTHONHASHSEED": "0"}
    with (
        TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        timer = Timer(place.timeout, process.kill)
        timer.start()
        try:
            found = list(_read(process.stdout or ()))
            status = process.wait()
            late = not timer.is_alive()
        finally:
            timer.cancel()
            process.kill()
        if status == 0:
            return found
        reason = f"not done within {place.timeout:g} s" if late else _last_line(errors, status)
    return [*found, *_unfinished(job, found, reason)]


def _read(lines: Iterable[str]) -> Iterator[Outcome]:
    for line in lines:
        if line.startswith("{"):
            yield outcome_from(json.loads(line))


def _last_line(errors: IO[str], status: int) -> str:
    errors.seek(0)
    lines = errors.read().strip().splitlines()
    return lines[-1] if lines else f"the worker ended with status {status}"


def _unfinished(job: Job, found: Sequence[Outcome], reason: str) -> Iterator[Outcome]:
    """A file's outcomes in the remaining settings, or a single one for everything left."""
    known = {one.setting for one in found if one.case == job.label}
    after = f", after {found[-1].case} [{found[-1].setting}]" if found else ""
    for setting in job.settings:
        if setting not in known:
            group = job.group(job.label)
            yield Outcome(group, job.label, setting, failed=f"{reason}{after}")


def on_tree(jobs: Sequence[Job], tree: str, sources: Path) -> list[Job]:
    """The jobs for a tree."""
    return [replace(job, tree=tree, sources=str(sources)) for job in jobs]
