"""NVIDIA's GPUs by architecture, as compilers call it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module

from modelcc.ir.errors import ModelError
from modelcc.runtime.streams.cuda_code import architecture_of
from modelcc.targets.gpu.machine import GPUS, GpuModel
from modelcc.targets.gpu.products.tensor_product import BYTES, UNSIGNED
from modelcc.targets.isa.nvidia_mma import REGISTERS
from modelcc.targets.native.machine import Machine


@dataclass(frozen=True)
class Chip:
    """An architecture, ``sm_80``: ``gpu`` is the machine model for schedules, ``ptx`` the first
    version of PTX with all that we use."""

    name: str
    gpu: GpuModel
    ptx: int = 80

    @property
    def machine(self) -> Machine:
        """LLVM's name for it."""
        return Machine("nvptx64-nvidia-cuda", self.name, (f"+ptx{self.ptx}",))

    @property
    def number(self) -> int:
        """Ten times its major plus its minor compute capability."""
        return int(self.name.removeprefix("sm_").rstrip("a"))

    @property
    def major(self) -> int:
        """Its major compute capability: others do not run its machine code."""
        return self.number // 10

    @property
    def workspace(self) -> int:
        """Bytes of workspace that NVIDIA recommends for cuBLAS (its documentation,
        cublasSetWorkspace)."""
        return 32 << 20 if self.major >= 9 else 4 << 20


_A100, _DESKTOP, _H100, _RTX_40 = (
    replace(
        GPUS[n],
        matrix=("mma", UNSIGNED, REGISTERS, *more),
        arrivals=True,
        copies=True,
        overlaps=n == "h100",
    )
    for n, more in (("a100", ()), ("rtx30", ()), ("h100", (BYTES,)), ("rtx40", (BYTES,)))
)

CHIPS: Mapping[str, Chip] = {
    chip.name: chip
    for chip in (
        Chip("sm_80", _A100),
        Chip("sm_86", _DESKTOP),
        Chip("sm_87", replace(_DESKTOP, shared_bytes=164 << 10, group_shared_bytes=163 << 10)),
        Chip("sm_89", _RTX_40, 84),
        Chip("sm_90", _H100, 84),
        Chip("sm_90a", replace(_H100, matrix=("wgmma", *_H100.matrix)), 84),
        Chip("sm_100a", _H100, 86),
        Chip("sm_120", replace(_RTX_40, overlaps=True), 87),
    )
}

PORTABLE = replace(
    CHIPS["sm_80"],
    gpu=replace(_A100, group_shared_bytes=min(c.gpu.group_shared_bytes for c in CHIPS.values())),
)
"""The oldest one, with groups that share no more than those of any newer one may: desktops' have
99 KiB, an A100 163."""
_CAPABILITY = "modelcc.runtime.streams.cuda_capability"
"""Imported on demand, as it needs the package of the driver's functions."""


def find_chip(name: str) -> Chip:
    """The architecture called ``name``; :class:`ModelError` if it is not supported."""
    chip = CHIPS.get(name)
    if chip is None:
        hint = f"there is {', '.join(CHIPS)}; newer GPUs run code for an older one without an a"
        raise ModelError(f"{name!r} is no architecture of NVIDIA's GPUs", (), hint)
    return chip


def chip_of(major: int, minor: int) -> Chip | None:
    """As :func:`architecture_of`."""
    name = architecture_of(major, minor)
    return None if name is None else CHIPS[name]


def chip_here(index: int) -> Chip | None:
    """The architecture of this machine's GPU number ``index``; None if there is none."""
    try:
        found: tuple[int, int] | None = import_module(_CAPABILITY).capability_here(index)
    except ImportError:
        return None
    return None if found is None else chip_of(*found)
