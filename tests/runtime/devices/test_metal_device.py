"""The device of Metal does what is asked in order, and says what is wrong when it cannot."""

from __future__ import annotations

import sys
from dataclasses import replace
from threading import Thread
from types import ModuleType

import numpy as np
import pytest
from metal_driver import Commands, FakeMetal
from metal_kernels import install, metal_device
from small_models import mlp, mlp_result

import modelcc
from modelcc.driver import NOWHERE, compile_model
from modelcc.ir.types import Array
from modelcc.runtime.devices.device import OutOfDeviceMemoryError, open_device
from modelcc.runtime.devices.device_parts import CODE
from modelcc.runtime.devices.device_program import DeviceCode
from modelcc.runtime.devices.metal_device import (
    MetalApi,
    MetalDevice,
    MetalMemory,
    device_of,
    metal_api,
)
from modelcc.runtime.errors import LoadError, RunError
from tests.machines import chosen_options

ADD = """#include <metal_stdlib>
using namespace metal;
#define restrict __restrict

[[kernel, max_total_threads_per_threadgroup(4 * 1 * 1)]] void add(
    device float *restrict y [[buffer(0)]],
    device const float *restrict x [[buffer(1)]], constant int64_t &n [[buffer(2)]],
    uint3 mcc_group [[threadgroup_position_in_grid]],
    uint3 mcc_thread [[thread_position_in_threadgroup]])
{
    const int64_t i = 4 * mcc_group.x + mcc_thread.x;
    if (i < n) y[i] += x[i];
}
"""


@pytest.fixture
def metal(monkeypatch: pytest.MonkeyPatch) -> FakeMetal:
    return install(monkeypatch)


def adding(metal: FakeMetal) -> MetalDevice:
    device = metal_device(metal)
    device.load(ADD.encode(), {"add": (4, 1, 1)})
    return device


def put(device: MetalDevice, array: Array) -> MetalMemory:
    memory = device.allocate(array.nbytes)
    device.upload(memory, 0, array.ctypes.data, array.nbytes)
    return memory


def got(device: MetalDevice, memory: MetalMemory, count: int, offset: int = 0) -> Array:
    array = np.zeros(count, np.float32)
    device.download(memory, offset, array.ctypes.data, array.nbytes)
    return array


