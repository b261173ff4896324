"""NVIDIA's GPUs as devices, on what stands for their driver."""

from __future__ import annotations

import ctypes
import gc
import inspect
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_driver import NAMES, FakeDriver, Kernel

from modelcc.ir.types import Array
from modelcc.runtime.devices.device import (
    LateCopy,
    OutOfDeviceMemoryError,
    RecordingError,
    TookTooLongError,
)
from modelcc.runtime.errors import LoadError, RunError
from modelcc.runtime.streams import (
    cuda_calls,
    cuda_driver,
    tensor_maps,
)
from modelcc.runtime.streams.cuda_calls import cuda_of_ptx
from modelcc.runtime.streams.cuda_code import machine_code, ptx_behind, with_ptx
from modelcc.targets.cuda.chips import find_chip

cuda_device = pytest.importorskip("modelcc.runtime.streams.cuda_device")
capabilities = pytest.importorskip("modelcc.runtime.streams.cuda_capability")


def add(grid: tuple[int, ...], threads: tuple[int, ...], *given: int) -> None:
    """``y = x + n`` by a group for each element."""
    assert threads == (32, 1, 1)
    x, y, n = given
    count = grid[0]
    source, target = ((ctypes.c_float * count).from_address(place) for place in (x, y))
    for i in range(count):
        target[i] = source[i] + n


PTX = b"//\n.version 8.6\n.target sm_80\n"
ADD: dict[str, tuple[Kernel, int, int]] = {"add": (add, 2, 1)}


def host(array: Array) -> tuple[int, int]:
    return array.ctypes.data, array.nbytes


def test_a_kernel_runs_on_memory_at_offsets() -> None:
    driver = FakeDriver(ADD)
    device = cuda_device.CudaDevice(driver, 0)
    assert (device.name, device.memory) == ("Test GPU", 1 << 30)
    device.load(b"code", {"add": (32, 1, 1)})
    memory = device.allocate(1024)
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    device.upload(memory, 256, *host(x))
    device.launch("add", [(memory, 256), (memory, 512)], [-3], (8, 1, 1))
    device.download(memory, 512, *host(y))
    np.testing.assert_array_equal(y, x - 3)
    order = ["cuMemcpyHtoDAsync", "cuLaunchKernel", "cuMemcpyDtoHAsync", "cuStreamSynchronize"]
    assert driver.calls[-4:] == order


class LaunchingAhead(FakeDriver):
    """Its modules say that their kernels wait; ``refused`` is its answer to launches ahead."""

    CUlaunchAttribute = CUlaunchAttributeValue = CUlaunchConfig = SimpleNamespace
    CUlaunchAttributeID = SimpleNamespace(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION=6)
    version, refused = 12030, 0

    def cuDriverGetVersion(self) -> tuple[object, ...]:  # noqa: N802
        return 0, self.version

    def cuModuleGetGlobal(self, hmod: int, name: bytes) -> tuple[object, ...]:  # noqa: N802
        if name != b"kernels_wait":
            return super().cuModuleGetGlobal(hmod, name)
        held = np.ones(1, np.int32)
        self.numbers[held.ctypes.data] = held
        return 0, held.ctypes.data, held.nbytes

    def cuLaunchKernelEx(  # noqa: N802
        self,
        config: SimpleNamespace,
        f: str,
        arguments: int,
        extra: int,
    ) -> tuple[object, ...]:
        (attribute,) = config.attrs
        assert config.numAttrs == 1 and attribute.id == 6
        assert attribute.value.programmaticStreamSerializationAllowed == 1
        self.calls.append("cuLaunchKernelEx")
        if self.refused:
            return (self.refused,)
        grid = config.gridDimX, config.gridDimY, config.gridDimZ
        threads = config.blockDimX, config.blockDimY, config.blockDimZ
        given = config.sharedMemBytes, config.hStream, arguments, extra
        answer = super().cuLaunchKernel(f, *grid, *threads, *given)
        assert self.calls.pop() == "cuLaunchKernel"
        return answer


PLAIN, AHEAD = "cuLaunchKernel", "cuLaunchKernelEx"


