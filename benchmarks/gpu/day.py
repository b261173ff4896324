"""What is done on the day, in its order, until the time is over."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from time import perf_counter

from benchmarks.gpu import cases, entries, operators
from benchmarks.gpu.cases import Case
from benchmarks.gpu.engines import KERNELS, MODELS, serve
from benchmarks.gpu.entries import Entry
from benchmarks.gpu.kernels import artifact
from benchmarks.gpu.page import COPY
from benchmarks.gpu.results import Results, Row
from benchmarks.gpu.torch_peer import COPIED
from benchmarks.gpu.turns import Answers, Failed, Opened, Task, Turns

OPERATORS = "operators"
LATE = "not done in time"
CHECKED = 4
"""Kernels and models that are checked at the same time."""

FIRST = 10
"""Kernels that are timed before models: those that there are bars for."""

SANITIZED = 1e9
"""Operations of the largest kernel that is run in NVIDIA's checkers."""

SANITIZERS = ("memcheck", "racecheck")
SHARES = {"operator": 0.2, "sanitizer": 0.15}
"""Of the seconds, the most that a section may take."""


@dataclass(frozen=True)
class Day:
    """``places`` rows of models get ready at the same time; ``limit`` is for each of them.
    ``builds`` processes compile models, ``workers`` check ops."""

    folder: Path
    target: str
    device: str
    end: float
    size: str = "large"
    limit: float = 90.0
    places: int = 4
    builds: int = 8
    workers: int = 8
    times: bool = True
    operators: bool = True
    engines: Sequence[str] = MODELS
    sanitizer: str = "compute-sanitizer"

    def share(self, section: str) -> float:
        """When a section has to end."""
        now = perf_counter()
        return now + SHARES[section] * max(self.end - now, 0.0)


def run(day: Day, results: Results, serve: Callable[..., None] = serve) -> Turns:
    """All rows: right or wrong first, then times; what was done before is not done again."""
    turns = Turns(serve, (day.folder, day.target, day.device), day.limit)
    left = [entry for entry in entries.entries(day.folder) if not results.is_timed(entry.name)]
    ready = [case for case in _cases(day.size) if artifact(day.folder, case).exists()]
    with ThreadPoolExecutor(day.builds) as pool:
        builds = {entry: pool.submit(_built, day, entry) for entry in left}
        try:
            if day.operators:
                check_operators(day, turns, results)
            check_kernels(day, turns, results, ready)
            sanitize(day, results, [case for case in ready if case.operations < SANITIZED])
            sized = [case for case in ready if case.name in {c.name for c in cases.cases(day.size)}]
            if day.times:
                time_kernels(day, turns, results, sized[:FIRST])
            check_models(day, turns, results, builds)
            if day.times:
                time_models(day, turns, results, left)
                time_kernels(day, turns, results, sized[FIRST:])
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            turns.close()
    return turns


def _cases(size: str) -> Sequence[Case]:
    some = ("medium", "large") if size == "large" else (size,)
    return [case for one in some for case in cases.cases(one)]


def _built(day: Day, entry: Entry) -> str:
    """What a process says that does not compile a model."""
    if entry.artifact.exists():
        return ""
    command = [sys.executable, "-m", "benchmarks.gpu", str(day.folder), "--target", day.target,
               "--build", entry.stem, str(entry.batch)]  # fmt: skip
    try:
        seconds = max(day.end - perf_counter(), 0.0)
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return LATE
    return (done.stderr.strip().splitlines() or ["killed"])[-1] if done.returncode else ""


def check_operators(day: Day, turns: Turns, results: Results) -> None:
    """Faults as rows, and a row of how many samples are right."""
    if results.is_right(OPERATORS):
        return
    tasks = [Task("operator", name) for name in operators.names()]
    right, on_device, faults = 0, 0.0, 0
    for task, found in turns.each(tasks, "modelcc", day.workers, day.limit, day.share("operator")):
        if isinstance(found, Failed):
            faults += 1
            results.add(Row("operator", task.name, fault=found.reason))
        else:
            right, on_device = right + 1, on_device + found.notes["device"]
    notes = {"right": right, "on the device": on_device, "faults": faults, "of": len(tasks)}
    results.add(Row("operator", OPERATORS, notes=notes))


def check_kernels(day: Day, turns: Turns, results: Results, ready: Sequence[Case]) -> None:
    """Of all kernels, whether they are right."""
    bounds = {case.name: cases.TOLERANCES[case.dtype] for case in ready}
    tasks = [Task("kernel", name) for name in bounds if not results.is_right(name)]
    for task, found in turns.each(tasks, "modelcc", CHECKED, day.limit, day.end):
        results.add(_checked(task, found, bounds[task.name]))


