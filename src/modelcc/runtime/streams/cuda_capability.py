"""The compute capability of NVIDIA's GPUs."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver as cuda_driver


def capability_here(index: int) -> tuple[int, int] | None:
    """The compute capability of this machine's GPU number ``index``: major and minor number; None
    if there is no driver or no such GPU."""
    try:
        return capability(cuda_driver, index)
    except Exception:  # without a driver, the package raises classes of its own
        return None


def capability(api: Any, index: int) -> tuple[int, int] | None:
    """The same, by the functions of ``cuda.bindings.driver``."""
    if int(api.cuInit(0)[0]):
        return None
    status, count = api.cuDeviceGetCount()
    if int(status) or not 0 <= index < count:
        return None
    status, device = api.cuDeviceGet(index)
    if int(status):
        return None
    kinds = api.CUdevice_attribute
    major = kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    minor = kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
    found = [api.cuDeviceGetAttribute(kind, device) for kind in (major, minor)]
    if any(int(status) for status, _ in found):
        return None
    return int(found[0][1]), int(found[1][1])
