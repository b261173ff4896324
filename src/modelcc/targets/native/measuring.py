"""Measures the processor that this process runs on, by generated code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from time import perf_counter, thread_time

import numpy as np

from modelcc.ir.index import evaluate
from modelcc.ir.loop import Function
from modelcc.ir.types import F32, F64, Array
from modelcc.runtime.loader import NativeCode, load_objects
from modelcc.runtime.pool import PoolError, ThreadPool
from modelcc.targets.base import Progress
from modelcc.targets.cpu.machine import AHEAD_BYTES, CpuModel, MemoryLevel
from modelcc.targets.isa.table import widest
from modelcc.targets.llvm.emitter import emit_llvm
from modelcc.targets.llvm.parallel import PARALLEL_FOR
from modelcc.targets.native import probes
from modelcc.targets.native.emission import emission, instructions
from modelcc.targets.native.machine import Machine
from modelcc.targets.native.toolchain import compile_llvm

SLICE = 0.4e-3
"""Seconds of one try: short, so that some are not interrupted."""

TRIES = 40
BEYOND = 4
"""A buffer in memory is this many times the size of the last cache; one in a cache at most this
many times the size of the previous cache."""

SMALLEST, LARGEST = 64 << 20, 512 << 20
"""Minimum and maximum bytes of a buffer in memory."""

NEAR = ("L1", "L2")
"""Caches for which hardware prefetching suffices."""

FORKS = 200

Clock = Callable[[], float]


@dataclass(frozen=True)
class Measured:
    """Measurements: seconds per cycle, multiply-adds per second by type, latency of one in cycles;
    bytes per second that one core reads, and seconds that a read takes, by level of memory;
    fork-join overhead of a loop on ``threads`` in seconds (None: no threads); bytes per second of
    levels with each line prefetched (``fetched``)."""

    cycle: float
    multiply_adds: Mapping[str, float] = field(default_factory=dict[str, float])
    latency: float = 0.0
    bandwidth: Mapping[str, float] = field(default_factory=dict[str, float])
    access: Mapping[str, float] = field(default_factory=dict[str, float])
    fork_join: float | None = None
    threads: int = 1
    fetched: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def ahead_bytes(self) -> int:
        """Prefetch distance for data that are read once from beyond the L2 cache: 0 if prefetching
        is slower."""
        gains = [speed / self.bandwidth[name] for name, speed in self.fetched.items()]
        return AHEAD_BYTES if prod(gains) >= 1 else 0

    def numbers(self, model: CpuModel, known: bool) -> tuple[tuple[str, float], ...]:
        """Fields that override those of ``model``.

        A ``known`` processor keeps its pipes: a busy machine appears to have fewer.
        """
        read = {name: speed * self.cycle for name, speed in self.bandwidth.items()}
        found: dict[str, float] = {f"{n.lower()}_bandwidth": round(v, 1) for n, v in read.items()}
        if self.fetched:
            found["ahead_bytes"] = self.ahead_bytes
        if not known:
            vector = model.lanes(32) * (1.0 if model.fused else 0.5)
            found["fmas"] = _whole(self.multiply_adds["f32"] * self.cycle / vector)
            found["loads"] = _whole(read["L1"] / (model.vector_bits // 8))
            found["fma_latency"] = _whole(self.latency)
        return tuple(sorted(found.items()))


def measure(machine: Machine, model: CpuModel, threads: int, progress: Progress) -> Measured:
    """Measures ``machine``, which is this one, for some seconds."""
    rates = _rates(machine, model)
    single = _Rate("f32", probes.multiply_adds("single", F32, model.lanes(32), 1), 1)
    sweep, ahead = (probes.reads(model.vector_bits, ahead) for ahead in (0, AHEAD_BYTES))
    walk, ticks = probes.chase(), probes.cycles()
    progress("compiling", 0, 4)
    functions = [*(rate.function for rate in (*rates, single)), sweep, ahead, walk, ticks]
    code = _compiled(machine, functions)
    progress("measuring arithmetic", 1, 4)
    cycle = _seconds(_Probe(code, ticks, {"y": np.array([1, 3, 5])})) / (2 * probes.CYCLE_STEPS)
    speeds = {r.name: r.count / _seconds(_Probe(code, r.function, _operands(r))) for r in rates}
    latency = _seconds(_Probe(code, single.function, _operands(single))) / cycle
    progress("measuring memory", 2, 4)
    sizes = {level.name: size for level, size in _buffers(model)}
    read = {name: size / _seconds(_reading(code, sweep, size)) for name, size in sizes.items()}
    far = {name: size for name, size in sizes.items() if name not in NEAR}
    fetched = {name: size / _seconds(_reading(code, ahead, size)) for name, size in far.items()}
    access = {name: _seconds(_chasing(code, walk, size)) for name, size in sizes.items()}
    progress("measuring threads", 3, 4)
    joined = _fork_join(machine, threads)
    return Measured(cycle, speeds, latency, read, access, joined, threads, fetched)


@dataclass(frozen=True)
class _Rate:
    """A function with ``count`` multiply-adds of ``name`` per round."""

    name: str
    function: Function
    count: int


def _rates(machine: Machine, model: CpuModel) -> list[_Rate]:
    chains = 24 if model.vector_registers > 16 else 12
    found: list[_Rate] = []
    for dtype in (F32, F64):
        lanes = model.lanes(8 * dtype.bytes)
        function = probes.multiply_adds(dtype.name, dtype, lanes, chains)
        found.append(_Rate(dtype.name, function, chains * lanes))
    lanes = min(widest(instructions(machine).encodings, "dot_bytes"), model.lanes(32))
    if lanes:
        found.append(_Rate("i8", probes.byte_dots(lanes, chains), chains * lanes * 4))
    return found


class _Probe:
    """A loaded function with its arguments; called with a number of rounds."""

    def __init__(
        self,
        code: NativeCode,
        function: Function,
        arrays: Mapping[str, Array],
        sizes: Sequence[int] = (),
        pool: ThreadPool | None = None,
    ) -> None:
        self._arrays = [_aligned(arrays[p.buffer.name]) for p in function.parameters]
        values: list[ctypes.c_void_p | ctypes.c_int64] = [
            ctypes.c_void_p(array.ctypes.data) for array in self._arrays
        ]
        values += [ctypes.c_int64(size) for size in sizes]
        self._values = values
        self._counts = probes.REPEATS in function.sizes
        self._pool = [] if self._counts else [ctypes.c_void_p(pool.address if pool else None)]
        kinds: list[type[ctypes.c_void_p | ctypes.c_int64]] = [
            type(value) for value in (*values, *self._pool)
        ]
        kinds += [ctypes.c_int64] if self._counts else []
        self._call: Callable[..., None] = ctypes.CFUNCTYPE(None, *kinds)(
            code.address(function.name)
        )

    def __call__(self, rounds: int) -> None:
        if self._counts:
            self._call(*self._values, rounds)
            return
        for _ in range(rounds):
            self._call(*self._values, *self._pool)


def _seconds(probe: Callable[[int], None]) -> float:
    """Seconds per round: the minimum of several tries, the least disturbed one."""
    rounds = 1
    while (taken := _taken(probe, rounds)) < SLICE and rounds < 1 << 30:
        rounds *= 2 if taken * 8 > SLICE else 8
    return min(_taken(probe, rounds) for _ in range(TRIES)) / rounds


def _taken(probe: Callable[[int], None], rounds: int, clock: Clock = thread_time) -> float:
    """Seconds of a call: of this thread's own, unless several threads take part."""
    start = clock()
    probe(rounds)
    return clock() - start


