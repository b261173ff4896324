"""Adapters of WebGPU that give no device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from modelcc.runtime.errors import LoadError

wgpu = pytest.importorskip("wgpu")
adapters = pytest.importorskip("modelcc.runtime.devices.webgpu_adapters")


@pytest.mark.parametrize("kind", ["GPUValidationError", "RuntimeError"])
def test_a_device_that_does_not_start_is_named(kind: str) -> None:
    """wgpu raises the second where there is not enough memory."""

    def refuse(**_: Any) -> None:
        raise getattr(wgpu, kind, RuntimeError)("Request device failed (3): Not enough memory left")

    limits = {"max-buffer-size": 1, "max-storage-buffer-binding-size": 1}
    limits |= {"max-storage-buffers-per-shader-stage": 1}
    adapter = SimpleNamespace(
        limits=limits, features=[], summary="llvmpipe", request_device_sync=refuse
    )
    with pytest.raises(LoadError, match=r"llvmpipe does not start: .*Not enough memory"):
        adapters.opened(adapter)
