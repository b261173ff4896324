"""What an artifact for a device is made of: steps, libraries, and functions that the host runs."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from modelcc.artifact.file import Artifact
from modelcc.artifact.manifest import LibrarySpec
from modelcc.runtime.device import Device, LibraryDevice
from modelcc.runtime.device_steps import DeviceProgram, from_json
from modelcc.runtime.errors import LoadError
from modelcc.runtime.libraries import addresses
from modelcc.runtime.loader import NativeCode, load_objects
from modelcc.runtime.pool import native_pool

STEPS, CODE = "device.json", "device.code"
"""Objects of an artifact that runs on a device: its steps and its kernels; all others are the
host's."""


def read_program(artifact: Artifact) -> DeviceProgram:
    """Its steps; LoadError if they are damaged."""
    try:
        return from_json(artifact.objects[STEPS].decode())
    except (ValueError, LookupError, TypeError) as error:
        raise LoadError(f"its steps are damaged ({error}); compile the model again") from error


def use_library(device: Device, library: LibrarySpec) -> None:
    """Make it ready; LoadError if the device calls none."""
    if not isinstance(device, LibraryDevice):
        raise LoadError(f"{device.name} calls no library {library.name}: compile without it")
    device.use(library)


def host_code(artifact: Artifact, elsewhere: AbstractSet[str]) -> NativeCode | None:
    """The functions that run on the host, whose libraries are those that are not ``elsewhere``."""
    names = [name for name in artifact.manifest.objects if name not in (STEPS, CODE)]
    objects = [artifact.objects[name] for name in names]
    if not objects:
        return None
    own = [spec for spec in artifact.manifest.libraries if spec.name not in elsewhere]
    return load_objects(objects, addresses(own), _pool_function)


def _pool_function(name: str) -> int:
    return native_pool().address(name) if name == "mcc_parallel_for" else 0