def _operands(rate: _Rate) -> Mapping[str, Array]:
    """Fixed-point operands: sums tend to 1."""
    values = {"a": 0.5, "b": 0.5, "y": 1}
    return {
        buffer.name: np.full(evaluate(buffer.size, {}), values[buffer.name], buffer.dtype.numpy)
        for buffer in (parameter.buffer for parameter in rate.function.parameters)
    }


def _buffers(model: CpuModel) -> Iterator[tuple[MemoryLevel, int]]:
    """Bytes to read of each level: far more than nearer levels have, but less than its own size."""
    before = 0
    for level in model.levels:
        size = level.bytes // 2 if level.bytes else max(SMALLEST, min(BEYOND * before, LARGEST))
        yield level, max(min(size, BEYOND * before) if level.bytes and before else size, 4 << 10)
        before = level.bytes


def _reading(code: NativeCode, function: Function, size: int) -> _Probe:
    step = evaluate(function.parameters[1].buffer.size, {})
    extent = size // 4 // step * step
    arrays = {"x": np.ones(extent, np.int32), "y": np.zeros(step, np.int32)}
    return _Probe(code, function, arrays, (extent,))


def _chasing(code: NativeCode, function: Function, size: int) -> _Probe:
    """A pointer chase through all lines of a buffer, each once, in an unpredictable order."""
    apart = probes.LINE // 8
    order = np.random.default_rng(0).permutation(size // probes.LINE) * apart
    x = np.zeros(size // 8, np.int64)
    x[order] = np.roll(order, -1)
    probe = _Probe(code, function, {"x": x, "y": order[:1].copy()}, (len(x),))
    probe(len(order))  # warm the caches
    return probe


def _fork_join(machine: Machine, threads: int) -> float | None:
    """Fork-join overhead in seconds of a loop on ``threads``; None without a thread pool."""
    if threads == 1:
        return None
    function = probes.fork(threads)
    arrays = {"y": np.zeros(evaluate(function.parameters[0].buffer.size, {}), np.float32)}
    with suppress(PoolError), ThreadPool(threads) as pool:
        code = _compiled(machine, [function], pool)
        pair = [_Probe(code, function, arrays, (), p) for p in (pool, None)]
        tries = [[_taken(probe, FORKS, perf_counter) for probe in pair] for _ in range(TRIES)]
        return max(0.0, min(t[0] for t in tries) - min(t[1] for t in tries)) / FORKS
    return None


def _compiled(
    machine: Machine, functions: Sequence[Function], pool: ThreadPool | None = None
) -> NativeCode:
    text = emit_llvm(functions, emission(machine))
    known: dict[str, int] = {PARALLEL_FOR: pool.parallel_for_address} if pool else {}
    return load_objects([compile_llvm(text, machine)], known)


def _aligned(array: Array) -> Array:
    """A page-aligned copy."""
    room = np.zeros(array.nbytes + 4096, np.uint8)
    start = -room.ctypes.data % 4096
    placed = room[start : start + array.nbytes].view(array.dtype)
    placed[:] = array
    return placed


def _whole(value: float) -> int:
    return max(1, round(value))
