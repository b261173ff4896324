"""WebGPU as a device, by ``wgpu`` (the extra ``webgpu``) and the drivers that it finds."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import c_uint8, memmove
from dataclasses import dataclass
from itertools import count
from math import prod
from struct import pack, unpack
from typing import TypeAlias, cast
from weakref import finalize

import wgpu

from modelcc.runtime.devices.device import DeviceMemory, Groups, OutOfDeviceMemoryError
from modelcc.runtime.devices.webgpu_adapters import (
    TIMES,
    find_adapters,
    nanoseconds_of_a_tick,
    opened,
)
from modelcc.runtime.devices.webgpu_shaders import (
    GROUPS_ACROSS,
    BoundPart,
    Shader,
    Shared,
    read_shaders,
    together,
)
from modelcc.runtime.errors import LoadError, RunError

_STORAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
_UNIFORM = wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST
_RESOLVED = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
_STAMPS = 4096
"""Timestamps that are kept at once; launches beyond are not timed."""
_WAITING = 256
"""Launches per command buffer."""
_APART, _MOST_BUFFERS = 256, 16
"""Alignment of bindings in bytes, and most buffers of a shader, pieces included."""


def open_device(index: int) -> WebgpuDevice:
    """Device number ``index``; :class:`LoadError` lists those that there are."""
    found = find_adapters()
    if not 0 <= index < len(found):
        names = ", ".join(f"webgpu:{n} is {a.summary}" for n, a in enumerate(found))
        raise LoadError(f"WebGPU has no device {index}: {names}")
    return WebgpuDevice(found[index].summary, opened(found[index]))


@dataclass(frozen=True, eq=False)
class WebgpuMemory:
    """A buffer of ``size`` bytes, rounded up to whole words; its ``number`` is unique."""

    buffer: wgpu.GPUBuffer
    size: int
    number: int


_Bound: TypeAlias = tuple[str, tuple[tuple[int, int], ...], tuple[int, ...]]
"""A shader's name, memory by its numbers with offsets, and sizes."""


@dataclass(frozen=True, eq=False)
class _Pipeline:
    shader: Shader
    layout: wgpu.GPUBindGroupLayout
    pipeline: wgpu.GPUComputePipeline