@pytest.mark.parametrize(
    ("version", "refused", "overlap", "asked"),
    [
        (12030, 0, True, [PLAIN, AHEAD, PLAIN, AHEAD, PLAIN, PLAIN]),
        (12020, 0, True, [PLAIN] * 6),
        (12030, 801, True, [PLAIN, AHEAD, *[PLAIN] * 5]),
        (12030, 0, False, [PLAIN] * 6),
    ],
)
def test_kernels_are_launched_ahead(
    version: int, refused: int, overlap: bool, asked: list[str]
) -> None:
    """Behind kernels of a recording, but not behind copies or outside of it."""
    driver = LaunchingAhead(ADD)
    driver.version, driver.refused = version, refused
    device = cuda_device.CudaDevice(driver, 0)
    device.load(b"code", {"add": (32, 1, 1)})
    device.overlap = overlap
    memory, x = device.allocate(1024), np.arange(8, dtype=np.float32)
    device.upload(memory, 0, *host(x))

    def launch(source: int, target: int) -> None:
        device.launch("add", [(memory, source), (memory, target)], [1], (8, 1, 1))

    def work() -> None:
        launch(0, 256)
        launch(256, 512)
        device.copy(memory, 0, memory, 512, 32)
        launch(0, 256)
        launch(0, 256)

    before = len(driver.calls)
    graph = device.record(work)
    launch(0, 768)
    graph.run()
    launch(256, 768)
    y = np.zeros_like(x)
    device.download(memory, 768, *host(y))
    np.testing.assert_array_equal(y, x + 4)
    told = [call for call in driver.calls[before:] if call in (PLAIN, AHEAD)]
    assert told == asked


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
    device.synchronize()


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
    left, right = driver.taken
    assert left == (9, memory.address + 640, (72, 40), (144,), (64, 128))
    assert right == (6, memory.address + 512, (40, 64, 2), (16, 1024), (64, 64, 1))


def test_keys_of_which_there_are_none_have_a_map() -> None:
    """The driver makes none of nothing: it is one of an element of the queries."""
    text = b"""{"sizes":["n"],"maps":[[0,"f16","8",["4","64"],["64","1"],[64,64]],
      [1,"f16","0",["2","n","64"],["64*n","64","1"],[1,64,64]]]}"""
    driver = FakeDriver({"attention": (lambda *_: None, 2, 1)}, maps={"attention": text})
    device = cuda_device.CudaDevice(driver, 0)
    device.load(b"code", {"attention": (128, 1, 1)})
    memory = device.allocate(1024)
    device.launch("attention", [(memory, 0), (memory, 512)], [0], (1, 1, 1))
    queries, keys = driver.taken
    assert queries == (6, memory.address + 16, (64, 4), (128,), (64, 64))
    assert keys == (6, memory.address + 16, (1, 1, 1), (16, 16), (64, 64, 1))


@pytest.mark.parametrize(("size", "offset"), [(0, 0), (4, 0), (40, 8)])
def test_a_map_that_the_driver_does_not_make(size: int, offset: int) -> None:
    """No elements, rows or a place that are on no boundary of 16 bytes: an error, not a launch."""
    text = b'{"sizes":["n"],"maps":[[0,"f16","0",["64","n"],["n","1"],[64,64]]]}'
    driver = FakeDriver({"product": (lambda *_: None, 1, 1)}, maps={"product": text})
    device = cuda_device.CudaDevice(driver, 0)
    device.load(b"code", {"product": (128, 1, 1)})
    memory = device.allocate(8192)
    with pytest.raises(RunError, match="the driver makes no map of"):
        device.launch("product", [(memory, offset)], [size], (1, 1, 1))
    device.launch("product", [(memory, 16)], [40], (1, 1, 1))


def test_places_that_overlap_are_copied() -> None:
    device = cuda_device.CudaDevice(FakeDriver(ADD), 0)
    memory, x, y = device.allocate(512), np.arange(64, dtype=np.uint8), np.zeros(64, np.uint8)
    device.upload(memory, 0, *host(x))
    device.copy(memory, 16, memory, 0, 64)
    device.download(memory, 16, *host(y))
    np.testing.assert_array_equal(x, y)


def test_memory_that_is_not_there() -> None:
    device = cuda_device.CudaDevice(FakeDriver(ADD, memory=4096), 0)
    held = device.allocate(96)
    words = r"gives no 5,000 bytes: it has 4,096 in all, of which 4,000 are free"
    with pytest.raises(OutOfDeviceMemoryError, match=words):
        device.allocate(5000)
    del held
    assert device.allocate(4096).size == 4096, "the device goes on"


