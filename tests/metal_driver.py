"""What stands for Metal in tests: of PyObjC's modules ``Metal`` and ``objc`` the functions, classes
and selectors that devices use, on the host's memory.

It is strict.  Work is done when somebody waits for it, not before; what is given must be of the
types that Metal's headers say, within memory, and aligned; objects that nobody keeps are made
within a pool.  Kernels are compiled by g++ with a header in the place of Metal's library.
"""

# ruff: noqa: N802

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from time import perf_counter
from weakref import finalize

from metal_source import BYTES, MOST_ARGUMENTS, Kernel, check_memories, compiled, kernels_of

MOST_BYTES = 4096
POISON = 0xFF
"""What is in memory that nobody has written."""

_RUNNING = threading.Lock()
"""Kernels keep the threads of a group in variables of their library."""

Size = tuple[int, int, int]


class Error:
    """An ``NSError``."""

    def __init__(self, words: str) -> None:
        self._words = words

    def localizedDescription(self) -> str:
        return self._words


class CompileOptions:
    """``MTLCompileOptions``, of a system that has modes of mathematics or of one before."""

    def __init__(self, modes: bool) -> None:
        self._modes = modes
        self.safe = False

    def respondsToSelector_(self, selector: str) -> bool:
        assert selector == "setMathMode:"
        return self._modes

    def setMathMode_(self, mode: int) -> None:
        assert self._modes, "unrecognized selector"
        self.safe = mode == FakeMetal.MTLMathModeSafe

    def setFastMathEnabled_(self, on: bool) -> None:
        assert isinstance(on, bool)
        self.safe = not on


class MakesOptions:
    """``MTLCompileOptions.alloc().init()``."""

    def __init__(self, modes: bool) -> None:
        self._modes = modes

    def alloc(self) -> MakesOptions:
        return self

    def init(self) -> CompileOptions:
        return CompileOptions(self._modes)


@dataclass(frozen=True)
class Function:
    """An ``MTLFunction``."""

    kernel: Kernel
    run: Callable[..., int]


class Library:
    """An ``MTLLibrary``."""

    def __init__(self, text: str, loaded: ctypes.CDLL) -> None:
        self._kernels, self._loaded = kernels_of(text), loaded

    def newFunctionWithName_(self, name: str) -> Function | None:
        assert isinstance(name, str)
        if name not in self._kernels:
            return None
        return Function(self._kernels[name], getattr(self._loaded, f"run_{name}"))


@dataclass(frozen=True)
class Pipeline:
    """An ``MTLComputePipelineState``."""

    function: Function
    most: int

    def maxTotalThreadsPerThreadgroup(self) -> int:
        return self.most


class Items:
    """An ``objc.varlist``, of bytes."""

    def __init__(self, memory: ctypes.Array[ctypes.c_uint8]) -> None:
        self._memory = memory

    def as_buffer(self, count: int) -> memoryview:
        assert 0 < count <= len(self._memory)
        return memoryview(self._memory).cast("B")[:count]


class Buffer:
    """An ``MTLBuffer``."""

    def __init__(self, size: int) -> None:
        self.memory = (ctypes.c_uint8 * size)()
        ctypes.memset(self.memory, POISON, size)

    def contents(self) -> Items:
        return Items(self.memory)

    def length(self) -> int:
        return len(self.memory)

    def address(self, offset: int) -> int:
        return ctypes.addressof(self.memory) + offset


Bound = tuple[Buffer, int] | bytes


class Encoder:
    """What takes commands until it is ended."""

    def __init__(self, commands: Commands) -> None:
        self.commands = commands
        self.ended = False
        commands.open = self

    def ask(self, work: Callable[[], None]) -> None:
        assert self.commands.open is self and not self.ended, "the encoder is ended"
        self.commands.work.append(work)

    def endEncoding(self) -> None:
        assert self.commands.open is self and not self.ended
        self.ended, self.commands.open = True, None