def _checked(task: Task, found: Opened | Failed, bound: float) -> Row:
    if isinstance(found, Failed):
        return Row(task.section, task.name, fault=found.reason)
    error = float("inf") if found.error is None else found.error
    return Row(task.section, task.name, error=error, fault="" if error <= bound else "WRONG")


def sanitize(day: Day, results: Results, ready: Sequence[Case]) -> None:
    """Small kernels in NVIDIA's checkers of memory accesses and of races, where they are."""
    checker = shutil.which(day.sanitizer)
    for tool in SANITIZERS if checker is not None and ready else ():
        if results.is_right(tool):
            continue
        names = [word for case in ready for word in ("--once", case.name)]
        command = [str(checker), "--tool", tool, "--error-exitcode", "9", sys.executable, "-m",
                   "benchmarks.gpu", str(day.folder), "--device", day.device, *names]  # fmt: skip
        seconds = max(day.share("sanitizer") - perf_counter(), 1.0)
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            results.add(Row("sanitizer", tool, fault=LATE))
            continue
        said = [line for line in done.stdout.splitlines() if "=====" in line]
        fault = (said or done.stderr.splitlines() or ["failed"])[-1] if done.returncode else ""
        results.add(Row("sanitizer", tool, notes={"kernels": len(ready)}, fault=fault))


def time_kernels(day: Day, turns: Turns, results: Results, ready: Sequence[Case]) -> None:
    """Each kernel in turns with its peers."""
    if COPY not in results.rows and perf_counter() < day.end:
        task = Task("machine", COPY)
        if isinstance(turns.opened([[(task, COPY)]], day.end).get((task, COPY)), Opened):
            seconds, _ = turns.times(task, [COPY], 0)
            notes = {"GB/s": 2 * COPIED / seconds[COPY] * 1e-9} if seconds else {}
            results.add(Row("machine", COPY, notes=notes))
    for case in ready:
        if not results.is_right(case.name) or results.is_timed(case.name):
            continue
        task = Task("kernel", case.name)
        found = turns.opened([[(task, engine) for engine in KERNELS[case.peer]]], day.end)
        if perf_counter() >= day.end:
            return
        row = _timed(turns, task, 0, found, results.rows[case.name], inf)
        taken = row.seconds.get("modelcc")
        if taken is not None:
            rates = {"TFLOP/s": case.operations / taken * 1e-12, "GB/s": case.bytes / taken * 1e-9}
            row = replace(row, notes=rates)
        results.add(row)


def _timed(turns: Turns, task: Task, place: int, found: Answers, row: Row, bound: float) -> Row:
    """Times of what is open and right."""
    own = {engine: answer for (one, engine), answer in found.items() if one == task}
    refused = {name: answer.reason for name, answer in own.items() if isinstance(answer, Failed)}
    ready = {name: answer for name, answer in own.items() if isinstance(answer, Opened)}
    refused |= {n: f"wrong by {a.error:.0e}" for n, a in ready.items() if (a.error or 0) > bound}
    right = [name for name in ready if name not in refused]
    if "modelcc" in refused:
        return replace(row, fault=refused["modelcc"])
    seconds, failed = turns.times(task, right, place)
    fault = failed.get("modelcc", "")
    return replace(row, seconds={} if fault else seconds, refused=refused | failed, fault=fault)


def check_models(
    day: Day, turns: Turns, results: Results, builds: Mapping[Entry, Future[str]]
) -> None:
    """Of all models, as they are compiled, whether they are right."""
    for some in _groups(list(builds), CHECKED):
        built: dict[str, Entry] = {}
        for entry in some:
            try:
                fault = builds[entry].result(max(day.end - perf_counter(), 0.0))
            except TimeoutError:
                continue
            if not fault:
                built[entry.name] = entry
            elif fault != LATE:
                results.add(Row("model", entry.name, fault=fault))
        tasks = [Task("model", name) for name in built if not results.is_right(name)]
        for task, found in turns.each(tasks, "modelcc", CHECKED, day.limit, day.end):
            bound = entries.TOLERANCES[built[task.name].dtype]
            results.add(_checked(task, found, bound))


def time_models(day: Day, turns: Turns, results: Results, left: Sequence[Entry]) -> None:
    """Some rows get ready at the same time, and are timed when nothing else goes on."""
    for some in _groups([e for e in left if results.is_right(e.name)], day.places):
        tasks = [Task("model", entry.name) for entry in some]
        found = turns.opened([[(task, e) for e in day.engines] for task in tasks], day.end)
        for place, (entry, task) in enumerate(zip(some, tasks, strict=True)):
            if perf_counter() >= day.end:
                return
            bound = entries.TOLERANCES[entry.dtype]
            results.add(_timed(turns, task, place, found, results.rows[entry.name], bound))


def _groups(some: Sequence[Entry], size: int) -> Iterator[Sequence[Entry]]:
    return (some[start : start + size] for start in range(0, len(some), size))