@pytest.mark.parametrize(
    ("function", "status", "message"),
    [
        ("cuInit", 100, "finds no GPU .CUDA_ERROR_NO_DEVICE.; install NVIDIA's driver"),
        (
            "cuModuleLoadData",
            222,
            "its PTX 8.6 needs the driver of CUDA 12.7, and this one is of CUDA 12.4: update",
        ),
        ("cuModuleLoadData", 209, "and this GPU is sm_86: compile with --target cuda:sm_86"),
        ("cuModuleLoadData", 218, "its PTX 8.6 needs the driver of CUDA 12.7"),
    ],
)
def test_what_cannot_be_loaded(function: str, status: int, message: str) -> None:
    driver = FakeDriver(ADD)
    driver.failing[function] = status
    with pytest.raises(LoadError, match=message):
        cuda_device.CudaDevice(driver, 0).load(PTX, {"add": (32, 1, 1)})


@pytest.mark.parametrize(
    ("capability", "message"),
    [
        ((8, 0), r"this GPU is sm_80: compile with --target cuda:sm_80$"),
        ((9, 0), r"this GPU is sm_90: compile with --target cuda:sm_90a$"),
        ((10, 3), r"this GPU is sm_103: compile with --target cuda:sm_90$"),
        ((7, 5), r"this GPU is sm_75, for which no code is made \(sm_80 is the oldest\)"),
    ],
)
@pytest.mark.parametrize("status", [209, 218])
def test_code_of_another_architecture(
    capability: tuple[int, int], message: str, status: int
) -> None:
    """Drivers say of PTX for a newer one that it is invalid, whatever their own version is; what
    to compile is a target that there is."""
    driver = FakeDriver(ADD)
    driver.failing["cuModuleLoadData"], driver.capability = status, capability
    with pytest.raises(LoadError, match=message) as caught:
        code = PTX.replace(b".version 8.6", b".version 8.4")
        cuda_device.CudaDevice(driver, 0).load(code, {"add": (32, 1, 1)})
    target = re.search(r"--target (\S+)", str(caught.value))
    assert target is None or find_chip(target[1].removeprefix("cuda:"))


def test_a_kernel_whose_groups_share_more_than_there_is() -> None:
    """As one for an A100 on a desktop's GPU, whose machine code it takes."""
    driver = FakeDriver(ADD, shared={"add": 138_240})
    driver.most_shared = 99 << 10
    message = r"its kernel add share 138,240 bytes, and have 101,376 here; .* --target cuda:sm_86"
    with pytest.raises(LoadError, match=message):
        cuda_device.CudaDevice(driver, 0).load(PTX, {"add": (32, 1, 1)})


class OfAnotherRelease(FakeDriver):
    """It takes no machine code; of PTX what ``ptx`` says."""

    ptx = 0

    def cuModuleLoadData(self, image: bytes) -> tuple[object, ...]:  # noqa: N802
        status, handle = super().cuModuleLoadData(image)
        return (209 if image.startswith(b"\x7fELF") else self.ptx or status), handle


def test_a_driver_that_takes_no_machine_code_compiles_the_ptx_behind() -> None:
    driver, code = OfAnotherRelease(ADD), with_ptx(b"\x7fELF code", PTX.decode())
    assert (machine_code(code), ptx_behind(code)) == (b"\x7fELF code", PTX)
    assert (machine_code(PTX), ptx_behind(PTX)) == (PTX, b"")
    device = cuda_device.CudaDevice(driver, 0)
    device.load(code, {"add": (32, 1, 1)})
    assert list(driver.modules.values()) == [b"\x7fELF code\0", PTX + b"\0"]
    whole = FakeDriver(ADD)
    device = cuda_device.CudaDevice(whole, 0)
    device.load(code, {"add": (32, 1, 1)})
    assert list(whole.modules.values()) == [b"\x7fELF code\0"]


@pytest.mark.parametrize(
    ("status", "message"),
    [(222, "its PTX 8.6 needs the driver of CUDA 12.7"), (209, "compile with --target cuda:sm_86")],
)
def test_a_driver_that_takes_neither(status: int, message: str) -> None:
    driver = OfAnotherRelease(ADD)
    driver.ptx = status
    code = with_ptx(b"\x7fELF code", PTX.decode())
    with pytest.raises(LoadError, match=message):
        cuda_device.CudaDevice(driver, 0).load(code, {"add": (32, 1, 1)})


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
    driver.failing.clear()
    with pytest.raises(RunError, match=r"has failed before .CUDA_ERROR_ILLEGAL_ADDRESS"):
        device.upload(memory, 0, 0, 4)


