"""AMD's GPUs as devices, on what stands for their library."""

from __future__ import annotations

import ctypes
import gc
import re
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from cuda_driver import Kernel
from hip_stand_in import FakeHip, code_object

from modelcc.ir.types import Array
from modelcc.runtime.devices.device import OutOfDeviceMemoryError, RecordingError, TookTooLongError
from modelcc.runtime.errors import InputError, LoadError, RunError
from modelcc.runtime.streams import hip_driver, hip_library
from modelcc.runtime.streams.hip_device import HipDevice
from modelcc.runtime.streams.hip_library import PROPERTIES, PROTOTYPES, declare


def add(grid: tuple[int, ...], threads: tuple[int, ...], *given: int) -> None:
    """``y = x + n`` by a group for each element."""
    assert threads == (64, 1, 1)
    x, y, n = given
    source, target = ((ctypes.c_float * grid[0]).from_address(place) for place in (x, y))
    for i in range(grid[0]):
        target[i] = source[i] + n


ADD: dict[str, tuple[Kernel, int, int]] = {"add": (add, 2, 1)}
CODE = code_object("gfx942")


def gpu(hip: FakeHip, index: int = 0) -> HipDevice:
    return HipDevice(declare(hip), index)


def loaded(hip: FakeHip) -> HipDevice:
    device = gpu(hip)
    device.load(CODE, {"add": (64, 1, 1)})
    return device


def host(array: Array) -> tuple[int, int]:
    return array.ctypes.data, array.nbytes


def test_a_kernel_runs_on_memory_at_offsets() -> None:
    hip = FakeHip(ADD)
    device = loaded(hip)
    assert (device.name, device.memory) == ("Test GPU", 1 << 30)
    memory = device.allocate(1024)
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    device.upload(memory, 256, *host(x))
    device.launch("add", [(memory, 256), (memory, 512)], [-3], (8, 1, 1))
    device.download(memory, 512, *host(y))
    np.testing.assert_array_equal(y, x - 3)
    device.copy(memory, 520, memory, 512, 24)
    device.clear(memory, 512, 8)
    device.download(memory, 512, *host(y))
    np.testing.assert_array_equal(y, [0, 0, *range(-3, 3)])
    del memory, device
    gc.collect()
    engine = hip.engine
    assert not (engine.given or engine.pinned or engine.streams or engine.modules or engine.events)


def test_recorded_work_is_done_when_it_is_run() -> None:
    hip = FakeHip(ADD)
    device = loaded(hip)
    memory, y = device.allocate(1024), np.zeros(8, np.float32)
    x = np.arange(8, dtype=np.float32)
    device.upload(memory, 0, *host(x))

    def work() -> None:
        device.launch("add", [(memory, 0), (memory, 512)], [1], (8, 1, 1))
        device.copy(memory, 0, memory, 512, 32)

    graph = device.record(work)
    for times in range(3):
        device.download(memory, 0, *host(y))
        np.testing.assert_array_equal(y, x + times)
        graph.run()
    assert hip.engine.calls.count("cuLaunchKernel") == 1
    del graph
    assert hip.engine.executables == hip.engine.graphs == {}
    with pytest.raises(RecordingError):
        device.record(device.synchronize)


def test_times_are_the_gpus() -> None:
    hip = FakeHip(ADD)
    device = loaded(hip)
    memory = device.allocate(512)
    device.keep_times(True)
    for _ in range(3):
        device.launch("add", [(memory, 0), (memory, 256)], [1], (1, 1, 1))
    device.synchronize()
    assert device.seconds() == 3.0, "a second each by the stand-in's clock"
    device.keep_times(False)
    assert hip.engine.events == {}


def test_work_of_others_is_waited_for() -> None:
    """In their streams, of which the default one is 0."""
    hip = FakeHip(ADD)
    device, x = loaded(hip), np.arange(4, dtype=np.float32)
    memory = device.allocate(256)

    def write() -> None:
        ctypes.memmove(device.address(memory), *host(x))

    hip.engine.legacy.ask(write)
    device.wait_for(device.default_stream)
    late = device.download_late(memory, 0, x.nbytes)
    assert not late.has_come()
    device.precede(device.default_stream)
    device.synchronize()
    assert late.has_come() and late.take() == x.tobytes()
    device.share(memory, 0)
    assert device.users(memory) == {0}


def test_memory_of_others_has_to_be_the_gpus() -> None:
    hip = FakeHip(ADD, devices=2)
    first, second = gpu(hip), gpu(hip, 1)
    memory = second.allocate(256)
    assert second.foreign(second.address(memory) + 64, 64, "x").address % 256 == 64
    with pytest.raises(InputError, match=r"(?s)GPU 1's.*target='amdgpu:1'"):
        first.foreign(second.address(memory), 64, "x")
    with pytest.raises(InputError, match="an address of other memory"):
        first.foreign(host(np.zeros(4))[0], 32, "x")


# --- what fails


def test_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hip_library, "_FILES", ("libnone_such.so.6",))
    with pytest.raises(LoadError, match=r"no driver for AMD's GPUs \(libnone_such.*ROCm 6"):
        hip_library.open_hip()


