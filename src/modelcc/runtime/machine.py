"""Whether this machine can run code compiled for another."""

from __future__ import annotations

import ctypes
import hashlib
import platform
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

from modelcc.artifact.manifest import MachineSpec
from modelcc.runtime.errors import LoadError

_CPU_INFO = Path("/proc/cpuinfo")
_LLVM = "llvmlite.binding"
"""Detects the features of this processor; imported if Linux does not report them, for its size."""

_LLVM_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "3dnowprefetch": ("prfchw",), "abm": ("lzcnt",), "bmi1": ("bmi",), "lahf_lm": ("sahf",),
        "lm": ("64bit",), "pclmulqdq": ("pclmul",), "pni": ("sse3",), "rdrand": ("rdrnd",),
        "sha_ni": ("sha",), "sse4_1": ("sse4.1",), "sse4_2": ("sse4.2", "crc32"),
    }
)  # fmt: skip
"""Linux's x86-64 flags whose LLVM names differ by more than an underscore."""


def architecture() -> str:
    """This machine's architecture in LLVM's terms: macOS has another name for Arm's."""
    return {"arm64": "aarch64"}.get(platform.machine(), platform.machine())


def check_machine(spec: MachineSpec) -> None:
    """Raises LoadError, listing missing features, if code for ``spec`` cannot run here."""
    if sys.platform == "darwin":
        raise LoadError(
            "code for processors runs on Linux, and this is macOS; compile the model for metal"
        )
    made_for = spec.triple.split("-", 1)[0]
    here = architecture()
    if made_for != here:
        raise LoadError(
            f"the model was compiled for {made_for} and this machine is {here}; "
            "compile it for this machine"
        )
    needed = [flag[1:] for flag in spec.features if flag.startswith("+")]
    tiles = [name for name in needed if name.startswith("amx")]
    if tiles and not tiles_permitted():
        raise LoadError(
            f"the model was compiled for {', '.join(tiles)}, which this processor lacks or Linux "
            "does not let this process use; compile it here, or for an older processor"
        )
    if spec.origin and spec.origin == machine_identity():
        return
    linux = linux_features()
    unknown = [name for name in needed if name not in linux]
    if unknown:
        _ask_llvm(spec, unknown)


def _ask_llvm(spec: MachineSpec, needed: list[str]) -> None:
    """Raises LoadError if LLVM does not detect all of ``needed`` here."""
    code = f"the model was compiled for {spec.cpu or 'another processor'}"
    try:
        llvm = import_module(_LLVM)
    except ImportError as error:
        raise LoadError(
            f"{code}, and Linux does not list {', '.join(needed)} here; install llvmlite, which "
            "knows more features, or compile the model on this machine or for an older processor"
        ) from error
    available: Mapping[str, bool] = llvm.get_host_cpu_features()
    missing = [name for name in needed if not available.get(name, False)]
    if missing:
        name: str = llvm.get_host_cpu_name()
        raise LoadError(
            f"{code}, and this machine ({name}) lacks {', '.join(missing)}; compile it on this "
            "machine, or for an older processor"
        )


def linux_features() -> frozenset[str]:
    """LLVM's names of the features that Linux reports for this x86-64 processor and this process
    may use; none elsewhere."""
    flags = next((line for line in _cpu_info() if line.startswith("flags")), "")
    found = flags.partition(":")[2].split()
    if "amx_tile" in found and not tiles_permitted():
        found = [flag for flag in found if not flag.startswith("amx")]
    return frozenset(
        name
        for flag in found
        for name in _LLVM_NAMES.get(flag, (flag.replace("_", ""), flag.replace("_", "-")))
    )


@cache
def tiles_permitted() -> bool:
    """Whether this process may use AMX tiles, which it must request from Linux once."""
    if platform.machine() != "x86_64" or sys.platform != "linux":
        return False
    arch_prctl, request, tile_data = 158, 0x1023, 18  # arch/x86/include/uapi/asm/prctl.h
    return ctypes.CDLL(None).syscall(arch_prctl, request, tile_data) == 0


def _cpu_info() -> Iterator[str]:
    try:
        yield from _CPU_INFO.read_text().splitlines()
    except OSError:
        return


def machine_identity() -> str:
    """Equal on machines whose processors have the same features, and for processes that may use the
    same; empty if Linux does not report them."""
    names = ("vendor_id", "cpu family", "model", "flags", "Features")
    features = {line for line in _cpu_info() if line.partition(":")[0].strip() in names}
    text = "\n".join(sorted(features))
    if "amx_tile" in text and not tiles_permitted():
        text += "\nno tiles"
    return hashlib.sha256(text.encode()).hexdigest()[:16] if features else ""