class WebgpuDevice:
    """A device with one queue; launches are batched until their results are needed."""

    def __init__(self, name: str, device: wgpu.GPUDevice) -> None:
        self._name = name
        self._device = device
        self._most = cast(int, device.limits["max-buffer-size"])
        self._most_bound = cast(int, device.limits["max-storage-buffer-binding-size"])
        self._shaders: dict[tuple[str, Shared], Shader] = {}
        self._parameters: dict[str, int] = {}
        self._pipelines: dict[tuple[str, Shared], _Pipeline] = {}
        self._numbers: dict[tuple[int, ...], wgpu.GPUBuffer] = {}
        self._groups: dict[_Bound, wgpu.GPUBindGroup] = {}
        self._bound_by: dict[int, list[_Bound]] = {}
        self._serial = count()
        self._encoder: wgpu.GPUCommandEncoder | None = None
        self._pass: wgpu.GPUComputePassEncoder | None = None
        self._waiting = 0
        self._unread: wgpu.GPUBuffer | None = None
        self._stamps: wgpu.GPUQuerySet | None = None
        self._stamped = 0
        self._nothing = device.create_buffer(size=_APART * _MOST_BUFFERS, usage=_STORAGE)

    @property
    def name(self) -> str:
        """Its driver's name for it."""
        return self._name

    @property
    def memory(self) -> int:
        """Bytes of the largest buffer; WebGPU does not tell more."""
        return self._most

    def load(self, code: bytes, kernels: Mapping[str, Groups]) -> None:
        """Reads shaders; each is compiled when it is first launched."""
        try:
            found = read_shaders(code.decode())
        except (ValueError, LookupError) as error:
            raise LoadError(f"its shaders are damaged ({error}); compile it again") from error
        self.add(found)
        missing = kernels.keys() - self._parameters.keys()
        if missing:
            raise LoadError(f"its shaders lack {', '.join(sorted(missing))}; compile it again")

    def add(self, shaders: Sequence[Shader]) -> None:
        """Adds shaders to launch by their names."""
        self._shaders |= {(shader.name, shader.bindings): shader for shader in shaders}
        self._parameters |= {shader.name: len(shader.elements) for shader in shaders}

    # --- memory

    def allocate(self, size: int) -> WebgpuMemory:
        """A buffer."""
        size = max(_words(size), 4)
        if size > self._most:
            raise OutOfDeviceMemoryError(self._name, size, self._most)
        try:
            buffer = self._device.create_buffer(size=size, usage=_STORAGE)
        except (wgpu.GPUOutOfMemoryError, wgpu.GPUValidationError) as error:
            raise OutOfDeviceMemoryError(self._name, size, self._most) from error
        memory = WebgpuMemory(buffer, size, next(self._serial))
        finalize(memory, self._unbind, memory.number).atexit = False
        return memory

    def _unbind(self, number: int) -> None:
        """Bind groups of a buffer are freed with it."""
        for key in self._bound_by.pop(number, ()):
            self._groups.pop(key, None)

    def upload(self, memory: DeviceMemory, offset: int, address: int, size: int) -> None:
        """Copies ``size`` bytes from the host's ``address``; whole words, the last one padded."""
        if not size:
            return
        self._submit()
        data = bytearray(_words(size))
        memmove((c_uint8 * size).from_buffer(data), address, size)
        with self._working():
            self._device.queue.write_buffer(_buffer(memory), offset, data)

    def download(self, memory: DeviceMemory, offset: int, address: int, size: int) -> None:
        """Copies ``size`` bytes to the host's ``address``, after all launches."""
        if not size:
            return
        self._submit()
        memmove(address, self._read(_buffer(memory), offset, _words(size)), size)

    def _read(self, buffer: wgpu.GPUBuffer, offset: int, size: int) -> bytes:
        """Bytes of a buffer, after all submitted work."""
        with self._working():
            data = self._device.queue.read_buffer(buffer, offset, size)
        self._unread = None
        return bytes(cast("memoryview[int]", data))

    @contextmanager
    def _working(self) -> Generator[None]:
        """An error drops the rejected work, and all pending work: RunError."""
        try:
            yield
        except (wgpu.GPUError, RuntimeError) as error:
            self._encoder = self._pass = self._unread = None
            self._waiting = 0
            if isinstance(error, RunError):
                raise
            raise RunError(
                f"{self._name} did not do its work: {error}; load the model again, and if that "
                "fails, restart the driver"
            ) from error

    def copy(
        self, to: DeviceMemory, to_offset: int, source: DeviceMemory, offset: int, size: int
    ) -> None:
        """Copies within the device; within a buffer through another one."""
        if not size:
            return
        size, start = _words(size), _buffer(source)
        with self._working():
            self._end_pass()
            if start is _buffer(to):
                between = self.allocate(size).buffer
                self._commands().copy_buffer_to_buffer(start, offset, between, 0, size)
                start, offset = between, 0
            self._commands().copy_buffer_to_buffer(start, offset, _buffer(to), to_offset, size)

    # --- launches

    def launch(
        self,
        kernel: str,
        buffers: Sequence[tuple[DeviceMemory, int]],
        sizes: Sequence[int],
        grid: Groups,
    ) -> None:
        """Runs a kernel on tensors at these offsets of memory."""
        groups = prod(grid)
        if groups == 0:
            return
        pipeline = self._pipeline(kernel, buffers, sizes)
        across = min(groups, GROUPS_ACROSS)
        with self._working():
            bound = self._bound(pipeline, buffers, sizes)
            running = self._pass = self._pass or self._begin_pass(self._commands())
            running.set_pipeline(pipeline.pipeline)
            running.set_bind_group(0, bound)
            running.dispatch_workgroups(across, -(-groups // across))
        self._unread = _buffer(buffers[0][0])
        self._waiting += 1
        if self._stamps is not None:
            self._end_pass()
        if self._waiting >= _WAITING:
            self._submit()

    def synchronize(self) -> None:
        """Waits for all launches."""
        self._submit()
        if self._unread is not None:
            self._read(self._unread, 0, 4)

    def _begin_pass(self, encoder: wgpu.GPUCommandEncoder) -> wgpu.GPUComputePassEncoder:
        """Begins a pass, with timestamps of its start and end if it is timed."""
        if self._stamps is None or self._stamped + 2 > _STAMPS:
            return encoder.begin_compute_pass()
        first, self._stamped = self._stamped, self._stamped + 2
        return encoder.begin_compute_pass(
            timestamp_writes={
                "query_set": self._stamps,
                "beginning_of_pass_write_index": first,
                "end_of_pass_write_index": first + 1,
            }
        )

    def keep_times(self, on: bool) -> None:
        """Times launches, if the device has a clock."""
        self.synchronize()
        on = on and TIMES in self._device.features
        kind = "timestamp"
        self._stamps = self._device.create_query_set(type=kind, count=_STAMPS) if on else None
        self._stamped = 0

    def seconds(self) -> float:
        """The sum of their times."""
        count, self._stamped = self._stamped, 0
        if self._stamps is None or not count:
            return 0.0
        buffer = self._device.create_buffer(size=8 * count, usage=_RESOLVED)
        self._commands().resolve_query_set(self._stamps, 0, count, buffer, 0)
        self._submit()
        times = unpack(f"<{count}Q", self._read(buffer, 0, 8 * count))
        ticks = sum(end - start for start, end in zip(times[::2], times[1::2], strict=True))
        return ticks * nanoseconds_of_a_tick(self._device) * 1e-9

    def _pipeline(
        self, kernel: str, buffers: Sequence[tuple[DeviceMemory, int]], sizes: Sequence[int]
    ) -> _Pipeline:
        given = buffers[: self._parameters[kernel]]
        places = [(id(memory), offset) for memory, offset in given]
        key = kernel, together(places)
        if key not in self._shaders:
            key = kernel, self._fitting(kernel, places, sizes)
        if key not in self._pipelines:
            self._pipelines[key] = self._build(self._shaders[key])
        return self._pipelines[key]

    def _fitting(self, kernel: str, places: Sequence[object], sizes: Sequence[int]) -> Shared:
        """The aliasing pattern of a shader for arguments at these places, some of them empty."""
        for (name, shared), shader in self._shaders.items():
            if name == kernel and shader.fits(places, dict(zip(shader.sizes, sizes, strict=True))):
                return shared
        shared = together(places)
        raise RunError(f"{kernel} has no shader for arguments that are one memory {shared}")

    def _build(self, shader: Shader) -> _Pipeline:
        kinds = ["storage"] * shader.buffers + ["uniform"] * bool(shader.sizes)
        entries = [
            {"binding": n, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
            for n, kind in enumerate(kinds)
        ]
        try:
            layout = self._device.create_bind_group_layout(entries=entries)
            module = self._device.create_shader_module(label=shader.name, code=shader.text)
            whole = self._device.create_pipeline_layout(bind_group_layouts=[layout])
            pipeline = self._device.create_compute_pipeline(
                layout=whole, compute={"module": module, "entry_point": "main"}
            )
        except wgpu.GPUError as error:
            raise RunError(f"{self._name} does not take {shader.name}: {error}") from error
        return _Pipeline(shader, layout, pipeline)

    def _bound(
        self,
        pipeline: _Pipeline,
        buffers: Sequence[tuple[DeviceMemory, int]],
        sizes: Sequence[int],
    ) -> wgpu.GPUBindGroup:
        shader = pipeline.shader
        places = tuple((_webgpu(m).number, offset) for m, offset in buffers)
        key = shader.name, places, tuple(sizes)
        found = self._groups.get(key)
        if found is None:
            if len(self._groups) >= 4096:
                self._groups.clear()
                self._bound_by.clear()
            resources = self._resources(shader, buffers, sizes)
            entries = [{"binding": n, "resource": r} for n, r in enumerate(resources)]
            found = self._device.create_bind_group(layout=pipeline.layout, entries=entries)
            self._groups[key] = found
            for number in {number for number, _ in places}:
                self._bound_by.setdefault(number, []).append(key)
        return found

    def _resources(
        self, shader: Shader, buffers: Sequence[tuple[DeviceMemory, int]], sizes: Sequence[int]
    ) -> list[dict[str, object]]:
        env = dict(zip(shader.sizes, sizes, strict=True))
        spans = list(shader.spans(env))
        if shader.faults:
            spans.append(BoundPart(len(buffers) - 1, 0, 4 * shader.faults))
        result: list[dict[str, object]] = []
        for number, span in enumerate(spans):
            if span.size > self._most_bound:
                helps = "smaller sizes would help"
                if shader.sizes:
                    helps += ", or fixed ones (--dim NAME=N), of which kernels see it in pieces"
                raise RunError(
                    f"{shader.name} uses a tensor of {span.start + span.size:,} bytes, and "
                    f"{self._name} lets kernels see {self._most_bound:,}; {helps}"
                )
            if not span.size:  # another tensor may begin at its place
                at = number * _APART
                result.append({"buffer": self._nothing, "offset": at, "size": _APART})
                continue
            memory, offset = buffers[span.parameter]
            start, size = offset + span.start, _words(span.size)
            result.append({"buffer": _buffer(memory), "offset": start, "size": size})
        if shader.sizes:
            numbers = self._uniform(tuple(sizes))
            result.append({"buffer": numbers, "offset": 0, "size": numbers.size})
        return result

    def _uniform(self, sizes: tuple[int, ...]) -> wgpu.GPUBuffer:
        """The numbers of a launch; RunError if one has more than 32 bits."""
        found = self._numbers.get(sizes)
        if found is None:
            wide = next((n for n in sizes if not -(1 << 31) <= n < 1 << 31), None)
            if wide is not None:
                raise RunError(
                    f"a kernel computes with {wide:,}, and shaders of WebGPU count with 32 bits; "
                    "other inputs are needed"
                )
            data = pack(f"<{len(sizes)}i", *sizes)
            found = self._device.create_buffer_with_data(data=data, usage=_UNIFORM)
            self._numbers[sizes] = found
        return found

    # --- commands

    def _commands(self) -> wgpu.GPUCommandEncoder:
        if self._encoder is None:
            self._encoder = self._device.create_command_encoder()
        return self._encoder

    def _end_pass(self) -> None:
        if self._pass is not None:
            self._pass.end()
            self._pass = None

    def _submit(self) -> None:
        with self._working():
            self._end_pass()
            if self._encoder is not None:
                self._device.queue.submit([self._encoder.finish()])
                self._encoder = None
                self._waiting = 0


def _webgpu(memory: DeviceMemory) -> WebgpuMemory:
    assert isinstance(memory, WebgpuMemory)
    return memory


def _buffer(memory: DeviceMemory) -> wgpu.GPUBuffer:
    return _webgpu(memory).buffer


def _words(size: int) -> int:
    return -(-size // 4) * 4
