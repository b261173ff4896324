"""Inputs and results in a GPU's memory, on what stands for its driver."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import pytest
from cuda_driver import FakeDriver
from onnx import helper
from small_models import mlp, mlp_result, model

import modelcc
from modelcc.ir.types import Array
from modelcc.runtime.devices.device_arrays import DeviceArray
from modelcc.runtime.devices.device_program import DeviceCode
from modelcc.runtime.dlpack import CUDA, make_capsule, read_capsule
from modelcc.runtime.errors import InputError
from modelcc.runtime.session import Session
from tests.targets.cuda.test_program import Prepared, on_driver, prepared
from tests.test_states import decoder

CudaDevice = pytest.importorskip("modelcc.runtime.streams.cuda_device").CudaDevice


def number(result: tuple[object, ...]) -> int:
    """What a function of the driver's gives."""
    assert result[0] == 0 and isinstance(result[1], int)
    return result[1]


class Tensor:
    """Another library's tensor, whose values its own stream has yet to write: a pointer into the
    memory of the GPU, ``shift`` bytes behind where it was given some."""

    def __init__(self, driver: FakeDriver, values: Array, shift: int = 0, gpu: int = 0) -> None:
        self.driver = driver
        self.values = np.ascontiguousarray(values)
        self.stream = number(driver.cuStreamCreate(1))
        place = number(driver.cuMemAllocAsync(values.nbytes + shift, self.stream))
        self.address = place + shift
        self.gpu = gpu
        self.write(values)

    def write(self, values: Array) -> None:
        """In its stream."""
        held = np.ascontiguousarray(values)

        def work() -> None:
            ctypes.memmove(self.address, held.ctypes.data, held.nbytes)

        self.driver.streams[self.stream].ask(work)


class ByDlpack(Tensor):
    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.gpu

    def __dlpack__(self, stream: int) -> Any:
        """As PyTorch does: the consumer's stream waits."""
        event = number(self.driver.cuEventCreate(2))
        self.driver.cuEventRecord(event, self.stream)
        self.driver.cuStreamWaitEvent(stream, event, 0)
        self.driver.cuEventDestroy(event)
        shape, dtype = self.values.shape, self.values.dtype
        return make_capsule(self.address, (CUDA, self.gpu), dtype, shape, self)


class ByInterface(Tensor):
    more: Mapping[str, Any] = MappingProxyType({})

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        found: dict[str, Any]
        found = {"shape": self.values.shape, "typestr": self.values.dtype.str,
                 "data": (self.address, True), "version": 3}  # fmt: skip
        return {**found, "stream": self.stream, **self.more}


