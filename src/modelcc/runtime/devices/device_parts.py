"""The parts of an artifact for a device: steps, libraries, and functions that the host runs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from modelcc.artifact.file import Artifact
from modelcc.artifact.manifest import LibrarySpec
from modelcc.runtime.devices.device import Device, LibraryDevice
from modelcc.runtime.devices.device_steps import DeviceProgram, from_json
from modelcc.runtime.errors import LoadError
from modelcc.runtime.linking.libraries import addresses
from modelcc.runtime.loader import NativeCode, load_objects

STEPS, CODE = "device.json", "device.code"
"""Objects of an artifact that runs on a device: its steps and its kernels; all others are the
host's."""

_FUNCTION = ctypes.CFUNCTYPE(None)
_PARALLEL_FOR = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
)


def read_program(artifact: Artifact) -> DeviceProgram:
    """Its steps; LoadError if they are damaged."""
    try:
        return from_json(artifact.objects[STEPS].decode())
    except (ValueError, LookupError, TypeError) as error:
        raise LoadError(f"its steps are damaged ({error}); compile the model again") from error


def use_library(device: Device, library: LibrarySpec) -> None:
    """Opens it; LoadError if the device calls none."""
    if not isinstance(device, LibraryDevice):
        raise LoadError(f"{device.name} calls no library {library.name}: compile without it")
    device.use(library)


def host_code(artifact: Artifact, elsewhere: AbstractSet[str]) -> NativeCode | None:
    """The functions that run on the host, linked to libraries that are not ``elsewhere``."""
    names = [name for name in artifact.manifest.objects if name not in (STEPS, CODE)]
    objects = [artifact.objects[name] for name in names]
    if not objects:
        return None
    own = [spec for spec in artifact.manifest.libraries if spec.name not in elsewhere]
    return load_objects(objects, addresses(own), _pool_function)


@_PARALLEL_FOR
def _never_called(*_: int | None) -> None:
    """Replaces the pool's function, which is unused in calls without a pool."""


def _pool_function(name: str) -> int:
    found = ctypes.cast(_never_called, ctypes.c_void_p).value or 0
    return found if name == "mcc_parallel_for" else 0


class HostFunctions:
    """Functions of ``code`` that steps call, each looked up once."""

    def __init__(self, code: NativeCode | None) -> None:
        self._code = code
        self._known: dict[str, Callable[..., None]] = {}

    def call(
        self,
        name: str,
        places: Sequence[int],
        sizes: Sequence[int],
        noted: ctypes.Array[ctypes.c_int64] | None,
    ) -> None:
        """Calls one on tensors at ``places``, without threads; its checks go to ``noted``."""
        function = self._known.get(name)
        if function is None:
            assert self._code is not None
            function = self._known[name] = _FUNCTION(self._code.address(name))
        notes = () if noted is None else (ctypes.c_void_p(ctypes.addressof(noted)),)
        given = (*map(ctypes.c_void_p, places), *map(ctypes.c_int64, sizes), *notes)
        function(*given, ctypes.c_void_p(0))
