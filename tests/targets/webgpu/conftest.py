"""A device of WebGPU, where there is one."""

from __future__ import annotations

import pytest

from modelcc.runtime.errors import LoadError


@pytest.fixture(name="device")
def _device(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests that ask for it are skipped where there is none."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.getbasetemp()))
    kernels = pytest.importorskip("webgpu_kernels")
    try:
        kernels.open_once()
    except LoadError as error:
        pytest.skip(str(error))
