"""The schedule of a session on a GPU, in order, until time is over."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from itertools import takewhile
from math import inf
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from benchmarks.gpu import cases, entries, operators
from benchmarks.gpu.cases import Case
from benchmarks.gpu.engines import KERNELS, MODELS, serve
from benchmarks.gpu.entries import Entry
from benchmarks.gpu.kernels import artifact
from benchmarks.gpu.page import COPY, missing_most
from benchmarks.gpu.profiles import FILE as PROFILES
from benchmarks.gpu.profiles import Profile, Profiles
from benchmarks.gpu.programs import PROGRAMS, Programs
from benchmarks.gpu.results import Results, Row
from benchmarks.gpu.torch_peer import COPIED
from benchmarks.gpu.turns import Answers, Failed, Opened, Task, Turns

T = TypeVar("T")

OPERATORS, SEEN = "operators", "come to"
"""The row of all ops, and its count of samples when time was over."""

LATE = "not done in time"
CHECKED = 4
"""Kernels and models that are checked concurrently."""

FIRST = 10
"""Kernels that are timed before models: those with bars."""

SHARE = 0.2
"""Maximum fraction of the time for ops, if model timings follow."""

CHECK, TIMES = "check", "times"
"""Phases of a session: correctness with kernel timings; timings against other engines."""


SANITIZED = 1e9
"""Operations of the largest kernel that is run in NVIDIA's checkers."""

SHOWN = 10
"""Kernels of a profile that are printed."""


@dataclass(frozen=True)
class Day:
    """``places`` rows of models are prepared concurrently; ``limit`` applies to each.  ``builds``
    processes compile models, ``workers`` check ops.  ``order`` are the dtypes and batches of the
    models, ``profile`` whether kernels of correct rows are timed individually, ``ncu`` the number
    of kernels for NVIDIA's profiler.  Single kernels are those whose names contain one of the words
    in ``kernels``, and they are timed against ``libraries``, if these are not None.
    """

    folder: Path
    target: str
    device: str
    end: float
    size: str = "large"
    limit: float = 90.0
    places: int = 4
    builds: int = 8
    workers: int = 8
    phases: Sequence[str] = (CHECK, TIMES)
    operators: bool = True
    engines: Sequence[str] = MODELS
    order: Sequence[tuple[str, int]] = entries.ORDER
    profile: bool = False
    ncu: int = 0
    kernels: Sequence[str] | None = None
    libraries: Sequence[str] | None = None
    programs: Programs = PROGRAMS


def run(day: Day, results: Results, serve: Callable[..., None] = serve) -> Turns:
    """All rows: correctness first, then timings; completed rows are skipped."""
    turns = Turns(serve, (day.folder, day.target, day.device), day.limit, results.keep_trace)
    profiles = Profiles(*(folder / PROFILES for folder in results.folders))
    found = entries.entries(day.folder, day.order)
    left = [entry for entry in found if not _is_done(day, results, entry)]
    ready = [case for case in _cases(day) if artifact(day.folder, case).exists()]
    sized = [case for case in ready if case.name in {c.name for c in cases.cases(day.size)}]
    with ThreadPoolExecutor(day.builds) as pool:
        builds = {entry: pool.submit(_built, day, results, entry) for entry in left}
        try:
            if CHECK in day.phases:
                check_kernels(day, turns, results, profiles, ready)
                if ready and not any(results.is_right(case.name) for case in ready):
                    print("no kernel is right: nothing else is tried", flush=True)
                    return turns
            check_models(day, turns, results, profiles, builds)
            if CHECK in day.phases:
                time_kernels(day, turns, results, sized[:FIRST])
                turns.close()
                watch(day, results, ready)
                if day.operators:
                    check_operators(day, turns, results)
            if TIMES in day.phases:
                time_models(day, turns, results, left)
                time_kernels(day, turns, results, sized[FIRST:])
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            turns.close()
    return turns


def _is_done(day: Day, results: Results, entry: Entry) -> bool:
    """Whether a model is no longer needed."""
    timed = results.is_timed(entry.name)
    return timed or (TIMES not in day.phases and results.is_right(entry.name))


def watch(day: Day, results: Results, ready: Sequence[Case]) -> None:
    """Kernels in NVIDIA's checkers and profiler."""
    common = results, day.folder, day.device, day.end
    names = [name for name in missing_most(results) if results.is_right(name)]
    day.programs.profile(*common, names[: day.ncu])
    small = [case for case in ready if case.operations < SANITIZED]
    day.programs.sanitize(*common, [case.name for case in small])


def _cases(day: Day) -> Sequence[Case]:
    sizes = ("medium", "large") if day.size == "large" else (day.size,)
    every = [case for size in sizes for case in cases.cases(size)]
    words = day.kernels
    return [c for c in every if words is None or any(word in c.name for word in words)]


def _built(day: Day, results: Results, entry: Entry) -> str:
    """The last output line of a process that fails to compile a model; all output is kept."""
    if entry.artifact.exists():
        return ""
    command = [sys.executable, "-m", "benchmarks.gpu", str(day.folder), "--target", day.target,
               "--build", entry.stem, str(entry.batch), entry.precision]  # fmt: skip
    try:
        seconds = max(day.end - perf_counter(), 0.0)
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return LATE
    if done.returncode:
        results.keep_trace(f"model {entry.name} compiled", done.stderr)
        return (done.stderr.strip().splitlines() or ["killed"])[-1]
    return ""