class ComputeEncoder(Encoder):
    """An ``MTLComputeCommandEncoder``, whose launches run one after the other."""

    def __init__(self, commands: Commands) -> None:
        super().__init__(commands)
        self._pipeline: Pipeline | None = None
        self._bound: dict[int, Bound] = {}

    def setComputePipelineState_(self, state: Pipeline) -> None:
        assert isinstance(state, Pipeline)
        self._pipeline = state

    def setBuffer_offset_atIndex_(self, buffer: Buffer, offset: int, index: int) -> None:
        assert isinstance(buffer, Buffer) and 0 <= offset < buffer.length()
        assert 0 <= index < MOST_ARGUMENTS
        self._bound[index] = buffer, offset

    def setBytes_length_atIndex_(self, data: bytes, length: int, index: int) -> None:
        assert isinstance(data, bytes) and len(data) == length <= MOST_BYTES
        assert 0 <= index < MOST_ARGUMENTS
        self._bound[index] = data

    def dispatchThreadgroups_threadsPerThreadgroup_(self, grid: Size, threads: Size) -> None:
        assert self._pipeline is not None, "no kernel"
        kernel = self._pipeline.function.kernel
        assert 0 < prod(threads) == kernel.threads <= self._pipeline.most and prod(grid) > 0
        given = [self._bound[number] for number in range(len(kernel.arguments))]
        for kind, bound in zip(kernel.arguments, given, strict=True):
            _check_argument(kind, bound)
        self.commands.metal.launches += 1
        run = self._pipeline.function.run
        self.ask(lambda: _run(run, kernel, given, grid, threads))


def _check_argument(kind: str, bound: Bound) -> None:
    if isinstance(bound, bytes):
        assert kind == "" and len(bound) == 8
        return
    assert kind and bound[1] % BYTES[kind] == 0, "an offset that is not aligned"


def _run(
    run: Callable[..., int], kernel: Kernel, given: Sequence[Bound], grid: Size, threads: Size
) -> None:
    numbers = [ctypes.create_string_buffer(b, 8) for b in given if isinstance(b, bytes)]
    places = iter(map(ctypes.addressof, numbers))
    found = [next(places) if isinstance(b, bytes) else b[0].address(b[1]) for b in given]
    memory = (ctypes.c_void_p * max(1, len(found)))(*found)
    with _RUNNING:
        together = run(memory, (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*threads))
    assert together, f"threads of {kernel.name} wait at different barriers"


class BlitEncoder(Encoder):
    """An ``MTLBlitCommandEncoder``."""

    def copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size_(
        self, source: Buffer, offset: int, to: Buffer, to_offset: int, size: int
    ) -> None:
        assert isinstance(source, Buffer) and isinstance(to, Buffer) and size > 0
        assert all(number % 4 == 0 for number in (offset, to_offset, size)), "macOS wants words"
        assert 0 <= offset <= source.length() - size and 0 <= to_offset <= to.length() - size
        assert source is not to or abs(offset - to_offset) >= size, "places overlap"

        def copy() -> None:
            ctypes.memmove(to.address(to_offset), source.address(offset), size)

        self.ask(copy)


class Commands:
    """An ``MTLCommandBuffer``."""

    def __init__(self, metal: FakeMetal, queue: Queue) -> None:
        self.metal = metal
        self.work: list[Callable[[], None]] = []
        self.open: Encoder | None = None
        self._queue = queue
        self._status = 0
        self._times = 0.0, 0.0

    def __del__(self) -> None:
        """Metal ends a process that gives back an encoder which is not ended."""
        if self.open is not None:
            self.metal.left.append("an encoder was not ended")

    def computeCommandEncoder(self) -> ComputeEncoder:
        self._may_begin()
        return ComputeEncoder(self)

    def blitCommandEncoder(self) -> BlitEncoder:
        self._may_begin()
        return BlitEncoder(self)

    def _may_begin(self) -> None:
        self.metal.within_pool()
        assert self._status == 0 and self.open is None, "an encoder is not ended"

    def commit(self) -> None:
        assert self._status == 0 and self.open is None
        self._status = 2
        self._queue.waiting.append(self)

    def waitUntilCompleted(self) -> None:
        assert self._status >= 2, "nobody comes back from this"
        while self._status == 2:
            self._queue.waiting.pop(0).finish()

    def finish(self) -> None:
        """Do it, unless the GPU is lost."""
        begin = perf_counter()
        if self.metal.fault:
            self._status = FakeMetal.MTLCommandBufferStatusError
            return
        self._status = FakeMetal.MTLCommandBufferStatusError  # until all is done
        for work in self.work:
            work()
        self.work.clear()
        self._times = begin, perf_counter()
        self._status = 4

    def status(self) -> int:
        return self._status

    def error(self) -> Error | None:
        self.metal.within_pool()
        return Error(self.metal.fault) if self._status == 5 else None

    def GPUStartTime(self) -> float:
        assert self._status == 4
        return self._times[0]

    def GPUEndTime(self) -> float:
        assert self._status == 4
        return self._times[1]