def add(device: MetalDevice, y: MetalMemory, x: MetalMemory, count: int, at: int = 0) -> None:
    device.launch("add", [(y, at), (x, 0)], [count], (-(-count // 4), 1, 1))


def test_launches_are_done_in_order(metal: FakeMetal) -> None:
    """More than are handed over together, with other sizes and offsets in between."""
    device = adding(metal)
    y, x = put(device, np.zeros(600, np.float32)), put(device, np.ones(600, np.float32))
    for turn in range(150):
        add(device, y, x, 300 + turn % 3)
        add(device, y, x, 4, 4 * 512)
    found = got(device, y, 600)
    wanted = np.concatenate([np.full(300, 150), [100, 50], np.zeros(298)])
    wanted[512:516] = 150
    np.testing.assert_array_equal(found, wanted)
    assert metal.launches == 300


def test_work_is_done_when_somebody_waits(metal: FakeMetal) -> None:
    """What is uploaded later does not change launches before."""
    device = adding(metal)
    y, x = put(device, np.zeros(8, np.float32)), put(device, np.ones(8, np.float32))
    add(device, y, x, 8)
    two = np.full(8, 2, np.float32)
    device.upload(x, 0, two.ctypes.data, two.nbytes)
    add(device, y, x, 8)
    del x
    np.testing.assert_array_equal(got(device, y, 8), np.full(8, 3))


def test_copies_within_memory(metal: FakeMetal) -> None:
    device = adding(metal)
    y, other = put(device, np.arange(8, dtype=np.float32)), put(device, np.zeros(8, np.float32))
    add(device, y, y, 8)
    device.copy(other, 8, y, 4, 12)
    device.copy(y, 4, y, 0, 12)
    device.copy(y, 0, y, 0, 0)
    np.testing.assert_array_equal(got(device, other, 8), [0, 0, 2, 4, 6, 0, 0, 0])
    np.testing.assert_array_equal(got(device, y, 8), [0, 0, 2, 4, 8, 10, 12, 14])


def test_the_gpus_clock(metal: FakeMetal) -> None:
    device = adding(metal)
    y, x = put(device, np.zeros(8, np.float32)), put(device, np.ones(8, np.float32))
    add(device, y, x, 8)
    device.keep_times(True)
    assert device.seconds() == 0
    add(device, y, x, 8)
    device.synchronize()
    assert 0 < device.seconds() < 5
    assert device.seconds() == 0
    device.keep_times(False)
    add(device, y, x, 8)
    device.synchronize()
    assert device.seconds() == 0


@pytest.mark.parametrize("modes", [True, False], ids=["macOS 15", "before"])
def test_math_is_safe_on_any_system(modes: bool) -> None:
    """What stands for Metal refuses other options."""
    assert adding(FakeMetal(modes=modes)).name == "Test GPU 0"


def test_elsewhere_nothing_is_imported() -> None:
    with pytest.raises(LoadError, match=r"part of macOS.*compile the model for webgpu, opencl or"):
        metal_api("linux")


def test_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Metal", None)
    with pytest.raises(LoadError, match=r"needs a package: .*pip install 'modelcc\[metal\]'"):
        metal_api("darwin")


def test_the_packages_are_pyobjcs(monkeypatch: pytest.MonkeyPatch) -> None:
    metal, objc = ModuleType("Metal"), ModuleType("objc")
    monkeypatch.setattr(objc, "autorelease_pool", FakeMetal().pool, raising=False)
    for module in (metal, objc):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    assert metal_api("darwin").metal is metal


def test_devices_by_number() -> None:
    """The system's own one is the first; without a screen there may be none of its own."""
    metal = FakeMetal(devices=3)
    api = MetalApi(metal, metal.pool)
    assert [device_of(api, n).name for n in range(3)] == [f"Test GPU {n}" for n in (2, 0, 1)]
    with pytest.raises(LoadError, match="no device 3: metal:0 is Test GPU 2, metal:1 is Test"):
        device_of(api, 3)
    metal.default = False
    assert device_of(api, 0).name == "Test GPU 0"
    none = FakeMetal(devices=0)
    with pytest.raises(LoadError, match="Metal finds no GPU"):
        device_of(MetalApi(none, none.pool), 0)
    with pytest.raises(LoadError, match="gives no queue"):
        metal_device(FakeMetal(queues=False))


def test_kernels_that_are_refused() -> None:
    device = metal_device(FakeMetal())
    with pytest.raises(LoadError, match=r"of Test GPU 0 refuses .*program_source(?s:.*)native"):
        device.load(ADD.replace("y[i] += x[i]", "y[i] += z[i]").encode(), {"add": (4, 1, 1)})
    with pytest.raises(LoadError, match="lack sub; compile it again"):
        device.load(ADD.encode(), {"sub": (4, 1, 1)})
    with pytest.raises(LoadError, match="does not take kernel add: Compiler encountered"):
        metal_device(FakeMetal(refuses_pipelines=True)).load(ADD.encode(), {"add": (4, 1, 1)})
    with pytest.raises(LoadError, match="groups of 4 threads, and Test GPU 0 takes 2"):
        metal_device(FakeMetal(threads=2)).load(ADD.encode(), {"add": (4, 1, 1)})
    device.load(b"", {})


def test_a_model_whose_kernels_are_damaged(metal: FakeMetal) -> None:
    artifact = compile_model(mlp(2), chosen_options(target="metal"), NOWHERE).artifact
    broken = replace(artifact, objects={**artifact.objects, CODE: b"#error broken"})
    with pytest.raises(LoadError, match="refuses the model's kernels"):
        DeviceCode(broken)


def test_memory_that_there_is_not() -> None:
    device = metal_device(FakeMetal(memory=1000, piece=600))
    held = device.allocate(501)
    assert held.size == 504 and device.memory == 1000
    with pytest.raises(OutOfDeviceMemoryError, match="in one piece gives no 604 bytes: it has 600"):
        device.allocate(601)
    with pytest.raises(OutOfDeviceMemoryError, match="of which 496 are free"):
        device.allocate(500)
    del held
    assert device.allocate(500).size == 500
    with pytest.raises(OutOfDeviceMemoryError):
        metal_device(FakeMetal(refuses_memory=True)).allocate(4)


def test_a_model_without_room_says_how_much_is_missing(metal: FakeMetal) -> None:
    net = modelcc.compile(mlp(2), "metal", cache=None)
    metal.memory = 1000
    with pytest.raises(RunError, match=r"needs [\d,]+ bytes of Test GPU 0 .*: [\d,]+ are missing"):
        net(np.ones((2, 6), np.float32))
    metal.memory = 1 << 20
    assert computes(net)


def computes(net: modelcc.Model) -> bool:
    x = np.random.default_rng(1).standard_normal((2, 6)).astype(np.float32)
    return np.allclose(net(x), mlp_result(x), atol=1e-5)


def test_a_gpu_that_fails_ends_the_call_alone(metal: FakeMetal) -> None:
    net, other = (modelcc.compile(mlp(2), "metal", cache=None) for _ in range(2))
    assert computes(net)
    metal.fault = "Caused GPU Hang Error (00000003:kIOGPUCommandBufferCallbackErrorHang)"
    with pytest.raises(RunError, match=r"did not do its work: Caused GPU Hang.*load the model"):
        computes(net)
    metal.fault = ""
    assert computes(net) and computes(other)
    metal.full = True
    with pytest.raises(RunError, match="its queue takes no commands"):
        computes(net)
    metal.full = False
    assert computes(net) and not metal.left


def test_an_interruption_waits_for_what_is_handed_over(
    metal: FakeMetal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory may be another's soon; launches that wait are not done."""
    device = adding(metal)
    y, x = put(device, np.zeros(8, np.float32)), put(device, np.ones(8, np.float32))
    for _ in range(100):
        add(device, y, x, 8)
    waited = Commands.waitUntilCompleted
    calls: list[Commands] = []

    def interrupted(commands: Commands) -> None:
        calls.append(commands)
        waited(commands)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Commands, "waitUntilCompleted", interrupted)
    with pytest.raises(KeyboardInterrupt):
        device.synchronize()
    assert {commands.status() for commands in calls} == {4} and len(set(calls)) == 2
    add(device, y, x, 8)
    np.testing.assert_array_equal(got(device, y, 8), np.full(8, 101))
    assert not metal.left


def test_calls_of_several_threads(metal: FakeMetal) -> None:
    """Of one session, and of another."""
    nets = [modelcc.compile(mlp("n"), "metal", cache=None) for _ in range(2)]
    wrong: list[object] = []

    def calls(number: int) -> None:
        for rows in range(1, 8):
            x = np.full((rows, 6), number + rows, np.float32)
            try:
                np.testing.assert_allclose(nets[number % 2](x), mlp_result(x), 1e-4, 1e-4)
            except Exception as error:
                wrong.append(error)

    threads = [Thread(target=calls, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and not metal.left


def test_a_kind_of_device_that_is_elsewhere() -> None:
    if sys.platform == "darwin":
        pytest.skip("Metal is here")
    with pytest.raises(LoadError, match="part of macOS"):
        open_device("metal", 0)