def test_a_library_that_is_loaded_already_is_taken(tmp_path: Path) -> None:
    maps, own = tmp_path / "maps", "/opt/torch lib/libamdhip64.so"
    line = "7f00-7f01 r-xp 00000000 fe:00 12 "
    maps.write_text(f"{line}/lib/libamdhip64.so.6\n{line}/lib/libc.so.6\n7ffe-7fff r-xp 0 0:0 0\n")
    assert [*hip_library.loaded_libraries(maps)] == ["/lib/libamdhip64.so.6"]
    maps.write_text(f"{line}{own}\n" * 2)
    assert [*hip_library.loaded_libraries(maps)] == [own]
    assert [*hip_library.loaded_libraries(tmp_path / "none")] == []


def test_a_library_of_rocm_5() -> None:
    class Older(FakeHip):
        """Has the properties of before."""

        def __getattr__(self, name: str) -> object:
            if name == PROPERTIES:
                raise AttributeError(name)
            return super().__getattr__(name)

    with pytest.raises(LoadError, match="older than that of ROCm 6"):
        declare(Older({}))


def test_without_a_gpu() -> None:
    with pytest.raises(LoadError, match=r"finds no GPU of AMD's \(hipErrorNoDevice\)"):
        gpu(FakeHip({}, devices=0))
    with pytest.raises(LoadError, match="no GPU 2: HIP finds 2, the first is 0"):
        gpu(FakeHip({}, devices=2), 2)


def test_code_for_another_architecture() -> None:
    device = gpu(FakeHip(ADD, chip="gfx90a"))
    with pytest.raises(LoadError, match=r"this GPU is gfx90a: compile with --target amdgpu:gfx90a"):
        device.load(CODE, {"add": (64, 1, 1)})


def test_a_kernel_that_is_not_there() -> None:
    hip = FakeHip(ADD)
    hip.engine.failing["cuModuleGetFunction"] = 500
    with pytest.raises(LoadError, match=r"does not take the model \(hipErrorNotFound\)"):
        loaded(hip)


def test_too_little_memory() -> None:
    hip = FakeHip(ADD, memory=4096)
    device = gpu(hip)
    kept = device.allocate(1024)
    with pytest.raises(OutOfDeviceMemoryError, match=r"gives no 4,096 bytes.* 3,072 are free"):
        device.allocate(4096)
    assert hip.engine.trimmed and kept.size == 1024


def test_a_call_that_is_not_taken_harms_nobody() -> None:
    device = loaded(FakeHip(ADD))
    memory = device.allocate(512)
    ends = [(memory, 0), (memory, 256)]
    with pytest.raises(RunError, match=r"not take this call \(hipErrorInvalidConfiguration\)"):
        device.launch("add", ends, [1], (1 << 26, 1, 1))
    device.launch("add", ends, [1], (1, 1, 1))
    device.synchronize()


def test_a_gpu_that_fails_is_not_asked_again() -> None:
    hip = FakeHip(ADD)
    device = loaded(hip)
    hip.engine.failing["cuStreamSynchronize"] = 719
    with pytest.raises(RunError, match=r"did not do its work \(hipErrorLaunchFailure\)"):
        device.synchronize()
    with pytest.raises(RunError, match="has failed before"):
        device.allocate(4)


def test_a_kernel_that_does_not_end() -> None:
    hip = FakeHip(ADD)
    device = loaded(hip)
    memory = device.allocate(512)
    device.timeout, hip.engine.stuck = 0.01, True
    device.launch("add", [(memory, 0), (memory, 256)], [1], (1, 1, 1))
    with pytest.raises(TookTooLongError, match=r"not finished within 0\.01 s"):
        device.synchronize()


# --- prototypes


def test_all_that_is_called_is_declared() -> None:
    text = Path(hip_driver.__file__).read_text()
    called = set(re.findall(r"_hip\.(hip\w+)", text))
    assert called | {PROPERTIES} == PROTOTYPES.keys()


_KINDS = {"unsigned int": ctypes.c_uint, "int": ctypes.c_int, "size_t": ctypes.c_size_t,
          "unsigned char": ctypes.c_ubyte, "unsigned long long": ctypes.c_ulonglong}  # fmt: skip


def test_amds_package_declares_the_same() -> None:
    """``rocm-bindings-hip`` is made from ROCm's header."""
    bindings = pytest.importorskip("rocm.bindings.hip")
    text = resources.files("rocm.bindings").joinpath("cyhip.pxd").read_text()
    for name, own in PROTOTYPES.items():
        found = re.search(rf"cdef hipError_t {name.removesuffix('R0600')}\((.*?)\) except", text)
        assert found is not None, name
        given = [re.sub(r"\w+$", "", p).strip() for p in found[1].split(",")]
        for theirs, ours in zip(given, own, strict=True):
            if theirs in _KINDS:
                assert ours is _KINDS[theirs], name
            elif hasattr(bindings, theirs) and issubclass(getattr(bindings, theirs), int):
                assert ours is ctypes.c_int, name
            else:
                assert ctypes.sizeof(ours) == 8 and not issubclass(ours, ctypes.c_size_t), name
