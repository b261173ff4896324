"""Table of microcontrollers, which targets are named after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class McuModel:
    """A microcontroller: ``name`` is the target's, ``words`` describe it.

    ``architecture`` and ``features`` select the instructions of :mod:`modelcc.targets.isa` that it
    has.  ``compiler`` is the prefix of GCC's commands for it, ``flags`` are the processor options
    of these (empty: any compiler of the user).  ``libraries`` are folders of vendors' sources, by
    their names, whose functions kernels may call.
    """

    name: str
    words: str
    architecture: str = ""
    features: tuple[str, ...] = ()
    compiler: str = ""
    flags: tuple[str, ...] = ()
    libraries: tuple[tuple[str, str], ...] = ()

    @property
    def mve(self) -> bool:
        """Whether it has Helium."""
        return "+mve" in self.features


_ARM, _RISCV = "arm-none-eabi-", "riscv64-unknown-elf-"


def _cortex(name: str, words: str, fpu: str = "", *features: str) -> McuModel:
    flags = (f"-mcpu={name}", "-mthumb", f"-mfloat-abi={'hard' if fpu else 'soft'}")
    given = (f"-mfpu={fpu}",) if fpu not in ("", "auto") else ()
    return McuModel(name, f"Arm Cortex-M{name[8:]}, {words}", "arm", features, _ARM, flags + given)


MODELS: Mapping[str, McuModel] = MappingProxyType(
    {
        model.name: model
        for model in (
            McuModel("mcu", "any microcontroller with a compiler for C99"),
            _cortex("cortex-m0plus", "Armv6-M, no floats"),
            _cortex("cortex-m3", "Armv7-M, no floats"),
            _cortex("cortex-m4", "Armv7E-M, DSP, floats of 32 bits", "fpv4-sp-d16", "+dsp"),
            _cortex("cortex-m7", "Armv7E-M, DSP, floats of 64 bits", "fpv5-d16", "+dsp"),
            _cortex("cortex-m33", "Armv8-M, DSP, floats of 32 bits", "fpv5-sp-d16", "+dsp"),
            _cortex("cortex-m55", "Armv8.1-M, DSP, Helium, floats", "auto", "+dsp", "+mve"),
            McuModel(
                "riscv32imc", "RISC-V, multiplication, compressed instructions, no floats",
                "riscv32", (), _RISCV, ("-march=rv32imc", "-mabi=ilp32"),
            ),
        )
    }
)  # fmt: skip
"""By the names of their targets."""