def test_large_tensors_go_through_pinned_memory_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelcc.runtime.streams.stream_staging.MOST", 1 << 17)
    driver = FakeDriver(ADD)
    device = cuda_device.CudaDevice(driver, 0)
    x = np.random.default_rng(3).integers(0, 256, (1 << 18) + 40, np.uint8)
    y, memory = np.zeros_like(x), device.allocate(x.nbytes)
    for _ in range(2):
        device.upload(memory, 0, *host(x))
        device.download(memory, 0, *host(y))
        np.testing.assert_array_equal(x, y)
    assert driver.calls.count("cuMemcpyHtoDAsync") == 6


def test_the_host_may_write_again_before_the_device_has_read() -> None:
    device = cuda_device.CudaDevice(FakeDriver(ADD), 0)
    x, y, memory = np.arange(64, dtype=np.uint8), np.zeros(64, np.uint8), device.allocate(64)
    device.upload(memory, 0, *host(x))
    x[:] = 0
    device.download(memory, 0, *host(y))
    np.testing.assert_array_equal(y, np.arange(64))


def test_what_nobody_waits_for_has_a_place_of_its_own() -> None:
    """Until it is taken, which is when it has come."""
    driver = FakeDriver(ADD)
    device = cuda_device.CudaDevice(driver, 0)
    memory, x = device.allocate(8192), np.arange(8, dtype=np.uint8)
    device.upload(memory, 0, *host(x))
    driver.calls.clear()
    late: list[LateCopy] = []
    for n in range(3):
        device.upload(memory, 0, *host(x + np.uint8(n)))
        late.append(device.download_late(memory, 0, 8))
    assert not any(copy.has_come() for copy in late)
    assert "cuStreamSynchronize" not in driver.calls
    other = driver.cuStreamCreate(1)[1]
    assert isinstance(other, int)
    late[1].precede(other)
    driver.cuStreamSynchronize(other)
    assert [copy.has_come() for copy in late] == [True, True, False]
    assert [copy.take()[0] for copy in late[:2]] == [0, 1]
    pinned = len(driver.pinned)
    late += [device.download_late(memory, 0, 8), device.download_late(memory, 0, 4096)]
    assert len(driver.pinned) == pinned
    late.append(device.download_late(memory, 0, 8192))
    device.synchronize()
    assert all(copy.has_come() for copy in late[2:])
    assert [copy.take()[:8] for copy in late[2:]] == [bytes(range(2, 10))] * 4
    del late, device, memory
    gc.collect()
    assert not driver.events and len(driver.pinned) == 0


def test_recorded_work_is_done_when_it_is_run() -> None:
    driver = FakeDriver(ADD)
    device = cuda_device.CudaDevice(driver, 0)
    device.load(b"code", {"add": (32, 1, 1)})
    memory, y = device.allocate(1024), np.zeros(8, np.float32)
    x = np.arange(8, dtype=np.float32)
    device.upload(memory, 0, *host(x))
    dropped = [device.allocate(512)]

    def work() -> None:
        device.launch("add", [(memory, 0), (memory, 512)], [1], (8, 1, 1))
        device.copy(memory, 0, memory, 512, 32)
        dropped.clear()  # given back when the recording has ended

    graph = device.record(work)
    assert len(driver.given) == 1
    for times in range(3):
        device.download(memory, 0, *host(y))
        np.testing.assert_array_equal(y, x + times)
        graph.run()
    assert driver.calls.count("cuLaunchKernel") == 1
    del graph
    assert driver.executables == driver.graphs == {}


@pytest.mark.parametrize("asked", ["allocate", "upload", "download", "synchronize"])
def test_what_waits_or_allocates_is_not_recorded(asked: str) -> None:
    driver = FakeDriver(ADD)
    device = cuda_device.CudaDevice(driver, 0)
    memory, y = device.allocate(1024), np.zeros(8, np.float32)
    given = {"allocate": (8,), "synchronize": ()}.get(asked, (memory, 0, *host(y)))
    with pytest.raises(RecordingError):
        device.record(lambda: getattr(device, asked)(*given))
    assert driver.graphs == {}
    device.upload(memory, 0, *host(y))
    device.synchronize()


