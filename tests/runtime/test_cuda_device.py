"""NVIDIA's GPUs as devices, on what stands for their driver."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from cuda_driver import FakeDriver, Kernel

from modelcc.ir.types import Array
from modelcc.runtime.device import OutOfDeviceMemoryError
from modelcc.runtime.errors import LoadError, RunError

cuda_device = pytest.importorskip("modelcc.runtime.cuda_device")


def add(grid: tuple[int, ...], threads: tuple[int, ...], *given: int) -> None:
    """``y = x + n`` by a group for each element."""
    assert threads == (32, 1, 1)
    x, y, n = given
    count = grid[0]
    source, target = ((ctypes.c_float * count).from_address(place) for place in (x, y))
    for i in range(count):
        target[i] = source[i] + n


ADD: dict[str, tuple[Kernel, int, int]] = {"add": (add, 2, 1)}


def host(array: Array) -> tuple[int, int]:
    return array.ctypes.data, array.nbytes


def test_a_kernel_runs_on_memory_at_offsets() -> None:
    driver = FakeDriver(ADD)
    device = cuda_device.CudaDevice(driver, 0)
    assert (device.name, device.memory) == ("Test GPU", 1 << 20)
    device.load(b"code", {"add": (32, 1, 1)})
    memory = device.allocate(1024)
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    device.upload(memory, 256, *host(x))
    device.launch("add", [(memory, 256), (memory, 512)], [-3], (8, 1, 1))
    device.download(memory, 512, *host(y))
    np.testing.assert_array_equal(y, x - 3)
    order = ["cuMemcpyHtoDAsync", "cuLaunchKernel", "cuMemcpyDtoHAsync", "cuStreamSynchronize"]
    assert driver.calls[-4:] == order


def test_memory_is_given_back() -> None:
    driver = FakeDriver(ADD)
    device = cuda_device.CudaDevice(driver, 0)
    memory = device.allocate(512)
    assert len(driver.given) == 1
    del memory
    assert driver.given == {}


def test_much_shared_memory_is_asked_for() -> None:
    """The launch itself checks what it gets."""
    driver = FakeDriver(ADD, shared={"add": 100_000})
    device = cuda_device.CudaDevice(driver, 0)
    device.load(b"code", {"add": (32, 1, 1)})
    assert driver.allowed == {"add": 100_000}
    memory = device.allocate(512)
    device.launch("add", [(memory, 0), (memory, 256)], [1], (1, 1, 1))


def test_kernels_take_maps_of_tensors_where_these_are() -> None:
    """They are made once for the same places and sizes."""
    text = b"""{"sizes":["n"],"maps":[[0,"bf16","8*n",["n","72"],["72","1"],[128,64]],
      [1,"f16","0",["2","64","n"],["512","8","1"],[1,64,64]]]}"""

    def product(grid: tuple[int, ...], threads: tuple[int, ...], *given: int) -> None:
        assert given[2] == 40

    driver = FakeDriver({"product": (product, 2, 1)}, maps={"product": text})
    device = cuda_device.CudaDevice(driver, 0)
    device.load(b"code", {"product": (128, 2, 1)})
    memory = device.allocate(1024)
    for offset in (256, 256, 512):
        device.launch("product", [(memory, 0), (memory, offset)], [40], (1, 1, 1))
    assert driver.calls.count("cuTensorMapEncodeTiled") == 4
    left, right = (each.told for each in driver.taken)
    assert left == (9, memory.address + 640, (72, 40), (144,), (64, 128))
    assert right == (6, memory.address + 512, (40, 64, 2), (16, 1024), (64, 64, 1))


def test_places_that_overlap_are_copied() -> None:
    device = cuda_device.CudaDevice(FakeDriver(ADD), 0)
    memory, x, y = device.allocate(512), np.arange(64, dtype=np.uint8), np.zeros(64, np.uint8)
    device.upload(memory, 0, *host(x))
    device.copy(memory, 16, memory, 0, 64)
    device.download(memory, 16, *host(y))
    np.testing.assert_array_equal(x, y)


def test_memory_that_is_not_there() -> None:
    device = cuda_device.CudaDevice(FakeDriver(ADD, memory=4096), 0)
    with pytest.raises(OutOfDeviceMemoryError, match=r"gives no 5,000 bytes: it has 4,096"):
        device.allocate(5000)


@pytest.mark.parametrize(
    ("function", "status", "message"),
    [
        ("cuInit", 100, "finds no GPU .CUDA_ERROR_NO_DEVICE.; install NVIDIA's driver"),
        ("cuModuleLoadData", 222, "its driver is too old for this PTX: update it"),
    ],
)
def test_what_cannot_be_loaded(function: str, status: int, message: str) -> None:
    driver = FakeDriver(ADD)
    driver.failing[function] = status
    with pytest.raises(LoadError, match=message):
        cuda_device.CudaDevice(driver, 0).load(b"code", {"add": (32, 1, 1)})


def test_a_machine_without_a_driver() -> None:
    class Missing(FakeDriver):
        def cuInit(self, flags: int) -> tuple[object, ...]:  # noqa: N802
            raise RuntimeError("libcuda.so.1 is not there")

    with pytest.raises(LoadError, match=r"no driver for NVIDIA's GPUs .libcuda"):
        cuda_device.CudaDevice(Missing(ADD), 0)


def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(LoadError, match="there is no GPU 1: this machine has 1, the first is 0"):
        cuda_device.CudaDevice(FakeDriver(ADD), 1)


@pytest.mark.parametrize("function", ["cuStreamSynchronize", "cuLaunchKernel"])
def test_a_gpu_that_is_lost(function: str) -> None:
    driver = FakeDriver(ADD)
    device = cuda_device.CudaDevice(driver, 0)
    device.load(b"code", {"add": (32, 1, 1)})
    memory = device.allocate(512)
    driver.failing[function] = 700
    with pytest.raises(RunError, match=r"did not do its work .CUDA_ERROR_ILLEGAL_ADDRESS"):
        device.launch("add", [(memory, 0), (memory, 256)], [1], (1, 1, 1))
        device.synchronize()
