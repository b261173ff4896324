"""The targets ``cuda`` and ``cuda:sm_90a``: NVIDIA's GPUs, by PTX or machine code.

Compiles anywhere; without an architecture, for the GPU of this machine.  With ``ptxas`` (the extra
``cuda-tools``, or a toolkit on the path), an artifact has machine code, and PTX for drivers that do
not accept it, such as those of newer GPUs; without, PTX alone, which the driver of the machine that
runs it compiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from modelcc.artifact.manifest import LibrarySpec
from modelcc.ir.errors import ModelError
from modelcc.ir.loop import Function
from modelcc.ir.program import Program
from modelcc.passes.graph.integer_contractions import IntegerContractions
from modelcc.passes.graph.scaled_products import ScaledProducts
from modelcc.passes.program.join_launches import JoinLaunches
from modelcc.runtime.devices.device_parts import CODE
from modelcc.runtime.linking.libraries import at_path
from modelcc.runtime.streams.cuda_code import machine_code, with_ptx
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.schedule import Schedule
from modelcc.targets.base import (
    TF32,
    TF32X3,
    BuildConfig,
    GraphPasses,
    Module,
    TargetOptions,
)
from modelcc.targets.c.names import symbol
from modelcc.targets.cuda.chips import PORTABLE, Chip, chip_here, find_chip
from modelcc.targets.cuda.convolutions import CUDNN, convolution_call
from modelcc.targets.cuda.cubin import compiled_kernels
from modelcc.targets.cuda.libraries import CUBLASLT, product_call
from modelcc.targets.cuda.library_choice import library_gain
from modelcc.targets.cuda.text import kernels_of, ptx_text
from modelcc.targets.cuda.tools import assemble, disassemble, find_tool
from modelcc.targets.gpu.device_target import DeviceTarget
from modelcc.targets.gpu.evaluation import GroupKernel
from modelcc.targets.gpu.library_call import DeviceCall
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.products.tensor_choice import split_pays
from modelcc.targets.gpu.products.tensor_product import BYTES, ROUNDED, SPLIT
from modelcc.targets.kernel_use import CompiledKernel
from modelcc.targets.native.target import native_target

LibraryCall: TypeAlias = Callable[[CanonicalKernel, bool, int], DeviceCall | None]
"""Arguments: a kernel, whether f32 may be rounded to tf32, and the most bytes of workspace."""

LIBRARIES: Mapping[str, tuple[LibrarySpec, LibraryCall]] = MappingProxyType(
    {CUBLASLT.name: (CUBLASLT, product_call), CUDNN.name: (CUDNN, convolution_call)}
)
"""NVIDIA's libraries, each with the function that gives its call for a kernel, if any."""

_ASKED: Mapping[str, str] = MappingProxyType({TF32: ROUNDED, TF32X3: SPLIT})
"""Instructions by the precision that selects them."""


