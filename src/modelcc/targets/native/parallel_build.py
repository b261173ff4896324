"""Compile many LLVM modules at once, in processes.

llvmlite serialises calls into LLVM, so threads gain nothing. Forking is unsafe in
a process with threads (torch, our own pool), and `multiprocessing` runs the user's script again
unless it guards its main part. So the workers are plain subprocesses, fed through pipes; each
takes about 70 ms to start. An abort inside LLVM ends a worker, not the user's process.
"""

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO

import modelcc.targets.native as package
from modelcc.targets.base import BuildConfig
from modelcc.targets.native.cache import ObjectCache
from modelcc.targets.native.diagnostics import CodegenError
from modelcc.targets.native.machine import Machine
from modelcc.targets.native.toolchain import CodegenOptions, compile_llvm, object_key
from modelcc.targets.native.worker import CompileRequest, Reply

Progress = Callable[[int, int], None]  # (modules done, total modules)

# The package's public API imports far more than a worker needs: replace it by an empty module.
_WORKER = """
import sys, types
root = types.ModuleType("modelcc")
root.__path__ = [sys.argv[1]]
sys.modules["modelcc"] = root
sys.path[:] = sys.argv[2:]
from modelcc.targets.native.worker import serve
serve()
"""


def progress_of(config: BuildConfig) -> Progress:
    """Reports to ``config`` how many kernels are compiled."""
    return lambda done, total: config.report("compiling kernels", done, total)


def build(
    modules: Sequence[str],
    machine: Machine,
    options: CodegenOptions,
    *,
    jobs: int = 1,
    cache: ObjectCache | None = None,
    progress: Progress | None = None,
) -> list[bytes]:
    """Object files of `modules`, in their order, compiled by up to `jobs` processes.

    With one job everything runs in this process. Modules in `cache` are not recompiled, nor are
    equal ones. `progress` is called in the calling thread. Raises CodegenError for the first
    module, in their order, that cannot be compiled.
    """
    keys = [object_key(text, machine, options) for text in modules]
    unique = dict(zip(keys, modules, strict=True))
    found = {key: cache.get(key) for key in unique} if cache else {}
    objects = {key: contents for key, contents in found.items() if contents is not None}
    missing = {key: text for key, text in unique.items() if key not in objects}
    requests = [CompileRequest(text, machine, options) for text in missing.values()]
    done = len(objects)

    def report(finished: int) -> None:
        if progress:
            progress(done + finished, len(unique))

    report(0)
    for key, contents in zip(missing, _compile_all(requests, jobs, report), strict=True):
        objects[key] = contents
        if cache:
            cache.put(key, contents)
    return [objects[key] for key in keys]


def _compile_all(
    requests: Sequence[CompileRequest], jobs: int, report: Callable[[int], None]
) -> list[bytes]:
    if jobs > 1 and len(requests) > 1:
        with WorkerPool(min(jobs, len(requests))) as pool:
            return pool.compile(requests, report)
    contents: list[bytes] = []
    for request in requests:
        contents.append(_compile_here(request))
        report(len(contents))
    return contents


@lru_cache(64)
def _compile_here(request: CompileRequest) -> bytes:
    """Compiles in this process.  The last results are cached: most programs have the thread
    pool."""
    return compile_llvm(request.text, request.machine, request.options)


class ParallelBuilder:
    """Builds modules in up to `jobs` processes while its caller emits more; close it at the end.

    Modules in `cache` are not recompiled, nor are equal ones.
    """

    def __init__(
        self, machine: Machine, options: CodegenOptions, jobs: int, cache: ObjectCache | None
    ) -> None:
        self._machine = machine
        self._options = options
        self._jobs = jobs
        self._cache = cache
        self._pool: WorkerPool | None = None
        self._found: dict[str, bytes] = {}
        self._started: dict[str, Future[bytes]] = {}

    def start(self, text: str) -> str:
        """Starts to build a module, unless built or started already; returns its key."""
        key = object_key(text, self._machine, self._options)
        if key in self._found or key in self._started:
            return key
        contents = self._cache.get(key) if self._cache else None
        if contents is not None:
            self._found[key] = contents
            return key
        if self._pool is None:
            self._pool = WorkerPool(self._jobs)
        self._started[key] = self._pool.submit(CompileRequest(text, self._machine, self._options))
        return key

    def build(self, modules: Sequence[str], progress: Progress | None = None) -> list[bytes]:
        """Like the function `build`, with most of the work done already."""
        for text in sorted(modules, key=len, reverse=True):
            self.start(text)
        keys = [self.start(text) for text in modules]
        pending = {key: self._started[key] for key in dict.fromkeys(keys) if key in self._started}
        total = len(set(keys))
        done = total - len(pending)

        def report(finished: int) -> None:
            if progress:
                progress(done + finished, total)

        report(0)
        for key, contents in zip(pending, _gather([*pending.values()], report), strict=True):
            self._found[key] = contents
            if self._cache:
                self._cache.put(key, contents)
        return [self._found[key] for key in keys]

    def close(self) -> None:
        """Ends the processes after their current modules."""
        if self._pool is not None:
            self._pool.close()


