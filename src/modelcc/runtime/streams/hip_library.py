"""ROCm's HIP library, found and declared: the functions of ``hip_runtime_api.h`` that devices call.

They are called by ``ctypes``: packages with bindings have a release for each one of ROCm, while
these functions have been the same since ROCm 6.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from modelcc.runtime.errors import LoadError

INSTALL = "install AMD's driver and ROCm 6 or later, or compile for another target"

_FILES = (
    "libamdhip64.so.7",
    "libamdhip64.so.6",
    "libamdhip64.so",
    "/opt/rocm/lib/libamdhip64.so",
    "amdhip64_7.dll",
    "amdhip64_6.dll",
)
_MAPPED = Path("/proc/self/maps")

_POINTER, _SIZE, _INT, _COUNT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint
_GIVES, _SIZES, _NUMBERS = (ctypes.POINTER(t) for t in (_POINTER, _SIZE, _INT))
"""Out parameters: pointers, sizes and numbers."""

PROPERTIES = "hipGetDevicePropertiesR0600"
"""The header calls it ``hipGetDeviceProperties`` since ROCm 6; the symbol of that name fills the
structure of ROCm 5."""

PROTOTYPES: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "hipInit": (_COUNT,),
        "hipGetDeviceCount": (_NUMBERS,),
        "hipSetDevice": (_INT,),
        "hipDeviceGetName": (ctypes.c_char_p, _INT, _INT),
        "hipDeviceTotalMem": (_SIZES, _INT),
        PROPERTIES: (_POINTER, _INT),
        "hipDeviceGetDefaultMemPool": (_GIVES, _INT),
        "hipMemPoolSetAttribute": (_POINTER, _INT, _POINTER),
        "hipMemPoolTrimTo": (_POINTER, _SIZE),
        "hipMemGetInfo": (_SIZES, _SIZES),
        "hipMallocAsync": (_GIVES, _SIZE, _POINTER),
        "hipFreeAsync": (_POINTER, _POINTER),
        "hipHostMalloc": (_GIVES, _SIZE, _COUNT),
        "hipHostFree": (_POINTER,),
        "hipPointerGetAttribute": (_POINTER, _INT, _POINTER),
        "hipMemcpyHtoDAsync": (_POINTER, _POINTER, _SIZE, _POINTER),
        "hipMemcpyDtoHAsync": (_POINTER, _POINTER, _SIZE, _POINTER),
        "hipMemcpyDtoDAsync": (_POINTER, _POINTER, _SIZE, _POINTER),
        "hipMemsetD8Async": (_POINTER, ctypes.c_ubyte, _SIZE, _POINTER),
        "hipModuleLoadData": (_GIVES, _POINTER),
        "hipModuleUnload": (_POINTER,),
        "hipModuleGetFunction": (_GIVES, _POINTER, ctypes.c_char_p),
        "hipModuleLaunchKernel": (_POINTER, *(_COUNT,) * 7, _POINTER, _POINTER, _POINTER),
        "hipStreamCreateWithFlags": (_GIVES, _COUNT),
        "hipStreamDestroy": (_POINTER,),
        "hipStreamSynchronize": (_POINTER,),
        "hipStreamQuery": (_POINTER,),
        "hipStreamWaitEvent": (_POINTER, _POINTER, _COUNT),
        "hipEventCreateWithFlags": (_GIVES, _COUNT),
        "hipEventDestroy": (_POINTER,),
        "hipEventRecord": (_POINTER, _POINTER),
        "hipEventQuery": (_POINTER,),
        "hipEventElapsedTime": (ctypes.POINTER(ctypes.c_float), _POINTER, _POINTER),
        "hipStreamBeginCapture": (_POINTER, _INT),
        "hipStreamEndCapture": (_POINTER, _GIVES),
        "hipGraphInstantiateWithFlags": (_GIVES, _POINTER, ctypes.c_ulonglong),
        "hipGraphDestroy": (_POINTER,),
        "hipGraphLaunch": (_POINTER, _POINTER),
        "hipGraphExecDestroy": (_POINTER,),
    }
)
"""Parameters of functions that return a status."""

ERROR_NAME = "hipGetErrorName"
"""Takes a status and returns text."""


def declare(library: Any) -> Any:
    """``library`` with its functions declared; LoadError if one is not there."""
    try:
        for name, parameters in PROTOTYPES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = parameters, ctypes.c_int
        named = getattr(library, ERROR_NAME)
    except AttributeError as error:
        raise LoadError(f"HIP is older than that of ROCm 6 ({error}); {INSTALL}") from error
    named.argtypes, named.restype = (ctypes.c_int,), ctypes.c_char_p
    return library


def open_hip() -> Any:
    """The library, declared; LoadError if there is none."""
    faults: list[str] = []
    for file in (*loaded_libraries(_MAPPED), *_FILES):
        try:
            return declare(ctypes.CDLL(file))
        except OSError as error:
            faults.append(str(error))
    raise LoadError(f"there is no driver for AMD's GPUs ({faults[0]}); {INSTALL}")


def loaded_libraries(maps: Path) -> Iterator[str]:
    """Paths of libraries that the process has loaded, such as PyTorch's own: two copies would not
    share memory and streams."""
    with suppress(OSError):
        words = (line.split(maxsplit=5) for line in maps.read_text().splitlines())
        paths = {word[5] for word in words if len(word) > 5}
        yield from sorted(path for path in paths if Path(path).name.startswith("libamdhip64"))
