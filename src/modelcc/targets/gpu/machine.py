"""The machine model of GPUs that schedules use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from modelcc.ir.loop_group_verifier import GroupLimits

KIB = 1 << 10

SECTOR_BYTES = 32
"""Bytes of memory that are fetched whenever one of them is read."""


@dataclass(frozen=True)
class GpuModel:
    """SMs, the resources of each, and rates of the whole machine.

    A unit (streaming multiprocessor, compute unit, core) has 32-bit ``registers``, allocated to
    threads in multiples of eight, ``shared_bytes``, of which each group takes ``reserved_bytes``
    more than it requests, and ``unit_threads`` for up to ``unit_groups`` groups.  A group has up to
    ``group_threads`` threads and ``group_shared_bytes``; a thread up to ``thread_registers``.
    Threads run in lockstep by ``warp``; with ``exchanges`` they have warp shuffles.  ``lanes`` are
    the 32-bit words that a thread moves at once, where kernels are printed with vectors.  Rates are
    1e12 operations a second in f32 (``flops``) and in f16 or bf16 with f32 sums by matrix
    instructions (``matrix_flops``; 0: there are none), and 1e9 bytes a second of memory
    (``bandwidth``), of which there are ``memory_bytes`` (0: it is the host's).  A kernel can bind
    ``binding_bytes`` of a tensor in one piece (0: all of it).  ``matrix`` names families of matrix
    instructions that kernels are printed with, as
    :class:`~modelcc.schedule.group_schedule.TensorProduct` does.  On a ``virtual`` one, a
    processor, the threads of a group run one after the other.  A thread of a product is expected to
    take ``address_registers`` for addresses, counters and conditions.  With ``arrivals``, groups of
    a kernel count arrivals, so that the last one sees what the others wrote.  With ``copies``,
    copies to shared memory are asynchronous.  Where it is ``paired``, shared memory serves two
    threads of a warp at once that load the same 8 or 16 bytes, if T and T^1 or T and T^2 do for all
    T (https://forums.developer.nvidia.com/t/unexpected-shared-memory-bank-conflict/77228).  Where
    it ``overlaps``, groups of a kernel may start before the previous kernel has ended (programmatic
    dependent launch).  With ``matrix_subnormals``, matrix instructions keep f16 subnormals instead
    of flushing them to 0.  ``clock`` is 1e9 cycles a second at which units multiply (0: as
    ``flops`` imply).
    """

    name: str
    units: int
    warp: int
    registers: int
    shared_bytes: int
    unit_threads: int
    group_shared_bytes: int
    flops: float
    bandwidth: float
    l2_bytes: int
    matrix_flops: float = 0.0
    group_threads: int = 1024
    thread_registers: int = 255
    unit_groups: int = 32
    lanes: int = 1
    matrix: tuple[str, ...] = ()
    virtual: bool = False
    arrivals: bool = False
    copies: bool = False
    matrix_subnormals: bool = True
    memory_bytes: int = 0
    binding_bytes: int = 0
    reserved_bytes: int = 0
    exchanges: bool = False
    address_registers: int = 32
    paired: bool = False
    clock: float = 0.0
    overlaps: bool = False

    @property
    def limits(self) -> GroupLimits:
        """Limits of a group."""
        return GroupLimits(self.group_shared_bytes, self.group_threads)

    @property
    def portable(self) -> GpuModel:
        """The machine as languages for any device describe it: scalar accesses, shared memory and
        barriers; no warp shuffles, matrix instructions, asynchronous copies or arrivals."""
        return replace(
            self, lanes=1, exchanges=False, matrix=(), copies=False, arrivals=False, overlaps=False
        )

    def groups_at_once(self, threads: int, registers: int, shared_bytes: int) -> int:
        """Groups that run on an SM at the same time, by the ``threads`` of one, ``registers`` of a
        thread and ``shared_bytes``; 0 if it cannot run at all."""
        if threads > self.group_threads or registers > self.thread_registers:
            return 0
        if shared_bytes > self.group_shared_bytes:
            return 0
        whole = -(-threads // self.warp) * self.warp
        by_threads = self.unit_threads // whole
        by_registers = self.registers // max(whole * -(-registers // 8) * 8, 1)
        shared_bytes += self.reserved_bytes
        by_memory = self.shared_bytes // shared_bytes if shared_bytes else self.unit_groups
        return min(by_threads, by_registers, by_memory, self.unit_groups)

    def occupancy(self, threads: int, registers: int, shared_bytes: int) -> float:
        """Resident threads as a part of the most that an SM can have."""
        groups = self.groups_at_once(threads, registers, shared_bytes)
        return groups * threads / self.unit_threads

    def seconds(self, operations: float, size: float) -> float:
        """The least time for f32 ``operations`` and ``size`` bytes from memory (roofline)."""
        return max(operations / (self.flops * 1e12), size / (self.bandwidth * 1e9))


A100 = GpuModel(
    name="A100",
    units=108,
    warp=32,
    registers=64 * KIB,
    shared_bytes=164 * KIB,
    unit_threads=2048,
    group_shared_bytes=163 * KIB,
    flops=19.5,
    bandwidth=2039.0,
    l2_bytes=40 << 20,
    matrix_flops=312.0,
    lanes=4,
    memory_bytes=80 << 30,
    reserved_bytes=KIB,
    exchanges=True,
    address_registers=40,
    paired=True,
    clock=1.41,
)
H100 = replace(
    A100, name="H100", units=132, shared_bytes=228 * KIB, group_shared_bytes=227 * KIB, flops=66.9,
    bandwidth=3350.0, l2_bytes=50 << 20, matrix_flops=989.0, clock=1.83,
)  # fmt: skip
H200 = replace(H100, name="H200", bandwidth=4800.0, memory_bytes=141 * 10**9)
_DESKTOP = replace(
    A100, name="RTX 3090", units=82, shared_bytes=100 * KIB, unit_threads=1536,
    group_shared_bytes=99 * KIB, flops=35.6, bandwidth=936.0, l2_bytes=6 << 20, matrix_flops=71.0,
    unit_groups=16, memory_bytes=24 << 30, clock=1.7,
)  # fmt: skip
RTX_4090 = replace(
    _DESKTOP, name="RTX 4090", units=128, flops=82.6, bandwidth=1008.0, l2_bytes=72 << 20,
    matrix_flops=165.2, unit_groups=24, clock=2.52,
)  # fmt: skip
MI300X = GpuModel(
    name="MI300X",
    units=304,
    warp=64,
    registers=128 * KIB,
    shared_bytes=64 * KIB,
    unit_threads=2048,
    group_shared_bytes=64 * KIB,
    flops=163.4,
    bandwidth=5300.0,
    l2_bytes=4 << 20,
    matrix_flops=1307.4,
    lanes=4,
    memory_bytes=192 << 30,
    exchanges=True,
)
MI250X = replace(
    MI300X, name="MI250X", units=110, flops=23.9, bandwidth=1638.4, l2_bytes=8 << 20,
    matrix_flops=191.5, memory_bytes=64 << 30,
)  # fmt: skip
"""One of its two dies, which programs see as a GPU each."""
MI350X = replace(
    MI300X, name="MI350X", units=256, shared_bytes=160 * KIB, group_shared_bytes=160 * KIB,
    flops=144.2, bandwidth=8000.0, matrix_flops=2306.9, memory_bytes=288 << 30,
)  # fmt: skip
RX_7900_XTX = replace(
    MI300X, name="RX 7900 XTX", units=48, warp=32, registers=192 * KIB, shared_bytes=128 * KIB,
    flops=61.4, bandwidth=960.0, l2_bytes=6 << 20, matrix_flops=122.8, memory_bytes=24 << 30,
    thread_registers=256,
)  # fmt: skip
"""A unit is a work group processor: two compute units, whose four SIMDs have 1,536 registers of 32
threads and 16 waves each, and LDS of which a group gets half (RDNA 3 ISA, 2.1 and 12.1; LLVM's
AMDGPUUsage and GCNSubtarget)."""
RX_9070_XT = replace(
    RX_7900_XTX, name="RX 9070 XT", units=32, flops=48.7, bandwidth=640.0, l2_bytes=8 << 20,
    matrix_flops=195.0, memory_bytes=16 << 30,
)  # fmt: skip
INTEGRATED = GpuModel(
    name="integrated",
    units=12,
    warp=16,
    registers=32 * KIB,
    shared_bytes=64 * KIB,
    unit_threads=896,
    group_shared_bytes=32 * KIB,
    flops=2.0,
    bandwidth=60.0,
    l2_bytes=2 << 20,
    group_threads=256,
    thread_registers=128,
    unit_groups=16,
)
APPLE = replace(
    INTEGRATED, name="Apple", units=8, warp=32, registers=52 * KIB, shared_bytes=32 * KIB,
    unit_threads=1024, flops=2.6, bandwidth=68.0, l2_bytes=8 << 20, group_threads=1024,
)  # fmt: skip
PROCESSOR = replace(
    INTEGRATED, name="processor", units=2, warp=8, shared_bytes=32 * KIB, unit_threads=256,
    group_shared_bytes=16 * KIB, flops=0.2, bandwidth=20.0, virtual=True,
)  # fmt: skip
"""pocl, lavapipe, SwiftShader; a group is no larger than what WebGPU and Vulkan guarantee."""

GPUS: Mapping[str, GpuModel] = MappingProxyType(
    {
        "a100": A100,
        "h100": H100,
        "h200": H200,
        "rtx30": _DESKTOP,
        "rtx40": RTX_4090,
        "mi250": MI250X,
        "mi300": MI300X,
        "mi350": MI350X,
        "rx7900": RX_7900_XTX,
        "rx9070": RX_9070_XT,
        "integrated": INTEGRATED,
        "apple": APPLE,
        "processor": PROCESSOR,
    }
)
"""Machines by their usual names; numbers from vendors' data sheets (for integrated and Apple's
GPUs, those of the smallest of a kind)."""
