"""Peak rates of this machine: f32 multiply-adds and memory reads, measured."""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np

CHAINS = 12
"""Independent accumulators: more than latency times throughput of any current FMA unit, and fewer
than there are registers on any."""

READ_BYTES = 256 << 20
REPEATS = 50
"""Many short runs: some of them are undisturbed even on a busy machine."""


@dataclass(frozen=True)
class Peaks:
    """Highest rates seen on some cores: GFLOP/s of f32 FMA and GB/s of sequential reads."""

    threads: int
    gflops: float
    gigabytes: float


def describe() -> str:
    """Processor, core count, operating system, and current load, in one line."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    system = f"{platform.system()} {platform.release()}"
    return f"{name}, {os.cpu_count()} cores, {system}, load average {os.getloadavg()[0]:.1f}"


def lanes() -> int:
    """f32 lanes of the widest vector unit."""
    features = llvm.get_host_cpu_features()
    return 16 if features.get("avx512f") else 8 if features.get("avx2") else 4


def _multiply_adds(width: int) -> str:
    """LLVM IR of `void fma(i64 n, float* out)`: n steps of CHAINS independent vector FMAs."""
    vector = f"<{width} x float>"
    phis = "\n".join(
        f"  %a{i} = phi {vector} [ zeroinitializer, %entry ], [ %b{i}, %loop ]"
        for i in range(CHAINS)
    )
    steps = "\n".join(
        f"  %b{i} = call {vector} @llvm.fma.v{width}f32({vector} %a{i}, {vector} %x, {vector} %x)"
        for i in range(CHAINS)
    )
    sums = "\n".join(
        f"  %s{i} = fadd {vector} {f'%s{i - 1}' if i else 'zeroinitializer'}, %b{i}"
        for i in range(CHAINS)
    )
    return f"""
declare {vector} @llvm.fma.v{width}f32({vector}, {vector}, {vector})
define void @fma(i64 %n, ptr %out) {{
entry:
  %x = load {vector}, ptr %out, align 4
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
{steps}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %done
done:
{sums}
  store {vector} %s{CHAINS - 1}, ptr %out, align 4
  ret void
}}
"""


def _reads(width: int) -> str:
    """LLVM IR of `void read(i64 n, float* in, float* out)`: adds n floats, eight vectors wide."""
    vector, ways = f"<{width} x float>", 8
    phis = "\n".join(
        f"  %a{k} = phi {vector} [ zeroinitializer, %entry ], [ %b{k}, %loop ]" for k in range(ways)
    )
    steps = "\n".join(
        f"""  %o{k} = add i64 %i, {k * width}
  %p{k} = getelementptr float, ptr %in, i64 %o{k}
  %v{k} = load {vector}, ptr %p{k}, align 4
  %b{k} = fadd {vector} %a{k}, %v{k}"""
        for k in range(ways)
    )
    sums = "\n".join(
        f"  %s{k} = fadd {vector} {f'%s{k - 1}' if k else 'zeroinitializer'}, %b{k}"
        for k in range(ways)
    )
    return f"""
define void @read(i64 %n, ptr %in, ptr %out) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
{steps}
  %next = add i64 %i, {ways * width}
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %done
done:
{sums}
  store {vector} %s{ways - 1}, ptr %out, align 4
  ret void
}}
"""


def _build(text: str) -> llvm.ExecutionEngine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


def _rate(jobs: Mapping[int, Callable[[], object]], work: float) -> float:
    """Sum over the cores of `work` by the best time of the job keyed by that core, all at once."""

    def seconds(core: int) -> float:
        os.sched_setaffinity(0, {core})
        start = time.perf_counter()
        jobs[core]()
        return time.perf_counter() - start

    with ThreadPoolExecutor(len(jobs)) as pool:
        runs = [list(pool.map(seconds, jobs)) for _ in range(REPEATS)]
    return sum(work / min(times) for times in zip(*runs, strict=True))


def multiply_adds(width: int, steps: int) -> tuple[Callable[[], object], int]:
    """A job of ``steps`` rounds of f32 FMA of ``width`` lanes, and its number of FMAs."""
    engine = _build(_multiply_adds(width))
    fma = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(
        engine.get_function_address("fma")
    )
    sums = np.zeros(width, np.float32)

    def run(_engine: object = engine) -> None:
        fma(steps, sums.ctypes.data)

    return run, steps * CHAINS * width


def peaks(cores: Sequence[int], steps: int = 1_000_000) -> Peaks:
    """Measures with one thread on each of `cores`."""
    width = lanes()
    engine = _build(_multiply_adds(width) + _reads(width))
    address = engine.get_function_address
    fma = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(address("fma"))
    read = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(address("read"))
    sums = {core: np.zeros(width, np.float32) for core in cores}
    data = {core: np.ones(READ_BYTES // 4, np.float32) for core in cores}
    compute = {core: partial(fma, steps, out.ctypes.data) for core, out in sums.items()}
    load = {
        core: partial(read, part.size, part.ctypes.data, sums[core].ctypes.data)
        for core, part in data.items()
    }
    flops = 2 * steps * CHAINS * width
    return Peaks(len(cores), 1e-9 * _rate(compute, flops), 1e-9 * _rate(load, READ_BYTES))