def check_operators(day: Day, turns: Turns, results: Results) -> None:
    """Faults as rows, and a row with the number of correct samples.  Faults of earlier calls are
    retried, then samples that have not been reached."""
    kept = results.rows[OPERATORS].notes if OPERATORS in results.rows else {}
    again = [Task(row.section, row.name) for row in results.of("operator") if row.fault]
    every = [Task("operator", name) for name in operators.names()]
    rest = every[int(kept.get(SEEN, 0)) :]
    right, on_device = kept.get("right", 0.0), kept.get("on the device", 0.0)
    left = max(day.end - perf_counter(), 0.0)
    end = day.end - (1 - SHARE) * left if TIMES in day.phases else day.end
    seen: set[Task] = set()
    for task, found in turns.each([*again, *rest], "modelcc", day.workers, day.limit, end):
        seen.add(task)
        if isinstance(found, Failed):
            results.add(Row("operator", task.name, fault=found.reason))
            continue
        right, on_device = right + 1, on_device + found.notes["device"]
        if task in again:
            results.add(Row("operator", task.name, error=found.error))
    faults = sum(bool(row.fault) for row in results.of("operator"))
    whole = len(every) - len(rest) + len(list(takewhile(seen.__contains__, rest)))
    notes = {"right": right, "on the device": on_device, "faults": faults, SEEN: whole}
    if seen:
        results.add(Row("operator", OPERATORS, notes={**notes, "of": len(every)}))


def check_kernels(
    day: Day, turns: Turns, results: Results, profiles: Profiles, ready: Sequence[Case]
) -> None:
    """Correctness of all kernels."""
    bounds = {case.name: cases.TOLERANCES[case.dtype] for case in ready}
    left = [name for name in bounds if not results.is_right(name)]
    for some in _groups(left, CHECKED):
        tasks = {Task("kernel", name): bounds[name] for name in some}
        check_some(day, turns, results, profiles, tasks)


def check_some(
    day: Day, turns: Turns, results: Results, profiles: Profiles, bounds: Mapping[Task, float]
) -> None:
    """Correctness of rows, concurrently; then, one by one, timings of their kernels."""
    asked = [[(task, "modelcc")] for task in bounds]
    found = turns.opened(asked, day.end)
    late = perf_counter() >= day.end
    for place, ((task, _),) in enumerate(asked):
        answer = found.get((task, "modelcc"))
        if answer is None or (late and isinstance(answer, Failed)):
            continue
        row = _checked(task, answer, bounds[task])
        results.add(row)
        if not row.fault and day.profile and perf_counter() < day.end:
            profile = turns.profile(task, "modelcc", place)
            if isinstance(profile, Profile):
                profiles.add(profile)
                print("\n".join(profile.lines(SHOWN)), flush=True)
            else:
                print(f"{task.name}: no profile ({profile.reason})", flush=True)
        elif not isinstance(answer, Failed):
            turns.forget(task, "modelcc", place)


def _checked(task: Task, found: Opened | Failed, bound: float) -> Row:
    if isinstance(found, Failed):
        return Row(task.section, task.name, fault=found.reason)
    error = float("inf") if found.error is None else found.error
    return Row(task.section, task.name, error=error, fault="" if error <= bound else "WRONG")


def time_kernels(day: Day, turns: Turns, results: Results, ready: Sequence[Case]) -> None:
    """Each kernel interleaved with its peers."""
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
        found = turns.opened([[(task, engine) for engine in _engines(day, case)]], day.end)
        if perf_counter() >= day.end:
            return
        row = _timed(turns, task, 0, found, results.rows[case.name], inf)
        taken = row.seconds.get("modelcc")
        if taken is not None:
            rates = {"TFLOP/s": case.operations / taken * 1e-12, "GB/s": case.bytes / taken * 1e-9}
            row = replace(row, notes=rates)
        results.add(row)


def _engines(day: Day, case: Case) -> Sequence[str]:
    """Engines that time a kernel."""
    some = day.libraries
    return [e for e in KERNELS[case.peer] if some is None or e == "modelcc" or e in some]


def _timed(turns: Turns, task: Task, place: int, found: Answers, row: Row, bound: float) -> Row:
    """Timings of opened, correct engines."""
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
    day: Day,
    turns: Turns,
    results: Results,
    profiles: Profiles,
    builds: Mapping[Entry, Future[str]],
) -> None:
    """Correctness of all models, as they are compiled."""
    waiting = dict(builds)
    while waiting and perf_counter() < day.end:
        wait(waiting.values(), max(day.end - perf_counter(), 0.0), FIRST_COMPLETED)
        built = [entry for entry, future in waiting.items() if future.done()][:CHECKED]
        tasks: dict[Task, float] = {}
        for entry in built:
            fault = waiting.pop(entry).result()
            if fault and fault != LATE:
                results.add(Row("model", entry.name, fault=fault))
            elif not fault and not results.is_right(entry.name):
                tasks[Task("model", entry.name)] = entries.TOLERANCES[entry.dtype]
        if tasks:
            check_some(day, turns, results, profiles, tasks)


def time_models(day: Day, turns: Turns, results: Results, left: Sequence[Entry]) -> None:
    """Rows are prepared concurrently, and timed when nothing else runs."""
    right = [entry for entry in left if results.is_right(entry.name)]
    for some in _groups(right, day.places):
        tasks = [Task("model", entry.name) for entry in some]
        found = turns.opened([[(task, e) for e in day.engines] for task in tasks], day.end)
        for place, (entry, task) in enumerate(zip(some, tasks, strict=True)):
            if perf_counter() >= day.end:
                return
            bound = entries.TOLERANCES[entry.dtype]
            results.add(_timed(turns, task, place, found, results.rows[entry.name], bound))


def _groups(some: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (some[start : start + size] for start in range(0, len(some), size))
