"""A process that times functions of one kernel in turns.

It reads pickled Jobs from standard input and writes to standard output a pickled True once it is
ready, and for each job a pickled list of times.

It is a separate process since a candidate may crash or hang.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from modelcc.artifact.manifest import LibrarySpec
from modelcc.ir.types import Array
from modelcc.runtime.linking.libraries import addresses
from modelcc.runtime.loader import load_objects
from modelcc.runtime.pool import ThreadPool

ALIGNMENT = 64


@dataclass(frozen=True)
class Variant:
    """A function of an object file; whether it takes a thread pool."""

    contents: bytes
    function: str
    parallel: bool


@dataclass(frozen=True)
class BufferSpec:
    """A buffer of ``size`` bytes, filled with values of the NumPy type ``fill`` (``f4``), or with
    zeros if that is empty."""

    size: int
    fill: str = ""


@dataclass(frozen=True)
class Job:
    """A timing job: all ``variants``, which may call ``libraries``, on the same buffers, each run
    after reading ``flush`` bytes, for about ``seconds`` or ``rounds`` times."""

    variants: tuple[Variant, ...]
    parameters: tuple[BufferSpec, ...]
    sizes: tuple[int, ...]
    threads: int
    flush: int
    seconds: float
    rounds: int
    libraries: tuple[LibrarySpec, ...] = ()


def timed(job: Job) -> list[list[float]]:
    """Seconds of each run of each variant, without warm-up runs."""
    buffers = [_buffer(parameter) for parameter in job.parameters]
    other = np.ones(max(job.flush // 8, 1))
    foreign = addresses(job.libraries)
    with ThreadPool(job.threads) as pool:
        symbols = {**foreign, "mcc_parallel_for": pool.parallel_for_address}
        runs = [_run(variant, buffers, job.sizes, pool, symbols) for variant in job.variants]
        for run in runs:
            run()
        start = perf_counter()
        times: list[list[float]] = [[] for _ in runs]
        for number in range(job.rounds):
            if number > 2 and perf_counter() - start > job.seconds:
                break
            for run, own in zip(runs, times, strict=True):
                other.sum()
                before = perf_counter()
                run()
                own.append(perf_counter() - before)
    return times


def _run(
    variant: Variant,
    buffers: Sequence[Array],
    sizes: Sequence[int],
    pool: ThreadPool,
    symbols: Mapping[str, int],
) -> Callable[[], object]:
    code = load_objects([variant.contents], symbols)
    values = [ctypes.c_void_p(buffer.ctypes.data) for buffer in buffers]
    numbers = [ctypes.c_int64(size) for size in sizes]
    last = [ctypes.c_void_p(pool.address)] if variant.parallel else []
    arguments = (*values, *numbers, *last)
    function = ctypes.CFUNCTYPE(None, *map(type, arguments))(code.address(variant.function))

    def run(owner: object = code) -> object:
        function(*arguments)
        return owner

    return run


def _buffer(parameter: BufferSpec) -> Array:
    """Aligned memory of normal numbers that do not overflow."""
    whole = np.zeros(parameter.size + 2 * ALIGNMENT, np.uint8)
    start = -whole.ctypes.data % ALIGNMENT
    buffer = whole[start : start + parameter.size]
    if parameter.fill:
        kind = np.dtype(parameter.fill)
        count = parameter.size // kind.itemsize
        values = np.random.default_rng(0).uniform(0.5, 1.0, count).astype(kind)
        buffer[: count * kind.itemsize] = values.view(np.uint8)
    return buffer


def serve() -> None:
    """Reports that it is ready, and serves jobs until standard input ends."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    pickle.dump(True, replies)
    replies.flush()
    while True:
        try:
            job: Job = pickle.load(sys.stdin.buffer)
        except EOFError:
            os._exit(0)  # threads left by a candidate must not keep the process alive
        pickle.dump(timed(job), replies)
        replies.flush()


if __name__ == "__main__":
    serve()
