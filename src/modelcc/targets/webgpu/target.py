"""The target ``webgpu``: any device with a driver of Vulkan, Metal or Direct3D 12, or a browser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.capacity import Capacity
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index
from modelcc.ir.loop import Function
from modelcc.ir.program import Launch, Program, leaves
from modelcc.runtime.devices.webgpu_shaders import Shader, Shared, shaders_text, together
from modelcc.targets.base import TargetOptions
from modelcc.targets.gpu.device_program import device_functions
from modelcc.targets.gpu.device_target import DeviceTarget, group_capacity
from modelcc.targets.gpu.machine import GPUS, INTEGRATED, GpuModel
from modelcc.targets.native.host import cpu_model
from modelcc.targets.native.target import NativeTarget, native_target
from modelcc.targets.native.toolchain import CodegenOptions
from modelcc.targets.webgpu.emitter import (
    BINDING_BYTES,
    BINDINGS,
    LIMITS,
    plain_function,
    shader_of,
    verified_shader,
)
from modelcc.targets.webgpu.wasm import WASM


@dataclass(frozen=True)
class WebgpuTarget(DeviceTarget):
    """A device that runs WGSL, with the machine model ``model``."""

    model: GpuModel = INTEGRATED

    @property
    def name(self) -> str:
        return "webgpu"

    @property
    def description(self) -> str:
        return f"device {self.index} of WebGPU, scheduled for {self.model.name}"

    @property
    def gpu(self) -> GpuModel:
        """The machine, with groups and bindings limited to what every implementation of WebGPU
        allows."""
        shared, threads = LIMITS.shared_bytes or 0, LIMITS.threads or 1
        piece_bytes = self.model.binding_bytes or BINDING_BYTES
        return replace(
            self.model.portable,
            group_shared_bytes=min(self.model.group_shared_bytes, shared),
            group_threads=min(self.model.group_threads, threads),
            binding_bytes=min(piece_bytes, BINDING_BYTES),
        )

    @property
    def capacity(self) -> Capacity:
        """WGSL has no 64-bit floats."""
        return replace(self.host.capacity, groups=group_capacity(self.gpu, doubles=False))

    @property
    def parts(self) -> int:
        """Few enough for a shader that binds other buffers, too."""
        return BINDINGS // 2

    @property
    def form(self) -> str:
        return "wgsl"

    @property
    def forms(self) -> tuple[str, ...]:
        return (self.form, "web")

    def symbol(self, name: str) -> str:
        return name

    def lacks(self, function: Function) -> str:
        """What WGSL has no form for."""
        try:
            verified_shader(plain_function(function), None, self.gpu.binding_bytes)
        except (NotImplementedError, TypeError) as error:
            return str(error)
        return ""

    def legalize_groups(self, function: Function) -> Function:
        """Elementary functions and narrow types become arithmetic."""
        return plain_function(function)

    def text(self, functions: Sequence[Function]) -> str:
        piece_bytes = self.gpu.binding_bytes
        return shaders_text([shader_of(function, None, piece_bytes) for function in functions])

    def code(self, program: Program) -> str:
        """Kernels have a shader for each pattern in which arguments alias."""
        found = launched_shaders(program, self.gpu.binding_bytes)
        return shaders_text(found) if found else ""


def launched_shaders(program: Program, piece_bytes: int) -> tuple[Shader, ...]:
    """The shaders that launches of a placed program need, without duplicates, with bindings of
    ``piece_bytes``."""
    functions = {function.name: function for function in device_functions(program)}
    found: dict[tuple[str, Shared], Shader] = {}
    for step in leaves(program.steps):
        if isinstance(step, Launch) and step.callee in functions:
            shared = together([_place(program, name) for name in step.arguments])
            if (step.callee, shared) not in found:
                function = functions[step.callee]
                found[step.callee, shared] = verified_shader(function, shared, piece_bytes)
    return tuple(found.values())


def _place(program: Program, name: str) -> tuple[str, Index | str]:
    """What distinguishes a tensor's memory from that of others."""
    binding = program.placed.bindings[name]
    if binding.place == "arena":
        return f"arena {binding.segment}", binding.offset
    return binding.place, str(program.position(name))


@dataclass(frozen=True)
class PageTarget(WebgpuTarget):
    """A browser, whose host is WebAssembly.  The page determines the transfers between them."""

    def program_passes(self) -> tuple[Callable[[Program], Program], ...]:
        return ()


def page_target(target: WebgpuTarget) -> PageTarget:
    """The target of a page with the kernels of ``target``."""
    options = replace(target.options, variant="", threads=1)
    host = NativeTarget(WASM, cpu_model(WASM, threads=1), options, CodegenOptions())
    return PageTarget(host, target.options, target.index, target.model)


def webgpu_target(options: TargetOptions) -> WebgpuTarget:
    """The target for ``options``, whose variant is the number of a device (``webgpu:1``) or a
    machine to schedule for (``webgpu:rtx40``); :class:`ModelError` for others."""
    variant = options.variant
    host = native_target(replace(options, variant="", threads=1, schedule="", tuned=()))
    if not variant or variant.isdecimal():
        return WebgpuTarget(host, options, int(variant or 0))
    if variant not in GPUS:
        hint = f"there is {', '.join(GPUS)}; webgpu:0 is the first device"
        raise ModelError(f"no machine of groups is called {variant!r}", (), hint)
    return WebgpuTarget(host, options, 0, GPUS[variant])