class Queue:
    """An ``MTLCommandQueue``."""

    def __init__(self, metal: FakeMetal) -> None:
        self.waiting: list[Commands] = []
        self._metal = metal

    def commandBuffer(self) -> Commands | None:
        self._metal.within_pool()
        return None if self._metal.full else Commands(self._metal, self)


class Device:
    """An ``MTLDevice``."""

    def __init__(self, metal: FakeMetal, number: int) -> None:
        self._metal, self._number = metal, number
        self._allocated = 0

    def name(self) -> str:
        return f"Test GPU {self._number}"

    def registryID(self) -> int:
        return 4000 + self._number

    def recommendedMaxWorkingSetSize(self) -> int:
        return self._metal.memory

    def maxBufferLength(self) -> int:
        return self._metal.piece

    def currentAllocatedSize(self) -> int:
        return self._allocated

    def newCommandQueue(self) -> Queue | None:
        return Queue(self._metal) if self._metal.queues else None

    def newBufferWithLength_options_(self, length: int, options: int) -> Buffer | None:
        assert length > 0 and options == FakeMetal.MTLResourceStorageModeShared
        if length > self._metal.piece or self._metal.refuses_memory:
            return None
        self._allocated += length
        buffer = Buffer(length)
        finalize(buffer, self._free, length).atexit = False
        return buffer

    def _free(self, length: int) -> None:
        self._allocated -= length

    def newLibraryWithSource_options_error_(
        self, source: str, options: CompileOptions, error: None
    ) -> tuple[Library | None, Error | None]:
        """A warning comes with the library."""
        assert isinstance(source, str) and error is None
        assert isinstance(options, CompileOptions) and options.safe, "math that is not safe"
        self._metal.within_pool()
        check_memories(source)
        loaded = compiled(source)
        if isinstance(loaded, str):
            return None, Error(f"program_source: {loaded}")
        return Library(source, loaded), Error("program_source: warning: unused variable")

    def newComputePipelineStateWithFunction_error_(
        self, function: Function, error: None
    ) -> tuple[Pipeline | None, Error | None]:
        assert isinstance(function, Function) and error is None
        if self._metal.refuses_pipelines:
            return None, Error("Compiler encountered an internal error")
        return Pipeline(function, self._metal.threads), None


@dataclass
class FakeMetal:
    """PyObjC's module ``Metal``, with ``devices`` of so many bytes of ``memory``, a ``piece`` at
    once, and ``threads`` of a group.

    With a ``fault`` no work is done, and that is why; what else may fail says what it gives.
    """

    memory: int = 1 << 32
    piece: int = 1 << 31
    threads: int = 1024
    devices: int = 1
    modes: bool = True
    default: bool = True
    queues: bool = True
    full: bool = False
    refuses_memory: bool = False
    refuses_pipelines: bool = False
    fault: str = ""
    launches: int = 0
    left: list[str] = field(default_factory=list[str])

    MTLResourceStorageModeShared = 0
    MTLMathModeSafe = 0
    MTLCommandBufferStatusError = 5

    def __post_init__(self) -> None:
        self.MTLCompileOptions = MakesOptions(self.modes)
        self._found = [Device(self, number) for number in range(self.devices)]
        self._pools = threading.local()

    def MTLCreateSystemDefaultDevice(self) -> Device | None:
        """The last one, which is not the first of the list."""
        return self._found[-1] if self._found and self.default else None

    def MTLCopyAllDevices(self) -> tuple[Device, ...]:
        return tuple(self._found)

    def MTLSizeMake(self, width: int, height: int, depth: int) -> Size:
        return width, height, depth

    @contextmanager
    def pool(self) -> Generator[None]:
        """``objc.autorelease_pool``."""
        self._pools.depth = getattr(self._pools, "depth", 0) + 1
        try:
            yield
        finally:
            self._pools.depth -= 1

    def within_pool(self) -> None:
        assert getattr(self._pools, "depth", 0) > 0, "an object that nobody gives back"