@dataclass(frozen=True)
class _CompilerProcess:
    """A compiling subprocess and the file that receives its standard error."""

    process: subprocess.Popen[bytes]
    errors: IO[bytes]


class WorkerPool:
    """Compiling subprocesses that stay alive over many calls, as tuning needs; close when done."""

    def __init__(self, jobs: int) -> None:
        """Up to `jobs` workers, started on demand."""
        self._idle: SimpleQueue[_CompilerProcess] = SimpleQueue()
        self._threads = ThreadPoolExecutor(jobs)

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers after their current modules."""
        self._threads.shutdown(cancel_futures=True)
        while not self._idle.empty():
            _stop(self._idle.get())

    def compile(
        self, requests: Sequence[CompileRequest], report: Callable[[int], None] | None = None
    ) -> list[bytes]:
        """Object files in the order of `requests`; raises like `build`."""
        # Longest first: the last ones are then short, and end at about the same time.
        longest = sorted(range(len(requests)), key=lambda n: -len(requests[n].text))
        submitted = {n: self.submit(requests[n]) for n in longest}
        futures = [submitted[n] for n in range(len(requests))]
        try:
            return _gather(futures, report)
        except CodegenError:
            for future in futures:
                future.cancel()
            raise

    def submit(self, request: CompileRequest) -> Future[bytes]:
        """A future of the object file of `request`."""
        return self._threads.submit(self._compile_one, request)

    def _free(self) -> _CompilerProcess:
        """An idle worker for one of the threads, which do not outnumber the workers."""
        try:
            return self._idle.get_nowait()
        except Empty:
            return _start()

    def _compile_one(self, request: CompileRequest) -> bytes:
        worker = self._free()
        try:
            reply = _exchange(worker, request)
        except CodegenError:  # the worker has died: the next request needs another
            _stop(worker)
            worker = _start()
            raise
        finally:
            self._idle.put(worker)
        if reply.error:
            raise CodegenError(reply.error)
        return reply.contents


def _gather(futures: Sequence[Future[bytes]], report: Callable[[int], None] | None) -> list[bytes]:
    for finished, future in enumerate(as_completed(futures), start=1):
        if future.exception() is not None:
            break
        if report:
            report(finished)
    return [future.result() for future in futures]


def _start() -> _CompilerProcess:
    root = Path(package.__file__ or "").parents[2]
    errors = _unnamed_file()
    process = subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(root), *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
    )
    return _CompilerProcess(process, errors)


def _unnamed_file() -> IO[bytes]:
    """A file for the standard error of a process, closed by `_stop`; in memory, as disks may be
    full."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("errors"), "w+b")
    return tempfile.TemporaryFile()


def _exchange(worker: _CompilerProcess, request: CompileRequest) -> Reply:
    requests, replies = worker.process.stdin, worker.process.stdout
    assert requests and replies
    try:
        pickle.dump(request, requests)
        requests.flush()
        return pickle.load(replies)
    except (BrokenPipeError, EOFError, pickle.UnpicklingError) as error:
        raise CodegenError(_obituary(worker)) from error


def _obituary(worker: _CompilerProcess) -> str:
    status = worker.process.wait()
    worker.errors.seek(0)
    lines = worker.errors.read().decode(errors="replace").strip().splitlines()[-20:]
    return "\n".join([f"LLVM stopped while compiling a module (exit status {status}):", *lines])


def _stop(worker: _CompilerProcess) -> None:
    if worker.process.stdin:
        with contextlib.suppress(BrokenPipeError):  # it has died, which the caller has noticed
            worker.process.stdin.close()
    worker.process.wait()
    if worker.process.stdout:
        worker.process.stdout.close()
    worker.errors.close()
