"""Whether this machine can run code that was compiled for another."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import cast

from modelcc.artifact.manifest import MachineSpec
from modelcc.runtime.errors import LoadError

_CPU_INFO = Path("/proc/cpuinfo")
_LLVM = "llvmlite.binding"
"""Names the features of this processor; imported when it is wanted, for its size."""


def check_machine(spec: MachineSpec) -> None:
    """Raise LoadError, saying what is missing, if code for ``spec`` cannot run here."""
    architecture = spec.triple.split("-", 1)[0]
    here = platform.machine()
    if architecture != here:
        raise LoadError(
            f"the model was compiled for {architecture} and this machine is {here}; "
            "compile it for this machine"
        )
    if spec.origin and spec.origin == machine_identity():
        return
    needed = [flag[1:] for flag in spec.features if flag.startswith("+")]
    if not needed:
        return
    llvm = import_module(_LLVM)
    available = cast(Callable[[], Mapping[str, bool]], llvm.get_host_cpu_features)()
    missing = [name for name in needed if not available.get(name, False)]
    if missing:
        name = cast(Callable[[], str], llvm.get_host_cpu_name)()
        raise LoadError(
            f"the model was compiled for {spec.cpu or 'another processor'}, and this machine "
            f"({name}) lacks {', '.join(missing)}; compile it on this "
            "machine, or for an older processor"
        )


def machine_identity() -> str:
    """Equal on machines whose processors have the same features; empty if Linux does not tell."""
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError:
        return ""
    names = ("vendor_id", "cpu family", "model", "flags", "Features")
    told = {line for line in lines if line.partition(":")[0].strip() in names}
    text = "\n".join(sorted(told))
    return hashlib.sha256(text.encode()).hexdigest()[:16] if told else ""
