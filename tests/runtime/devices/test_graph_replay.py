"""Calls of tensors whose library has DLPack's functions: what they ask of the driver, and in which
order they and others work."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np
import pytest
from small_models import mlp, mlp_result

from modelcc.ir.types import Array
from modelcc.runtime.devices.device_arrays import DeviceArray
from modelcc.runtime.devices.device_recordings import MOST_RECORDED
from modelcc.runtime.devices.dlpack_exchange import element_kind
from modelcc.runtime.devices.graph_replay import SeenPlaces, in_place
from modelcc.runtime.dlpack import CUDA, read_capsule
from modelcc.runtime.errors import RunError

pytest.importorskip("modelcc.runtime.streams.cuda_device")

from tests.runtime.devices.test_device_arrays import ByDlpack, normal
from tests.targets.cuda.test_program import Prepared, on_driver, prepared

_FUNCTION = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
_STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.c_void_p)
_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
CURRENT = [0]
"""The library's stream."""

WAITS = ["cuEventRecord", "cuStreamWaitEvent"]
QUIET = [*WAITS, "cuGraphLaunch", *WAITS]
"""All that a call asks of the driver: it waits for the caller, works, and the caller waits."""


@_FUNCTION
def tensor(value: Any, place: int) -> int:
    """Writes a ``DLTensor``, packed as DLPack's header says."""
    if value.refuses:
        return -1
    extents = (ctypes.c_int64 * value.values.ndim)(*value.values.shape)
    steps = (n // value.values.itemsize for n in value.values.strides)
    strides = (ctypes.c_int64 * value.values.ndim)(*steps)
    value.held = extents, strides
    fields = value.address, CUDA, value.gpu, len(extents), element_kind(value.values.dtype)
    rows = map(ctypes.addressof, value.held)
    found = struct.pack("=QiiiIQQQ", *fields, *rows, 0)
    ctypes.memmove(place, found, len(found))
    return 0


@_STREAM
def current(kind: int, index: int, place: int) -> int:
    assert (kind, index) == (CUDA, 0)
    ctypes.c_uint64.from_address(place).value = CURRENT[0]
    return 0


TABLE = struct.pack(
    "=IIQQQQQQ", 1, 3, 0, 0, 0, 0,
    *(ctypes.cast(function, ctypes.c_void_p).value or 0 for function in (tensor, current)),
)  # fmt: skip
HELD, NAME = ctypes.create_string_buffer(TABLE), b"dlpack_exchange_api"
"""What a capsule points to, its name included."""


class ByExchange(ByDlpack):
    """A tensor of a library that works in :data:`CURRENT`."""

    __dlpack_c_exchange_api__ = _capsule(ctypes.addressof(HELD), NAME, None)
    refuses = False

    def write(self, values: Array) -> None:
        CURRENT[0] = self.stream
        super().write(values)


@pytest.fixture(scope="module")
def compiled() -> Prepared:
    return prepared(mlp(2))


def is_right(y: DeviceArray, seed: int) -> bool:
    return np.allclose(y.numpy(), mlp_result(normal(seed)), rtol=1e-4, atol=1e-5)


def test_a_call_asks_five_things_of_the_driver(compiled: Prepared) -> None:
    net, driver = on_driver(compiled)
    x = ByExchange(driver, normal(1))
    kept: list[DeviceArray] = []
    for seed in range(8):
        x.write(normal(seed))
        driver.calls.clear()
        kept = [*kept[-1:], net(x, out="device")]
        if seed > 5:
            assert driver.calls == QUIET
        assert seed < 1 or is_right(kept[0], seed - 1), "it is not written over while it is held"
        assert is_right(kept[-1], seed)


def test_the_caller_may_write_again_at_once(compiled: Prepared) -> None:
    """In its stream, which waits for the call."""
    net, driver = on_driver(compiled)
    x = ByExchange(driver, normal(0))
    for _ in range(4):
        net(x, out="device")
    driver.calls.clear()
    x.write(normal(1))
    y = net(x, out="device")
    x.write(normal(2))
    assert driver.calls == QUIET and driver.streams[x.stream].waiting, "nobody has waited"
    driver.cuStreamSynchronize(x.stream)
    assert is_right(y, 1)


def test_who_takes_a_result_comes_after_it(compiled: Prepared) -> None:
    """Another stream waits for it, the caller's does already, and who has none finds it done."""
    net, driver = on_driver(compiled)
    x = ByExchange(driver, normal(1))
    y: Any = None
    for _ in range(4):
        y = net(x, out="device")
    other = ByDlpack(driver, normal(1)).stream
    for stream, asked in ((x.stream, []), (other, WAITS), (-1, ["cuStreamSynchronize"])):
        y = net(x, out="device")
        found = (ctypes.c_float * 6).from_address(y.address_on(y._device, y.dtype))
        found[:] = [0] * 6
        driver.calls.clear()
        capsule = y.__dlpack__(stream=stream)
        assert driver.calls == asked
        if stream > 0:
            driver.cuStreamSynchronize(stream)
        assert read_capsule(capsule).address == ctypes.addressof(found)
        np.testing.assert_allclose(np.ravel(mlp_result(normal(1))), [*found], rtol=1e-4, atol=1e-5)
        del capsule


def test_results_that_others_still_use_are_not_written_to(compiled: Prepared) -> None:
    """Their memory is used again once their streams are waited for."""
    net, driver = on_driver(compiled)
    x = ByExchange(driver, normal(1))
    y: Any = None
    for _ in range(4):
        y = net(x, out="device")
    other = ByDlpack(driver, normal(1)).stream
    address = y.address_on(y._device, y.dtype)
    y.__dlpack__(stream=other)
    seen: list[Array] = []
    driver.streams[other].ask(
        lambda: seen.append(np.array((ctypes.c_float * 6).from_address(address)))
    )
    del y
    x.write(normal(2))
    assert is_right(net(x, out="device"), 2)
    driver.cuStreamSynchronize(other)
    np.testing.assert_allclose(seen[0].reshape(2, 3), mlp_result(normal(1)), rtol=1e-4, atol=1e-5)


def test_inputs_that_are_elsewhere_each_time_are_copied(compiled: Prepared) -> None:
    """Not recorded anew: all else is where it was."""
    net, driver = on_driver(compiled)
    held = [ByExchange(driver, normal(seed)) for seed in range(14)]
    for seed, x in enumerate(held):
        CURRENT[0] = x.stream
        driver.calls.clear()
        y = net(x, out="device")
        assert seed < 10 or driver.calls == [*WAITS, "cuMemcpyDtoDAsync", *QUIET[2:]]
        assert is_right(y, seed)


def test_a_limit_of_time_is_kept(compiled: Prepared) -> None:
    net, driver = on_driver(compiled)
    x = ByExchange(driver, normal(1))
    net.limit(10)
    for _ in range(4):
        driver.calls.clear()
        net(x, out="device")
    assert driver.calls == [*QUIET, "cuStreamQuery", "cuStreamSynchronize"]


@pytest.mark.parametrize("change", ["refuses", "requires_grad"])
def test_what_a_library_does_not_hand_out_goes_the_longer_way(
    compiled: Prepared, change: str
) -> None:
    """Where it says itself what is wrong, or is right after all."""
    net, driver = on_driver(compiled)
    x = ByExchange(driver, normal(1))
    for _ in range(4):
        net(x, out="device")
    setattr(x, change, True)
    driver.calls.clear()
    assert is_right(net(x, out="device"), 1) and driver.calls != QUIET


def test_a_call_that_the_driver_refuses_is_not_the_end(compiled: Prepared) -> None:
    net, driver = on_driver(compiled)
    x = ByExchange(driver, normal(1))
    for _ in range(4):
        net(x, out="device")
    driver.failing["cuGraphLaunch"] = 2
    with pytest.raises(RunError, match="did not take this call"):
        net(x, out="device")
    driver.failing.clear()
    assert is_right(net(x, out="device"), 1)


def test_what_has_been_there_is_likely_to_come_back() -> None:
    """A row of places, or those of it that have been where they are."""
    seen = SeenPlaces()
    first, second = (256, 512), (256, 1024)
    assert (seen.likely(first), seen.times(1, first)) == ((0, 0), 0)
    assert (seen.likely(second), seen.times(1, second)) == ((256, 0), 0)
    assert (seen.likely(first), seen.times(1, first)) == (first, 1)
    assert seen.times(2, first) == 0, "of other sizes"
    for place in range(MOST_RECORDED):
        seen.times(1, (place, 0))
    assert seen.times(1, second) == 0, "too long ago"
    assert in_place((512, 8, 0)) == (512, 0, 0)
