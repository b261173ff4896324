"""The targets ``amdgpu`` and ``amdgpu:gfx942``: AMD's GPUs, by code objects.

Compiles anywhere, with LLVM's linker ``lld``, which links code objects.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from modelcc.ir.errors import ModelError
from modelcc.ir.loop import Function
from modelcc.runtime.devices.device_parts import CODE
from modelcc.runtime.errors import LoadError
from modelcc.runtime.streams import hip_device
from modelcc.targets.amdgpu.chips import CHIPS, DEFAULT
from modelcc.targets.base import BuildConfig, Module, TargetOptions
from modelcc.targets.c.names import symbol
from modelcc.targets.gpu.device_target import DeviceTarget
from modelcc.targets.gpu.llvm_kernels import LlvmKernels
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.isa.amd_fast import KERNEL_ENCODINGS
from modelcc.targets.llvm.dialect import AMDGPU_CHIPS
from modelcc.targets.llvm.instructions import Instructions
from modelcc.targets.native.machine import Machine
from modelcc.targets.native.target import native_target
from modelcc.targets.native.toolchain import assembly, compile_llvm

_INSTRUCTIONS = Instructions(KERNEL_ENCODINGS, half_conversions=True, rounding=True)
FEATURES = {"gfx1100": ("-real-true16",)}
"""With 16-bit registers, LLVM 22 takes 256 registers, and spills, for products that take 147
without."""

LINKERS = ("ld.lld", "ld.lld-22", "ld.lld-21", "ld.lld-20")


def kernels_of(chip: str) -> LlvmKernels:
    """The printer of kernels for an architecture."""
    machine = Machine("amdgcn-amd-amdhsa", chip, FEATURES.get(chip, ()))
    return LlvmKernels(machine, AMDGPU_CHIPS[chip], _INSTRUCTIONS)


def code_object(text: str, chip: str) -> bytes:
    """The code object of LLVM IR; :class:`ModelError` if there is no ``lld``."""
    linker = next((found for name in LINKERS if (found := shutil.which(name))), None)
    if linker is None:
        hint = "install lld (Debian: lld-22)"
        raise ModelError("code for AMD's GPUs is linked by lld, which is not here", (), hint)
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder, "kernels.o"), Path(folder, "kernels.hsaco")
        source.write_bytes(compile_llvm(text, kernels_of(chip).machine))
        subprocess.run([linker, "-shared", str(source), "-o", str(result)], check=True)
        return result.read_bytes()


@dataclass(frozen=True)
class AmdgpuTarget(DeviceTarget):
    """AMD's GPUs that run code for ``chip``."""

    chip: str = DEFAULT

    @property
    def name(self) -> str:
        return "amdgpu"

    @property
    def description(self) -> str:
        return f"AMD GPUs, {self.chip}: code objects by lld"

    @property
    def gpu(self) -> GpuModel:
        return CHIPS[self.chip]

    @property
    def form(self) -> str:
        return "llvm"

    @property
    def forms(self) -> tuple[str, ...]:
        """LLVM IR, assembly, and the code object."""
        return ("llvm", "asm", "so")

    def symbol(self, name: str) -> str:
        return symbol(name)

    def legalize_groups(self, function: Function) -> Function:
        return kernels_of(self.chip).legal(function)

    def text(self, functions: Sequence[Function]) -> str:
        return kernels_of(self.chip).text(functions, self.gpu.limits)

    def compiled(self, text: str, config: BuildConfig) -> bytes:
        """A code object."""
        return code_object(text, self.chip)

    def render(self, modules: Sequence[Module], form: str, config: BuildConfig) -> bytes:
        """The device's kernels in one of :attr:`forms`."""
        if form == "llvm" or form not in self.forms:
            return super().render(modules, form, config)
        text = "".join(module.text for module in modules if module.name == CODE)
        if form == "so":
            return code_object(text, self.chip)
        return assembly(text, kernels_of(self.chip).machine).encode()


def amdgpu_target(options: TargetOptions) -> AmdgpuTarget:
    """The target for ``options``, whose variant is an architecture, a device's number, or both
    (``amdgpu:gfx942``, ``amdgpu:1``, ``amdgpu:gfx942:1``); :class:`ModelError` for others.  Without
    an architecture it is that of the device, or :data:`DEFAULT` if there is none."""
    words = [word for word in options.variant.split(":") if word]
    index = int(words.pop()) if words and words[-1].isdecimal() else 0
    if len(words) > 1:
        hint = "amdgpu:gfx942:1 is the second GPU, of architecture gfx942"
        raise ModelError(f"{options.variant!r} is no architecture and number", (), hint)
    chip = words[0] if words else architecture_of(index)
    if chip not in CHIPS:
        hint = f"there is {', '.join(CHIPS)}"
        raise ModelError(f"{chip!r} is no architecture of AMD's GPUs that is known", (), hint)
    host = native_target(replace(options, variant="", threads=1, schedule="", tuned=()))
    return AmdgpuTarget(host, options, index, chip)


def architecture_of(number: int) -> str:
    """The architecture of device ``number`` of this machine; :data:`DEFAULT` if there is none."""
    try:
        return hip_device.architecture(number)
    except LoadError:
        return DEFAULT
