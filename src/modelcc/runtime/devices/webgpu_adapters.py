"""Adapters of WebGPU, by ``wgpu``."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

import wgpu

from modelcc.runtime.errors import LoadError

_LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
)


TIMES = "timestamp-query"
"""The feature of a device that has a clock."""


def find_adapters() -> list[wgpu.GPUAdapter]:
    """WebGPU's adapters, the fastest kinds first; :class:`LoadError` if there is none."""
    found = wgpu.gpu.enumerate_adapters_sync()
    vulkan = [a for a in found if a.info["backend_type"] != "OpenGL"]
    if not vulkan:
        raise LoadError(
            "WebGPU finds no device; install a driver for Vulkan, Metal or Direct3D 12 (without a "
            "graphics card: Debian's mesa-vulkan-drivers)"
        )
    return sorted(vulkan, key=lambda a: _KINDS.get(cast(str, a.info["adapter_type"]), len(_KINDS)))


_KINDS = {"DiscreteGPU": 0, "IntegratedGPU": 1, "VirtualGPU": 2, "CPU": 3}


def opened(adapter: wgpu.GPUAdapter) -> wgpu.GPUDevice:
    """A device with the adapter's limits of memory and buffers; :class:`LoadError` if it does not
    start."""
    limits: dict[str, int | None] = {n: cast(int, adapter.limits[n]) for n in _LIMITS}
    features = [name for name in (TIMES,) if name in adapter.features]
    try:
        return adapter.request_device_sync(required_features=features, required_limits=limits)
    except (wgpu.GPUError, RuntimeError) as error:  # the second if out of memory
        raise LoadError(f"{adapter.summary} does not start: {error}") from error


def nanoseconds_of_a_tick(device: wgpu.GPUDevice) -> float:
    """The tick of the device's clock, which the package itself does not tell."""
    native: Any = import_module("wgpu.backends.wgpu_native")
    queue: Any = device.queue
    return float(native.lib.wgpuQueueGetTimestampPeriod(queue._internal))
