"""Vendor libraries requested by a user, and the folders of their sources."""

from __future__ import annotations

from pathlib import Path

from modelcc.ir.errors import ModelError
from modelcc.targets.base import TargetOptions
from modelcc.targets.mcu.libraries.cmsis_nn import HEADER, NAME
from modelcc.targets.mcu.machine import McuModel

INCLUDE = "Include"


def vendor_libraries(model: McuModel, options: TargetOptions) -> tuple[tuple[str, str], ...]:
    """Names and folders; :class:`ModelError` if one is not for this processor, or missing."""
    found = tuple((name, _folder(model, name, path)) for name, path in options.libraries)
    if options.kernels == "library" and not found:
        raise ModelError("libraries are preferred, but none is named", (), f"add {_ASKED}")
    return found


_ASKED = f"--library {NAME}=PATH"


def _folder(model: McuModel, name: str, path: str) -> str:
    if name != NAME or model.architecture != "arm":
        known = f"there is {NAME}" if model.architecture == "arm" else f"{NAME} is for Arm"
        raise ModelError(f"kernels of {model.name} cannot call a library {name!r}", (), known)
    hint = f"{_ASKED}, the folder of its sources"
    if not path:
        raise ModelError(f"the library {name} has no path", (), hint)
    folder = Path(path).expanduser().resolve()
    if not (folder / INCLUDE / HEADER).is_file():
        raise ModelError(f"there is no {INCLUDE}/{HEADER} in {path}", (), hint)
    return str(folder)