def test_a_kernel_that_runs_too_long_is_left() -> None:
    driver = FakeDriver(ADD)
    device = cuda_device.CudaDevice(driver, 0)
    other = cuda_device.CudaDevice(driver, 0)
    device.load(b"code", {"add": (32, 1, 1)})
    memory = device.allocate(512)
    device.timeout = 0.01
    device.synchronize()
    driver.stuck = True
    device.launch("add", [(memory, 0), (memory, 256)], [1], (1, 1, 1))
    with pytest.raises(TookTooLongError, match=r"Test GPU has not finished within 0.01 s"):
        device.synchronize()
    with pytest.raises(RunError, match=r"has failed before .still at work after 0.01 s"):
        device.launch("add", [(memory, 0), (memory, 256)], [1], (1, 1, 1))
    driver.stuck = False
    other.allocate(8)
    other.synchronize()


def test_gpus_have_numbers() -> None:
    driver = FakeDriver(ADD, devices=2)
    first, second = (cuda_device.CudaDevice(driver, n) for n in range(2))
    x, y = np.arange(8, dtype=np.uint8), np.zeros(8, np.uint8)
    memories = first.allocate(8), second.allocate(8)
    for device, memory in zip((first, second), memories, strict=True):
        device.upload(memory, 0, *host(x))
        device.download(memory, 0, *host(y))
        np.testing.assert_array_equal(x, y)
    with pytest.raises(AssertionError, match="memory of another GPU"):
        second.upload(memories[0], 0, *host(x))


def test_what_a_gpu_is_capable_of() -> None:
    """None of a machine or a number without one, as where there is no driver."""
    assert capabilities.capability(FakeDriver({}, devices=2), 1) == (8, 6)
    assert capabilities.capability(FakeDriver({}), 1) is None
    lacking = FakeDriver({})
    lacking.failing["cuInit"] = 100
    assert capabilities.capability(lacking, 0) is None
    assert capabilities.capability_here(1 << 20) is None


def test_only_work_is_timed() -> None:
    driver = FakeDriver(ADD)
    device = cuda_device.CudaDevice(driver, 0)
    device.load(b"code", {"add": (32, 1, 1)})
    memory = device.allocate(512)
    device.keep_times(True)
    for _ in range(3):
        device.launch("add", [(memory, 0), (memory, 256)], [1], (1, 1, 1))
    device.synchronize()
    assert device.seconds() == 3.0, "a second each by the stand-in's clock"
    device.keep_times(False)
    assert driver.events == {} and len(driver.given) == 1


@pytest.mark.parametrize(
    ("ptx", "cuda"),
    [((7, 8), (11, 8)), ((8, 0), (12, 0)), ((8, 5), (12, 5)), ((8, 6), (12, 7)),
     ((8, 8), (12, 9)), ((9, 0), (13, 0))],
)  # fmt: skip
def test_versions_of_ptx(ptx: tuple[int, int], cuda: tuple[int, int]) -> None:
    assert cuda_of_ptx(*ptx) == cuda


def names(kind: type) -> dict[str, object]:
    return {n: getattr(kind, n) for n in dir(kind) if n.startswith("CU")}


def test_the_real_package_has_all_that_is_called() -> None:
    """Functions with the parameters that the stand-in's have, and numbers with its values."""
    driver = pytest.importorskip("cuda.bindings.driver")
    own = [name for name in dir(FakeDriver) if re.fullmatch(r"cu[A-Z]\w+", name)]
    for name in own:
        wanted = list(inspect.signature(getattr(FakeDriver, name)).parameters)[1:]
        assert list(inspect.signature(getattr(driver, name)).parameters) == wanted, name
    for kind, values in names(FakeDriver).items():
        for name, value in vars(values).items():
            assert int(getattr(getattr(driver, kind), name)) == value
    assert int(driver.cuuint64_t(7)) == 7
    for status, name in NAMES.items():
        assert int(getattr(driver.CUresult, f"CUDA_ERROR_{name}")) == status


def test_the_stand_in_has_all_that_is_called() -> None:
    """So that what is called is what the package is compared in."""
    modules = cuda_device, cuda_calls, cuda_driver, tensor_maps
    texts = [Path(m.__file__ or "").read_text() for m in modules]
    called = set(re.findall(r"api\.(cu\w+)", "".join(texts)))
    assert len(called) > 30
    assert [name for name in sorted(called) if not hasattr(FakeDriver, name)] == []
