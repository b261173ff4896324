"""What fails on a device ends the call that it is of, with its own words, and nothing else: host
memory, other calls, other models and other devices go on."""

from __future__ import annotations

import gc
from collections.abc import Callable
from threading import Thread

import numpy as np
import pytest
from cuda_driver import FakeDriver
from small_models import mlp, mlp_result

from modelcc.driver import NOWHERE, compile_model
from modelcc.ir.types import Array
from modelcc.runtime.devices.device import open_device
from modelcc.runtime.devices.device_program import DeviceCode
from modelcc.runtime.errors import InputError, LoadError, RunError
from modelcc.runtime.session import Session
from tests.machines import chosen_options
from tests.targets.cuda.test_program import Prepared, prepared

FAILING = ("launch", "upload", "download", "synchronize")


def normal() -> Array:
    return np.random.default_rng(1).standard_normal((2, 6)).astype(np.float32)


def computes(net: Session) -> bool:
    x = normal()
    return np.allclose(net(x), mlp_result(x), atol=1e-5)


class Nth:
    """In the place of a device's method: call number ``fails`` raises ``error``."""

    def __init__(self, own: Callable[..., object], fails: int, error: BaseException) -> None:
        self.own, self.fails, self.error = own, fails, error
        self.calls = 0

    def __call__(self, *given: object) -> object:
        self.calls += 1
        if self.calls == self.fails:
            raise self.error
        return self.own(*given)


@pytest.mark.parametrize("kind", ["opencl", "webgpu"])
def test_a_call_that_fails_is_made_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interruption, too, is no result."""
    pytest.importorskip(f"modelcc.runtime.{kind}_device")
    artifact = compile_model(mlp(2), chosen_options(target=kind, threads=1), NOWHERE).artifact
    code, others = DeviceCode(artifact), DeviceCode(artifact)
    net, other = Session(artifact, 1, code), Session(artifact, 1, others)
    assert computes(net) and computes(other)
    for name in FAILING:
        for error in (RunError("planned"), KeyboardInterrupt()):
            nth = Nth(getattr(code.device, name), 1, error)
            with monkeypatch.context() as patched:
                patched.setattr(code.device, name, nth)
                with pytest.raises(type(error)) as raised:
                    net(normal())
            assert raised.value is error and nth.calls == 1
            assert computes(net) and computes(other)


def test_each_thread_has_its_own_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one session."""
    pytest.importorskip("modelcc.runtime.devices.opencl_device")
    artifact = compile_model(mlp(2), chosen_options(target="opencl", threads=1), NOWHERE).artifact
    code = DeviceCode(artifact)
    net = Session(artifact, 1, code)
    own = code.device.upload

    def upload(memory: object, offset: int, address: int, size: int) -> None:
        given = np.empty(size, np.uint8)
        own(memory, offset, address, size)  # pyright: ignore[reportArgumentType]
        code.device.download(memory, offset, given.ctypes.data, size)  # pyright: ignore[reportArgumentType]
        if size == 48 and (first := float(given.view("f4")[0])) >= 100:
            raise RunError(f"refused {first:g}")

    assert computes(net)
    monkeypatch.setattr(code.device, "upload", upload)
    wrong: list[object] = []

    def calls(number: int) -> None:
        for turn in range(6):
            x = np.full((2, 6), 100 + number if turn % 2 else number, np.float32)
            try:
                wrong.extend(["done"] if turn % 2 else [])
                np.testing.assert_allclose(net(x), mlp_result(x), rtol=1e-4, atol=1e-4)
            except RunError as error:
                wrong.pop()
                if str(error) != f"refused {100 + number}":
                    wrong.append(error)

    threads = [Thread(target=calls, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_arguments_that_share_nothing_are_named() -> None:
    class Gone:
        def __dlpack_device__(self) -> tuple[int, int]:
            raise RuntimeError("the tensor is gone")

    artifact = compile_model(mlp(2), chosen_options(threads=1), NOWHERE).artifact
    with pytest.raises(InputError, match="input 'x': expected a NumPy array"):
        Session(artifact)(Gone())


@pytest.fixture(scope="module")
def compiled() -> Prepared:
    return prepared(mlp(2))


def gpu(compiled: Prepared, driver: FakeDriver, index: int = 0) -> Session:
    cuda_device = pytest.importorskip("modelcc.runtime.streams.cuda_device")
    device = cuda_device.CudaDevice(driver, index)
    return Session(compiled[0], 1, DeviceCode(compiled[0], device))


@pytest.mark.parametrize("when", ["first", "recorded"])
def test_a_gpu_that_is_lost_takes_no_other_along(compiled: Prepared, when: str) -> None:
    driver = FakeDriver(compiled[1], devices=2)
    here, there, same = (gpu(compiled, driver, index) for index in (0, 1, 1))
    assert computes(here) and (when == "first" or computes(there))
    driver.lost.add(1)
    x = normal()
    for net in (there, same):
        for _ in range(2):
            with pytest.raises(RunError, match=r"CUDA_ERROR_LAUNCH_FAILED"):
                net(x)
    np.testing.assert_array_equal(x, normal())
    assert computes(here)
    del there, same
    gc.collect()
    assert computes(here) and computes(gpu(compiled, driver))


@pytest.mark.parametrize(
    ("function", "status", "sound"),
    [("cuLaunchKernel", 701, 1), ("cuGraphInstantiate", 2, 0), ("cuGraphLaunch", 2, 0)],
)
def test_a_call_that_a_gpu_does_not_take_is_not_its_end(
    compiled: Prepared, function: str, status: int, sound: int
) -> None:
    driver = FakeDriver(compiled[1])
    net, other = (gpu(compiled, driver) for _ in range(2))
    assert computes(other)
    driver.failing[function], driver.sound[function] = status, sound
    with pytest.raises(RunError, match=r"did not take this call .*, and goes on"):
        net(normal())
    driver.failing.clear()
    assert computes(net) and computes(other)


def test_what_no_recording_takes_is_done_step_by_step(compiled: Prepared) -> None:
    driver = FakeDriver(compiled[1])
    net = gpu(compiled, driver)
    driver.failing["cuStreamEndCapture"] = 901
    assert computes(net) and computes(net)
    assert "cuGraphLaunch" not in driver.calls


def test_a_kind_of_device_that_nothing_runs_is_told() -> None:
    with pytest.raises(LoadError, match=r"'vulkan', and nothing .* runs it: modelcc itself"):
        open_device("vulkan", 0)
