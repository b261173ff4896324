"""Whether this machine can run code that was compiled for another."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import cast

import llvmlite.binding as llvm

from modelcc.artifact.manifest import MachineSpec
from modelcc.runtime.loader import LoadError


def check_machine(spec: MachineSpec) -> None:
    """Raise LoadError, saying what is missing, if code for ``spec`` cannot run here."""
    architecture = spec.triple.split("-", 1)[0]
    here = platform.machine()
    if architecture != here:
        raise LoadError(
            f"the model was compiled for {architecture} and this machine is {here}; "
            "compile it for this machine"
        )
    available = cast(Mapping[str, bool], llvm.get_host_cpu_features())
    needed = (flag[1:] for flag in spec.features if flag.startswith("+"))
    missing = [name for name in needed if not available.get(name, False)]
    if missing:
        raise LoadError(
            f"the model was compiled for {spec.cpu or 'another processor'}, and this machine "
            f"({llvm.get_host_cpu_name()}) lacks {', '.join(missing)}; compile it on this "
            "machine, or for an older processor"
        )
