"""Times of a kernel's schedules, measured in turns in a separate process."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from select import select
from statistics import median
from typing import Self

import modelcc.tune as package
from modelcc.ir.index import Sym, evaluate
from modelcc.ir.library import Callee, meaning_of
from modelcc.ir.loop import Function
from modelcc.ir.loop_traversal import parallel_loop
from modelcc.ir.types import DType
from modelcc.passes.program.nominal import nominal_values
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.schedule import Schedule
from modelcc.targets.base import BuildConfig
from modelcc.targets.cpu.lower import schedule_kernel
from modelcc.targets.native.cpu_target import CpuTarget
from modelcc.tune.worker import BufferSpec, Job, Variant

_FILLS = {"f32": "f4", "f64": "f8", "f16": "f2"}
"""Types whose buffers are filled with random numbers; zeros are indices that are always in
range."""

_START = """
import sys, types
root = types.ModuleType("modelcc")
root.__path__ = [sys.argv[1]]
sys.modules["modelcc"] = root
sys.path[:] = sys.argv[2:]
from modelcc.tune.worker import serve
serve()
"""
"""The package's public API imports far more than a worker needs: it is replaced by an empty
module."""

ROUNDS = 400
GRACE = 10.0
"""Seconds beyond the measuring itself after which a worker counts as hung."""


@dataclass(frozen=True)
class Times:
    """Median seconds of the default and, in the same turns, of a schedule; ``ratio`` is the median
    speedup over the default."""

    default: float
    own: float
    ratio: float


class WorkerError(Exception):
    """Raised if a worker crashed, or hung."""

    def __init__(self, hung: bool) -> None:
        super().__init__("it hung" if hung else "it crashed")
        self.hung = hung


class Worker:
    """A process that times jobs; restarted after it has ended.  Close it.

    It counts as hung if it takes :data:`GRACE` longer than its job should; start-up is not counted.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def times(self, job: Job) -> list[list[float]]:
        """Seconds of each run of each variant; raises :class:`WorkerError`."""
        try:
            process = self._started()
            assert process.stdin is not None and process.stdout is not None
            pickle.dump(job, process.stdin)
            process.stdin.flush()
            if not select([process.stdout], [], [], job.seconds + GRACE)[0]:
                self.close()
                raise WorkerError(hung=True)
            return pickle.load(process.stdout)
        except (BrokenPipeError, EOFError, pickle.UnpicklingError) as error:
            self.close()
            raise WorkerError(hung=False) from error

    def close(self) -> None:
        """Kills the process, even if busy."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            root = str(Path(package.__file__).parent.parent)
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, root, *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            assert self._process.stdout is not None
            pickle.load(self._process.stdout)  # ready message: start-up may be slow
        return self._process


@dataclass(frozen=True)
class WorkerMeasurer:
    """Measures on ``target`` in a ``worker``, building in ``config``, each schedule for about
    ``seconds``."""

    target: CpuTarget
    config: BuildConfig
    worker: Worker
    seconds: float = 0.1

    def times(
        self, kernel: CanonicalKernel, default: Schedule, others: Sequence[Schedule]
    ) -> list[Times]:
        """Times of each of the ``others`` and of the ``default`` in turns; raises
        :class:`WorkerError`."""
        found = self._run(kernel, (default, *others))
        plain = found[0]
        return [
            Times(
                median(plain), median(own), median(a / b for a, b in zip(plain, own, strict=True))
            )
            for own in found[1:]
        ]

    def seconds_of(self, kernel: CanonicalKernel, schedule: Schedule) -> float:
        """Median seconds of one schedule; raises :class:`WorkerError`."""
        return median(self._run(kernel, (schedule,))[0])

    def _run(self, kernel: CanonicalKernel, schedules: Sequence[Schedule]) -> list[list[float]]:
        target = self.target
        scheduled = [
            schedule_kernel(kernel, f"variant{n}", target.cpu, (), s).function
            for n, s in enumerate(schedules)
        ]
        functions = [target.legalize(f) if isinstance(f, Function) else f for f in scheduled]
        modules = [m for function in functions for m in target.emit_functions([function])]
        objects = target.build(modules, self.config)
        variants = [
            Variant(contents, function.name, parallel_loop(meaning_of(function)) is not None)
            for contents, function in zip(objects, functions, strict=True)
        ]
        values = nominal_values(map(Sym, functions[0].sizes), dict(kernel.dims))
        job = Job(
            tuple(variants),
            _parameters(functions, values),
            tuple(values[name] for name in functions[0].sizes),
            target.cpu.threads,
            4 * target.cpu.l2_bytes,
            self.seconds * len(variants),
            ROUNDS,
            target.called(functions),
        )
        return self.worker.times(job)


def _parameters(functions: Sequence[Callee], values: dict[str, int]) -> tuple[BufferSpec, ...]:
    """Buffers large enough for all of the functions, whose packed layouts may differ."""
    found: list[BufferSpec] = []
    for same in zip(*(function.parameters for function in functions), strict=True):
        buffers = [parameter.buffer for parameter in same]
        size = max(_bytes(b.dtype, int(evaluate(b.size, values))) for b in buffers)
        found.append(BufferSpec(size, _FILLS.get(str(buffers[0].dtype), "")))
    return tuple(found)


def _bytes(dtype: DType, count: int) -> int:
    return -(-count * dtype.bits // 8)