@dataclass(frozen=True)
class CudaTarget(DeviceTarget):
    """NVIDIA's GPUs that run code for ``chip``."""

    chip: Chip = PORTABLE

    @property
    def name(self) -> str:
        return "cuda"

    @property
    def description(self) -> str:
        return f"NVIDIA GPUs, {self.chip.name}: PTX, or machine code where ptxas is installed"

    @property
    def gpu(self) -> GpuModel:
        """The model, with the requested instructions for f32 products, if they are profitable."""
        gpu, asked = self.chip.gpu, _ASKED.get(self.options.precision)
        if asked is None or (asked == SPLIT and not split_pays(gpu)):
            return gpu
        return replace(gpu, matrix=(*gpu.matrix, asked))

    def graph_passes(self) -> GraphPasses:
        """Products of quantised numbers are those of bytes, which tensor cores multiply; so are
        those of 8-bit floats, where there are instructions for them."""
        passes, floats = super().graph_passes(), BYTES in self.gpu.matrix
        scaled = (ScaledProducts(),) if floats else ()
        quantised = (IntegerContractions(signs=True), *scaled)
        return replace(passes, quantised=quantised, narrow=floats, signs=True)

    def program_passes(self) -> tuple[Callable[[Program], Program], ...]:
        """Small independent launches become one: each takes about two microseconds."""
        gpu = self.gpu
        return (JoinLaunches(gpu.units * gpu.unit_threads), *super().program_passes())

    @property
    def has_tf32(self) -> bool:
        return True

    @property
    def form(self) -> str:
        return "llvm"

    @property
    def forms(self) -> tuple[str, ...]:
        """LLVM IR, PTX, and machine code as bytes and as text."""
        return ("llvm", "ptx", "cubin", "sass")

    @property
    def groups_across(self) -> int:
        return kernels_of(self.chip).groups.across

    def library_call(self, kernel: CanonicalKernel, schedule: Schedule | None) -> DeviceCall | None:
        """Products by cuBLASLt and convolutions by cuDNN, where these are requested."""
        asked = {spec.name for spec in self.libraries}
        ways = (call for name, (_, call) in LIBRARIES.items() if name in asked)
        calls = (call(kernel, self.options.precision == TF32, self.chip.workspace) for call in ways)
        found = next((call for call in calls if call is not None), None)
        if found is None or self.options.kernels == "library":
            return found
        gain = library_gain(GroupKernel(kernel, found.call.symbol), schedule, self.gpu)
        return replace(found, gain=gain)

    @property
    def libraries(self) -> tuple[LibrarySpec, ...]:
        """The requested libraries, which are all if none is named."""
        if self.options.kernels == "generated":
            return ()
        asked = self.options.libraries or tuple((name, "") for name in LIBRARIES)
        return tuple(at_path(LIBRARIES[name][0], path) for name, path in asked)

    def symbol(self, name: str) -> str:
        return symbol(name)

    def legalize_groups(self, function: Function) -> Function:
        return kernels_of(self.chip).legal(function)

    def text(self, functions: Sequence[Function]) -> str:
        return kernels_of(self.chip).text(functions, self.gpu.limits)

    def compiled(self, text: str, config: BuildConfig) -> bytes:
        """Machine code with its PTX, or PTX alone if there is no assembler."""
        ptx = ptx_text(text, self.chip, self.options.optimize)
        if find_tool("ptxas") is None:
            return ptx.encode()
        return with_ptx(assemble(ptx, self.chip).code, ptx)

    def compiled_kernels(self, code: bytes) -> Mapping[str, CompiledKernel]:
        """Resources by the machine code."""
        return compiled_kernels(machine_code(code))

    def render(self, modules: Sequence[Module], form: str, config: BuildConfig) -> bytes:
        """The device's kernels in one of :attr:`forms`."""
        if form == "llvm" or form not in self.forms:
            return super().render(modules, form, config)
        text = "".join(module.text for module in modules if module.name == CODE)
        ptx = ptx_text(text, self.chip, self.options.optimize)
        if form == "ptx":
            return ptx.encode()
        code = assemble(ptx, self.chip).code
        return code if form == "cubin" else disassemble(code).encode()


def cuda_target(options: TargetOptions) -> CudaTarget:
    """The target for ``options``, whose variant is an architecture, a device's number, or both
    (``cuda:sm_90a``, ``cuda:1``, ``cuda:sm_90a:1``).  If none is named, the architecture is that of
    this machine's GPU with that number, or, if there is none, code that all run;
    :class:`ModelError` for others."""
    words = [word for word in options.variant.split(":") if word]
    index = int(words.pop()) if words and words[-1].isdecimal() else 0
    if len(words) > 1:
        hint = "cuda:sm_90a:1 is the second GPU, of architecture sm_90a"
        raise ModelError(f"{options.variant!r} is no architecture and number", (), hint)
    others = [name for name, _ in options.libraries if name not in LIBRARIES]
    if others:
        hint = f"there are {' and '.join(LIBRARIES)}"
        raise ModelError(f"kernels of GPUs cannot call a library {others[0]!r}", (), hint)
    own = {"libraries": (), "kernels": "generated"}
    host = native_target(replace(options, variant="", threads=1, schedule="", tuned=(), **own))
    chip = find_chip(words[0]) if words else chip_here(index) or PORTABLE
    return CudaTarget(host, options, index, chip)
