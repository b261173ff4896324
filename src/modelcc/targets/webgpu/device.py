"""Memory and launches on a device of WebGPU, by ``wgpu``.

Needs the extra ``webgpu``; importing this file without it is an ``ImportError``.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_uint8, memmove
from dataclasses import dataclass
from math import prod
from struct import pack
from typing import cast

import wgpu

from modelcc.ir.errors import OutOfMemoryError, RunError
from modelcc.ir.index import evaluate
from modelcc.targets.webgpu.emitter import Shader, Shared, together
from modelcc.targets.webgpu.statements import GROUPS_ACROSS

_STORAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
_UNIFORM = wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST
_LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
)
_WAITING = 256
"""Launches that are handed to the device together."""


def find_adapter(name: str = "") -> wgpu.GPUAdapter:
    """The fastest adapter, of those with ``name`` in their description; :class:`RunError` if there
    is none."""
    found = wgpu.gpu.enumerate_adapters_sync()
    fitting = [a for a in found if name.lower() in a.summary.lower()]
    if not fitting:
        there = "; there is " + ", ".join(a.summary for a in found) if found else ""
        raise RunError(
            f"WebGPU finds no device{f' called {name!r}' if name else ''}{there}\n"
            "  hint: install a driver for Vulkan, Metal or Direct3D 12 (without a graphics card: "
            "Debian's mesa-vulkan-drivers)"
        )
    return min(fitting, key=lambda a: _KINDS.get(cast(str, a.info["adapter_type"]), len(_KINDS)))


_KINDS = {"DiscreteGPU": 0, "IntegratedGPU": 1, "VirtualGPU": 2, "CPU": 3}


@dataclass(frozen=True, eq=False)
class WebgpuMemory:
    """A buffer of ``size`` bytes, rounded up to whole words."""

    buffer: wgpu.GPUBuffer
    size: int


@dataclass(frozen=True, eq=False)
class _Pipeline:
    shader: Shader
    layout: wgpu.GPUBindGroupLayout
    pipeline: wgpu.GPUComputePipeline


def open_device(adapter: wgpu.GPUAdapter) -> wgpu.GPUDevice:
    """A device with as much memory and as many buffers as the adapter gives."""
    limits: dict[str, int | None] = {n: cast(int, adapter.limits[n]) for n in _LIMITS}
    return adapter.request_device_sync(required_limits=limits)


class WebgpuDevice:
    """A device, whose launches are those of ``shaders``."""

    def __init__(self, shaders: Sequence[Shader], device: wgpu.GPUDevice) -> None:
        self._device = device
        self._most = device.limits["max-buffer-size"]
        self._most_bound = device.limits["max-storage-buffer-binding-size"]
        self._shaders = {(s.name, s.bindings): s for s in shaders}
        self._parameters = {s.name: len(s.elements) for s in shaders}
        self._pipelines: dict[tuple[str, Shared], _Pipeline] = {}
        self._numbers: dict[tuple[int, ...], wgpu.GPUBuffer] = {}
        self._groups: dict[object, wgpu.GPUBindGroup] = {}
        self._encoder: wgpu.GPUCommandEncoder | None = None
        self._pass: wgpu.GPUComputePassEncoder | None = None
        self._waiting = 0

    # --- memory

    def allocate(self, size: int) -> WebgpuMemory:
        """Memory of ``size`` bytes; :class:`OutOfMemoryError` if there is not as much."""
        size = max(_words(size), 4)
        if size > self._most:
            raise OutOfMemoryError(
                f"the model wants {size} bytes in one piece on the device, which gives "
                f"{self._most}: {size - self._most} too few\n"
                "  hint: smaller sizes, or weights of half precision"
            )
        try:
            return WebgpuMemory(self._device.create_buffer(size=size, usage=_STORAGE), size)
        except (wgpu.GPUOutOfMemoryError, wgpu.GPUValidationError) as error:
            raise OutOfMemoryError(f"the device gives no {size} bytes: {error}") from error

    def upload(self, memory: WebgpuMemory, offset: int, address: int, size: int) -> None:
        """Copy ``size`` bytes from the host's ``address``; whole words, the last one filled up."""
        if not size:
            return
        self._submit()
        data = bytearray(_words(size))
        memmove((c_uint8 * size).from_buffer(data), address, size)
        self._device.queue.write_buffer(memory.buffer, offset, data)

    def download(self, memory: WebgpuMemory, offset: int, address: int, size: int) -> None:
        """Copy ``size`` bytes to the host's ``address``, when what was launched has run."""
        if not size:
            return
        self._submit()
        data = self._device.queue.read_buffer(memory.buffer, offset, _words(size))
        memmove(address, bytes(cast("memoryview[int]", data)), size)

    def copy(
        self, to: WebgpuMemory, to_offset: int, source: WebgpuMemory, source_offset: int, size: int
    ) -> None:
        """Copy within the device."""
        if not size:
            return
        self._end_pass()
        encoder = self._commands()
        encoder.copy_buffer_to_buffer(
            source.buffer, source_offset, to.buffer, to_offset, _words(size)
        )

    # --- launches

    def launch(
        self,
        kernel: str,
        buffers: Sequence[tuple[WebgpuMemory, int]],
        sizes: Sequence[int],
        grid: tuple[int, int, int],
    ) -> None:
        """Run a kernel on what begins at these offsets of memory."""
        groups = prod(grid)
        if groups == 0:
            return
        pipeline = self._pipeline(kernel, buffers)
        bound = self._bound(pipeline, buffers, sizes)
        encoder = self._commands()
        running = encoder.begin_compute_pass() if self._pass is None else self._pass
        self._pass = running
        running.set_pipeline(pipeline.pipeline)
        running.set_bind_group(0, bound)
        across = min(groups, GROUPS_ACROSS)
        running.dispatch_workgroups(across, -(-groups // across))
        self._waiting += 1
        if self._waiting >= _WAITING:
            self._submit()

    def synchronize(self) -> None:
        """Wait until all that was launched has run."""
        self._submit()
        self._device.queue.on_submitted_work_done_sync()

    def _pipeline(self, kernel: str, buffers: Sequence[tuple[WebgpuMemory, int]]) -> _Pipeline:
        given = buffers[: self._parameters[kernel]]
        shared = together([(id(memory), offset) for memory, offset in given])
        found = self._pipelines.get((kernel, shared))
        if found is None:
            found = self._pipelines[kernel, shared] = self._build(self._shaders[kernel, shared])
        return found

    def _build(self, shader: Shader) -> _Pipeline:
        count = len(shader.bindings) + bool(shader.faults)
        kinds = ["storage"] * count + ["uniform"] * bool(shader.sizes)
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
            raise RunError(f"WebGPU does not take @{shader.name}: {error}") from error
        return _Pipeline(shader, layout, pipeline)

    def _bound(
        self,
        pipeline: _Pipeline,
        buffers: Sequence[tuple[WebgpuMemory, int]],
        sizes: Sequence[int],
    ) -> wgpu.GPUBindGroup:
        shader = pipeline.shader
        key = shader.name, tuple((id(m), offset) for m, offset in buffers), tuple(sizes)
        found = self._groups.get(key)
        if found is None:
            if len(self._groups) >= 4096:
                self._groups.clear()
            resources = self._resources(shader, buffers, sizes)
            entries = [{"binding": n, "resource": r} for n, r in enumerate(resources)]
            found = self._device.create_bind_group(layout=pipeline.layout, entries=entries)
            self._groups[key] = found
        return found

    def _resources(
        self, shader: Shader, buffers: Sequence[tuple[WebgpuMemory, int]], sizes: Sequence[int]
    ) -> list[dict[str, object]]:
        env = dict(zip(shader.sizes, sizes, strict=True))
        taken = [buffers[places[0]] for places in shader.bindings]
        spans = [
            max(evaluate(shader.elements[place], env) * shader.widths[place] for place in places)
            for places in shader.bindings
        ]
        if shader.faults:
            taken, spans = [*taken, buffers[-1]], [*spans, 4 * shader.faults]
        result: list[dict[str, object]] = []
        for (memory, offset), span in zip(taken, spans, strict=True):
            if span > self._most_bound:
                raise OutOfMemoryError(
                    f"@{shader.name} uses a tensor of {span} bytes, and the device lets kernels "
                    f"see {self._most_bound} of one"
                )
            result.append({"buffer": memory.buffer, "offset": offset, "size": max(_words(span), 4)})
        if shader.sizes:
            numbers = self._uniform(tuple(sizes))
            result.append({"buffer": numbers, "offset": 0, "size": numbers.size})
        return result

    def _uniform(self, sizes: tuple[int, ...]) -> wgpu.GPUBuffer:
        found = self._numbers.get(sizes)
        if found is None:
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
        self._end_pass()
        if self._encoder is not None:
            self._device.queue.submit([self._encoder.finish()])
            self._encoder = None
            self._waiting = 0


def _words(size: int) -> int:
    return -(-size // 4) * 4
