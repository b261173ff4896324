"""Whole models for AMD's GPUs, on what stands for their library: kernels are interpreted."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from amd_code import HAS_LINKER
from device_models import Prepared, prepared
from hip_stand_in import FakeHip
from onnx import ModelProto, parser
from small_models import computed_gather, mlp, mlp_result
from transformer_models import attention_block

import modelcc
from modelcc.artifact.file import write_artifact
from modelcc.ir.errors import ModelError
from modelcc.options import Options
from modelcc.runtime.devices.device_arrays import DeviceArray
from modelcc.runtime.devices.device_program import DeviceCode
from modelcc.runtime.dlpack import ROCM, read_capsule
from modelcc.runtime.errors import LoadError, RunError
from modelcc.runtime.session import Session
from modelcc.runtime.streams import hip_device
from modelcc.runtime.streams.hip_device import HipDevice
from modelcc.runtime.streams.hip_library import declare
from modelcc.runtime.values import ValueSession
from modelcc.targets.amdgpu import target
from modelcc.targets.amdgpu.target import amdgpu_target
from modelcc.targets.base import TargetOptions
from tests.test_states import decoder

pytestmark = pytest.mark.skipif(not HAS_LINKER, reason="there is no lld here")

GFX942 = Options(target="amdgpu:gfx942")


def session(made: Prepared, memory: int = 1 << 30) -> tuple[Session, FakeHip]:
    artifact, kernels = made
    hip = FakeHip(kernels, memory)
    return Session(artifact, 1, DeviceCode(artifact, HipDevice(declare(hip), 0))), hip


@pytest.mark.parametrize("batch", [2, "n"])
def test_a_model_runs_by_its_steps(batch: int | str) -> None:
    made = prepared(mlp(batch), GFX942)
    net, hip = session(made)
    x = np.random.default_rng(3).standard_normal((2, 6)).astype(np.float32)
    for _ in range(3):
        np.testing.assert_allclose(net.run({"x": x})["y"], mlp_result(x), rtol=1e-4, atol=1e-5)
    calls = hip.engine.calls
    assert calls.count("cuLaunchKernel") == len(made[1]), "recorded once"
    assert calls.count("cuGraphLaunch") == 3
    taken = net.profile({"x": x}, len(made[1]) + 2, runs=1)
    np.testing.assert_allclose(taken, 1.0)  # what each command takes by the GPU's clock
    if batch == "n":
        more = np.tile(x, (20, 1))
        np.testing.assert_allclose(
            net.run({"x": more})["y"], mlp_result(more), rtol=1e-4, atol=1e-5
        )
    del net
    gc.collect()
    engine = hip.engine
    assert not (engine.given or engine.pinned or engine.executables or engine.graphs)
    assert not (engine.streams or engine.modules or engine.events)


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx950"])
def test_a_transformer_computes_what_onnxruntime_does(tmp_path: Path, chip: str) -> None:
    path = tmp_path / "block.onnx"
    path.write_bytes(attention_block(2).SerializeToString())
    artifact, kernels = prepared(path, Options(target=f"amdgpu:{chip}", precision="f16"))
    hip = FakeHip(kernels, chip=chip)
    net = Session(artifact, 1, DeviceCode(artifact, HipDevice(declare(hip), 0)))
    peer = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(5)
    feeds = {i.name: rng.standard_normal(i.shape).astype(np.float32) for i in peer.get_inputs()}
    found = net.run(feeds)
    for output, result in zip(peer.get_outputs(), peer.run(None, feeds), strict=True):
        wanted = np.asarray(result)
        tolerance = 6e-3 * float(np.abs(wanted).max())
        np.testing.assert_allclose(found[output.name], wanted, atol=tolerance, rtol=0)


def test_an_index_out_of_range_ends_a_run() -> None:
    net, _ = session(prepared(computed_gather(), GFX942))
    table = np.random.default_rng(3).standard_normal((40, 3)).astype(np.float32)
    for _ in range(2):
        y = net.run({"x": np.array([3, 0], np.float32)})["y"]
        np.testing.assert_array_equal(y, table[[4, 1]])
        with pytest.raises(RunError, match="rows"):
            net.run({"x": np.array([3, 70], np.float32)})


def test_states_stay_in_the_gpus_memory() -> None:
    artifact, kernels = prepared(decoder(8), GFX942)
    hip = FakeHip(kernels)
    net = ValueSession(artifact, 1, DeviceCode(artifact, HipDevice(declare(hip), 0)))
    for place in (3, 7):
        net(np.full((1, 1, 16), place, np.float32), np.array([place]))
    wanted = np.zeros((1, 8, 16), np.float32)
    wanted[:, 3], wanted[:, 7] = 3, 7
    np.testing.assert_array_equal(net.states.now["cache"], wanted)


def test_results_stay_on_the_gpu_for_libraries_of_rocm() -> None:
    """As DLPack numbers its devices and streams, of which the default one is 0."""
    net, _ = session(prepared(mlp(), GFX942))
    x = np.ones((2, 6), np.float32)
    y = net.run({"x": x}, out="device")["y"]
    assert isinstance(y, DeviceArray)
    assert y.__dlpack_device__() == (ROCM, 0)
    tensor = read_capsule(y.__dlpack__(stream=0))
    assert tensor.device == (ROCM, 0)
    np.testing.assert_allclose(y.numpy(), mlp_result(x), rtol=1e-4, atol=1e-5)
    assert y.__cuda_array_interface__["data"] == (tensor.address, False)


class OfRocm:
    """A tensor as PyTorch for ROCm exports it."""

    def __init__(self, held: DeviceArray) -> None:
        self._held = held
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return ROCM, 0

    def __dlpack__(self, stream: int) -> object:
        self.streams.append(stream)
        return self._held.__dlpack__(stream=stream)


def test_tensors_of_rocm_are_read_where_they_are() -> None:
    artifact, kernels = prepared(square(), GFX942)
    hip = FakeHip(kernels)
    net = Session(artifact, 1, DeviceCode(artifact, HipDevice(declare(hip), 0)))
    x = np.full((4, 4), 0.5, np.float32)
    first = net.run({"x": x}, out="device")["y"]
    assert isinstance(first, DeviceArray)
    given = OfRocm(first)
    before = hip.engine.calls.count("cuMemcpyHtoDAsync")
    second = net.run({"x": given}, out="device")["y"]
    assert hip.engine.calls.count("cuMemcpyHtoDAsync") == before
    assert isinstance(second, DeviceArray) and given.streams[0] > 2
    np.testing.assert_allclose(second.numpy(), x @ x @ (x @ x))


class ByInterface:
    """A tensor by the array interface, in the default stream as that numbers it."""

    def __init__(self, held: DeviceArray) -> None:
        self.__cuda_array_interface__ = held.__cuda_array_interface__ | {"stream": 1}


def test_tensors_by_the_array_interface_are_waited_for() -> None:
    net, _ = session(prepared(square(), GFX942))
    x = np.full((4, 4), 0.5, np.float32)
    first = net.run({"x": x}, out="device")["y"]
    assert isinstance(first, DeviceArray)
    found = net.run({"x": ByInterface(first)}, out="device")["y"]
    np.testing.assert_allclose(np.asarray(found), x @ x @ (x @ x))


def square() -> ModelProto:
    """``y = x @ x``."""
    return parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[4, 4] x) => (float[4, 4] y)'
        " { y = MatMul(x, x) }"
    )


# --- which GPU


def test_the_gpu_that_is_here_is_compiled_for(monkeypatch: pytest.MonkeyPatch) -> None:
    hip = declare(FakeHip({}, devices=2, chip="gfx90a"))
    monkeypatch.setattr(hip_device, "open_hip", lambda: hip)
    assert [(t.chip, t.index) for t in map(of, ("", "1", "gfx942", "gfx942:1"))] == [
        ("gfx90a", 0),
        ("gfx90a", 1),
        ("gfx942", 0),
        ("gfx942", 1),
    ]
    assert of("2").chip == target.DEFAULT, "no such GPU"
    with pytest.raises(ModelError, match="no architecture and number"):
        of("gfx942:gfx950")


def of(variant: str) -> target.AmdgpuTarget:
    return amdgpu_target(TargetOptions(variant=variant))


def test_a_file_runs_on_another_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact, kernels = prepared(mlp(), GFX942)
    path = tmp_path / "mlp.mcc"
    write_artifact(path, artifact)
    hip = declare(FakeHip(kernels, devices=2))
    monkeypatch.setattr(hip_device, "open_hip", lambda: hip)
    x = np.ones((2, 6), np.float32)
    y = modelcc.load(path, target="amdgpu:1").run({"x": x}, out="device")["y"]
    assert y.__dlpack_device__() == (ROCM, 1)
    np.testing.assert_allclose(y.numpy(), mlp_result(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(LoadError, match="no GPU 2"):
        modelcc.load(path, target="amdgpu:2")


def test_a_model_that_does_not_fit_says_what_is_missing() -> None:
    net, _ = session(prepared(mlp(), GFX942), memory=1200)
    with pytest.raises(RunError, match=r"has 1,200, of which \d+ are free: [\d,]+ are missing"):
        net.run({"x": np.zeros((2, 6), np.float32)})