def normal(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((2, 6)).astype(np.float32)


@pytest.fixture(scope="module")
def compiled() -> Prepared:
    return prepared(mlp(2))


def moves(driver: FakeDriver) -> tuple[int, int, int]:
    names = ("cuMemcpyHtoDAsync", "cuMemcpyDtoDAsync", "cuMemcpyDtoHAsync")
    first, second, third = (driver.calls.count(name) for name in names)
    return first, second, third


@pytest.mark.parametrize("kind", [ByDlpack, ByInterface])
def test_a_tensor_on_the_gpu_is_used_in_place(compiled: Prepared, kind: type[Tensor]) -> None:
    """Recorded where it is there again."""
    net, driver = on_driver(compiled)
    net(normal(0))
    weights = moves(driver)[0] - 1
    x = kind(driver, normal(1))
    for seed in (1, 2, 3):
        x.write(normal(seed))
        np.testing.assert_allclose(net(x), mlp_result(normal(seed)), rtol=1e-4, atol=1e-5)
    assert moves(driver) == (weights + 1, 0, 4)
    assert driver.calls.count("cuStreamBeginCapture") == 2
    shifted = kind(driver, normal(4), shift=16)
    for _ in range(2):
        np.testing.assert_allclose(net(shifted), mlp_result(normal(4)), rtol=1e-4, atol=1e-5)
    assert moves(driver) == (weights + 1, 2, 6), "kernels want it to begin at 256 bytes"


def test_results_stay_on_the_gpu(compiled: Prepared) -> None:
    """For others and for calls to come; their memory goes when nobody uses it any more."""
    net, driver = on_driver(compiled)
    x = ByDlpack(driver, normal(1))
    y = net(x, out="device")
    assert isinstance(y, DeviceArray) and repr(y) == "<DeviceArray float32 [2, 3] on Test GPU>"
    assert moves(driver)[2] == 0
    np.testing.assert_allclose(y.numpy(), mlp_result(normal(1)), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(np.asarray(y), y.numpy())
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":  # names devices from then on
        np.testing.assert_array_equal(np.from_dlpack(cast(Any, y), device="cpu"), y.numpy())
    held = y.__dlpack__(stream=1)
    tensor, interface = read_capsule(held), y.__cuda_array_interface__
    assert (tensor.device, tensor.shape, tensor.kind) == ((CUDA, 0), (2, 3), (2, 32, 1))
    assert interface["data"] == (tensor.address, False) and interface["typestr"] == "<f4"
    found = (ctypes.c_float * 6).from_address(tensor.address)
    np.testing.assert_array_equal(np.reshape(found, (2, 3)), y.numpy())
    driver.legacy.ask(lambda: driver._on_device(tensor.address, 24))  # pyright: ignore[reportPrivateUsage]
    count = len(driver.given)
    del y
    gc.collect()
    assert len(driver.given) == count, "the capsule keeps it"
    del held
    gc.collect()
    assert driver.legacy.waiting and len(driver.given) == count, "kept for the next result"
    z = net(x, out="device")
    assert not driver.legacy.waiting, "and so does the stream that uses it"
    np.testing.assert_array_equal(z.numpy(), np.asarray(net(x)))


def test_a_decoder_keeps_all_there() -> None:
    """States, what changes them, and what comes of it."""
    net, driver = on_driver(prepared(decoder(8)))
    last: Any = None
    for place in range(3):
        row = ByInterface(driver, np.full((1, 1, 16), place + 1, np.float32))
        last = net.run({"row": row, "place": np.array([place])}, "device")["sums"]
    assert moves(driver)[2] == 3, "what indices failed"
    np.testing.assert_array_equal(np.asarray(last)[0, :4, 0], [16, 32, 48, 0])
    assert net.states.now["cache"].sum() == 16 * 6


def test_what_the_host_computes_is_brought() -> None:
    """Of tensors that both sides use, the device's part stays there."""
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Det", ["x"], ["d"])]
    matrix = model(nodes, {"x": (3, 3)}, {"y": (3, 3), "d": ()}, {})
    net, driver = on_driver(prepared(matrix))
    values = np.array([[2, -1, 0], [0, 3, 1], [0, 0, 4]], np.float32)
    x = ByDlpack(driver, values)
    for out in (None, "device"):
        found = net.run({"x": x}, out)
        np.testing.assert_array_equal(np.asarray(found["y"]), np.maximum(values, 0))
        np.testing.assert_allclose(np.asarray(found["d"]), 24)
    assert isinstance(found["d"], DeviceArray)


def test_a_tensor_of_another_gpu(compiled: Prepared) -> None:
    net, driver = on_driver(compiled, devices=2)
    CudaDevice(driver, 1).synchronize()
    x = ByInterface(driver, normal(1))
    x.more = {"stream": None}
    with pytest.raises(InputError, match="memory of GPU 0, got GPU 1's; move it there, or load"):
        net(x)


def test_what_does_not_fit_is_named(compiled: Prepared) -> None:
    net, driver = on_driver(compiled)
    x = ByDlpack(driver, normal(1))
    with pytest.raises(InputError, match=r"input 'x': expected float32 elements"):
        net(ByDlpack(driver, normal(1).astype(np.float64)))
    with pytest.raises(InputError, match=r"input 'x' axis 0: expected 2"):
        net(ByDlpack(driver, normal(1)[:1]))
    plain = Session(compiled[0], 1, DeviceCode(compiled[0], CudaDevice(driver, 0)))
    with pytest.raises(InputError, match=r"leave it out, or give out='device'"):
        plain(x, out=np.zeros((2, 3), np.float32))
    x.address = x.values.ctypes.data
    with pytest.raises(InputError, match=r"input 'x': .* memory of Test GPU, got an address of"):
        net(x)
    host = modelcc.compile(mlp(2), cache=None)
    for call in (lambda: host(x), lambda: host(normal(1), out="device")):
        with pytest.raises(InputError, match=r"compile the model with target='cuda'"):
            call()


def test_strides_of_the_array_interface(compiled: Prepared) -> None:
    net, driver = on_driver(compiled)
    x = ByInterface(driver, normal(1))
    x.more = {"strides": (24, 4), "stream": None, "mask": None}
    driver.cuStreamSynchronize(x.stream)
    np.testing.assert_allclose(net(x), mlp_result(normal(1)), rtol=1e-4, atol=1e-5)
    for more, words in (({"strides": (4, 8)}, "a contiguous tensor"), ({"mask": x}, "a mask")):
        x.more = more
        with pytest.raises(InputError, match=f"input 'x': .*{words}"):
            net(x)
