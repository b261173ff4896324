"""A whole model for the target cuda, on what stands for the driver: its kernels are interpreted."""

from __future__ import annotations

import ctypes
from math import prod
from pathlib import Path

import numpy as np
import pytest
from cuda_driver import FakeDriver, Kernel
from small_models import mlp

from modelcc.artifact.file import read_artifact
from modelcc.cli.main import cli
from modelcc.ir.index import evaluate
from modelcc.ir.loop import Function
from modelcc.ir.loop_interpreter import compile_loops
from modelcc.ir.loop_parser import parse_functions
from modelcc.ir.loop_traversal import launch_extents
from modelcc.ir.types import Array
from modelcc.runtime.device_program import DeviceCode
from modelcc.runtime.session import Session
from modelcc.targets.c.names import symbol

cuda_device = pytest.importorskip("modelcc.runtime.cuda_device")


def compiled(model: Path, form: str, output: Path) -> Path:
    """What the command writes."""
    arguments = ["compile", str(model), "--target", "cuda:sm_80", "-o", str(output)]
    cli(arguments + (["--emit", form] if form else []), standalone_mode=False)
    return output


def interpreted(function: Function) -> tuple[Kernel, int, int]:
    """A kernel that does what ``function`` means, launched as it says."""
    run, buffers = compile_loops(function), [p.buffer for p in function.parameters]

    def kernel(grid: tuple[int, ...], threads: tuple[int, ...], *given: int) -> None:
        sizes = dict(zip(function.sizes, given[len(buffers) :], strict=True))
        extents = [[evaluate(n, sizes) for n in e] for e in launch_extents(function)]
        assert [prod(e) for e in extents] == [prod(grid), prod(threads)]
        arrays: list[Array] = []
        for place, buffer in zip(given, buffers, strict=False):
            size = evaluate(buffer.size, sizes)
            memory = (ctypes.c_uint8 * (size * buffer.dtype.bytes)).from_address(place)
            arrays.append(np.ctypeslib.as_array(memory).view(buffer.dtype.numpy))
        run(arrays, list(sizes.values()))

    return kernel, len(buffers), len(function.sizes)


@pytest.mark.parametrize("batch", [2, "n"])
def test_a_model_runs_by_its_steps(tmp_path: Path, batch: int | str) -> None:
    model = tmp_path / "mlp.onnx"
    model.write_bytes(mlp(batch).SerializeToString())
    functions = parse_functions(compiled(model, "loop", tmp_path / "mlp.loop").read_text("utf-8"))
    kernels = {symbol(f.name): interpreted(f) for f in functions}
    artifact = read_artifact(compiled(model, "", tmp_path / "mlp.mcc"))
    driver = FakeDriver(kernels)
    session = Session(artifact, 1, DeviceCode(artifact, cuda_device.CudaDevice(driver, 0)))
    x = np.random.default_rng(3).standard_normal((2, 6)).astype(np.float32)
    weights = np.random.default_rng(7)
    w0, b0, w1 = (weights.standard_normal(s).astype(np.float32) for s in ((6, 20), (20,), (20, 3)))
    wanted = np.maximum(x @ w0 + b0, 0) @ w1
    for _ in range(2):
        np.testing.assert_allclose(session.run({"x": x})["y"], wanted, rtol=1e-4, atol=1e-5)
    assert driver.calls.count("cuLaunchKernel") == 2 * len(functions)
