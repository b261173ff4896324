"""Calls that check indices and return before the GPU is done: what was out of range is raised
later, and no result of it is handed out as right."""

from __future__ import annotations

import gc
from collections.abc import Callable
from threading import Thread
from typing import Any

import numpy as np
import pytest
from cuda_driver import FakeDriver
from onnx import ModelProto, TensorProto, helper
from small_models import model

from modelcc.ir.types import Array
from modelcc.runtime.devices.device_arrays import DeviceArray
from modelcc.runtime.errors import RunError
from modelcc.runtime.values import ValueSession

pytest.importorskip("modelcc.runtime.streams.cuda_device")

from tests.runtime.devices.test_device_arrays import moves
from tests.runtime.devices.test_graph_replay import CURRENT, QUIET, WAITS, ByExchange
from tests.targets.cuda.test_program import Prepared, on_driver, prepared

NEXT = np.array([3, 0, 4, 1, 2])
TEXT = r"next: index {} is outside of -5 … 4 \(axis 0 of 'w', 5 long\)"
EARLIER = r" \(in an earlier call\)$"
NOTED = [*QUIET[:3], "cuMemcpyDtoHAsync", *WAITS]
"""What a call asks of the driver whose indices are checked, with none before it under way."""


def rows(table: Array, indices: str | int = 2) -> ModelProto:
    """``table[i]``."""
    node = helper.make_node("Gather", ["w", "i"], ["y"], "next")
    source = model([node], {}, {"y": (indices,)}, {"w": table})
    kind = helper.np_dtype_to_tensor_dtype(table.dtype)
    source.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", kind, [indices]))
    info = helper.make_tensor_value_info("i", TensorProto.INT64, [indices])
    source.graph.input.append(info)
    return source


@pytest.fixture(scope="module")
def compiled() -> Prepared:
    """Results that may be its inputs."""
    return prepared(rows(NEXT))


Ready = tuple[ValueSession, FakeDriver, Callable[[int], ByExchange]]


@pytest.fixture
def ready(compiled: Prepared) -> Ready:
    """Recorded; a function that writes indices in the caller's stream."""
    net, driver = on_driver(compiled)
    indices = ByExchange(driver, np.array([0, 1]))

    def tensor(n: int) -> ByExchange:
        indices.write(np.array([n, 1]))
        return indices

    kept: list[DeviceArray] = []
    for n in (0, 1, 2, 3, 4, 0, 1, 2, 3, 4):
        kept = [*kept[-1:], net(tensor(n), out="device")]
        assert right(kept[-1], n)
    kept.clear()
    driver.calls.clear()
    return net, driver, tensor


def right(y: Any, n: int) -> bool:
    return np.array_equal(np.asarray(y), NEXT[[n, 1]])


def done(driver: FakeDriver) -> None:
    """The caller waits, by means of its own."""
    driver.cuStreamSynchronize(CURRENT[0])


def test_nobody_waits(ready: Ready) -> None:
    """Seven calls of the driver's, of which one asks whether the notes before have come."""
    net, driver, tensor = ready
    y = net(tensor(1), out="device")
    assert driver.calls == NOTED
    assert any(stream.waiting for stream in driver.streams.values())
    done(driver)
    driver.calls.clear()
    z = net(tensor(2), out="device")
    assert driver.calls == ["cuEventQuery", *NOTED]
    assert right(z, 2) and right(y, 1)
    del y
    driver.calls.clear()
    net(tensor(2), out="device")
    assert driver.calls == NOTED and moves(driver)[0] == 0


@pytest.mark.parametrize("taken", ["numpy", "dlpack", "interface", "array"])
def test_a_result_of_indices_out_of_range_is_not_handed_out(ready: Ready, taken: str) -> None:
    """Each time that somebody asks for it; nobody else is told."""
    net, _, tensor = ready
    y = net(tensor(9), out="device")
    ways: dict[str, Callable[[], object]] = {
        "numpy": y.numpy,
        "dlpack": lambda: y.__dlpack__(stream=-1),
        "interface": lambda: y.__cuda_array_interface__,
        "array": lambda: np.asarray(y),
    }
    for _ in range(2):
        with pytest.raises(RunError, match=TEXT.format(9) + "$"):
            ways[taken]()
        assert right(net(tensor(4), out="device"), 4)
    with pytest.raises(RunError, match=TEXT.format(9) + "$"):
        y.__dlpack__(stream=CURRENT[0])


def test_the_text_is_that_of_a_call_that_is_waited_for(ready: Ready) -> None:
    net, _, tensor = ready
    texts: list[str] = []
    for call in (lambda: net(np.array([-8, 1])), lambda: net(tensor(-8), out="device").numpy()):
        with pytest.raises(RunError) as raised:
            call()
        texts.append(str(raised.value))
    assert texts[0] == texts[1]


def test_the_next_call_tells_what_was_found(ready: Ready) -> None:
    """Once, although the result has been dropped; before the GPU is done nobody knows."""
    net, driver, tensor = ready
    net(tensor(7), out="device")
    y = net(tensor(2), out="device")
    done(driver)
    driver.calls.clear()
    with pytest.raises(RunError, match=TEXT.format(7) + EARLIER):
        net(tensor(3), out="device")
    assert "cuGraphLaunch" not in driver.calls
    assert right(net(tensor(3), out="device"), 3) and right(y, 2)


@pytest.mark.parametrize("turned", [False, True])
def test_calls_on_their_way_keep_their_notes_apart(ready: Ready, turned: bool) -> None:
    net, driver, tensor = ready
    given = (0, 9, 1, -7, 8, 2, 9, 3)
    results = [(n, net(tensor(n), out="device")) for n in given]
    assert "cuStreamSynchronize" not in driver.calls
    for n, y in reversed(results) if turned else results:
        if -6 < n < 5:
            assert right(y, n)
            continue
        with pytest.raises(RunError, match=TEXT.format(n) + "$"):
            y.numpy()
    assert right(net(tensor(1), out="device"), 1), "all has been told"


def test_each_fault_is_told_by_a_call_of_its_own(ready: Ready) -> None:
    net, driver, tensor = ready
    for n in (9, 0, 8, -7):
        net(tensor(n), out="device")
    done(driver)
    for n in (9, 8, -7):
        with pytest.raises(RunError, match=TEXT.format(n) + EARLIER):
            net(tensor(0), out="device")
    assert right(net(tensor(0), out="device"), 0)


def test_what_comes_of_such_a_result_is_not_handed_out(ready: Ready) -> None:
    """By calls under way, or one that finds it among its inputs."""
    net, driver, tensor = ready
    for n in (0, 1) * 4:  # until results are where they have been as inputs
        above = net(tensor(n), out="device")
        below = net(above, out="device")
        assert np.array_equal(below.numpy(), NEXT[NEXT[[n, 1]]])
        del above, below
    driver.calls.clear()
    wrong = net(tensor(9), out="device")
    below = net(wrong, out="device")
    assert "cuStreamSynchronize" not in driver.calls
    with pytest.raises(RunError, match=TEXT.format(9) + EARLIER):
        below.numpy()
    for out in ("device", None):
        for given in (wrong, below):
            with pytest.raises(RunError, match=TEXT.format(9) + EARLIER):
                net(given, out=out)
        assert right(net(tensor(3), out=out), 3)


def test_a_call_that_waits_tells_at_once(ready: Ready) -> None:
    """Of its own index, and before that of an earlier call, for which it waits."""
    net, driver, tensor = ready
    for call in (lambda: net(np.array([4, 1])), lambda: net(tensor(4))):
        net(tensor(9), out="device")
        with pytest.raises(RunError, match=TEXT.format(9) + EARLIER):
            call()
        assert right(call(), 4)
    with pytest.raises(RunError, match=TEXT.format(8) + "$"):
        net(np.array([8, 1]))
    net.limit(10)
    driver.calls.clear()
    for _ in range(2):
        with pytest.raises(RunError, match=TEXT.format(6) + "$"):
            net(tensor(6), out="device")
        assert right(net(tensor(0), out="device"), 0)


def test_many_calls_are_waited_for_in_the_end(ready: Ready) -> None:
    """None is lost, and memory for notes does not grow with them."""
    net, driver, tensor = ready
    given = [8 if n % 50 == 20 else n % 5 for n in range(300)]
    told = 0
    for n in given:
        try:
            net(tensor(n), out="device")
        except RunError as error:
            assert str(error).endswith("(in an earlier call)")
            told += 1
    done(driver)
    for _ in range(8):
        try:
            assert right(net(tensor(1)), 1)
        except RunError as error:
            assert str(error).endswith("(in an earlier call)")
            told += 1
    assert told == 6 and len(driver.pinned) <= 66
    assert 4 <= driver.calls.count("cuStreamSynchronize") - 8 <= 24


def test_threads_get_their_own_results(ready: Ready) -> None:
    net, driver, _ = ready
    held = [ByExchange(driver, np.array([0, 1])) for _ in range(10)]
    for n in (*range(10), *range(10), *range(10)):  # until all are where they have been
        driver.cuStreamSynchronize(held[n].stream)
        CURRENT[0] = held[0].stream
        net(held[n], out="device")
    for n, tensor in enumerate(held):
        tensor.write(np.array([n, 1]))
        driver.cuStreamSynchronize(tensor.stream)
    CURRENT[0] = held[0].stream
    wrong: list[object] = []
    refused: list[int] = []
    told: list[int] = []

    def calls(first: int) -> None:
        for turn in range(12):
            n = first if turn % 3 else 9 - first
            try:
                y = net(held[n], out="device")
                wrong.extend([] if right(y, n) else [n])
            except RunError as error:
                earlier = str(error).endswith("(in an earlier call)")
                (told if earlier else refused).append(n)
                wrong.extend([] if earlier or f"index {n} is outside" in str(error) else [error])

    threads = [Thread(target=calls, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and set(refused) <= {6, 7, 8, 9}
    assert len(refused) + len(told) >= 16


def test_another_model_does_not_take_such_a_result(compiled: Prepared, ready: Ready) -> None:
    net, _, tensor = ready
    other, _ = on_driver(compiled)
    y = net(tensor(9), out="device")
    with pytest.raises(RunError, match=TEXT.format(9) + EARLIER):
        other(y, out="device")
    assert right(net(tensor(4), out="device"), 4)


def test_a_model_that_is_dropped_leaves_nothing(ready: Ready) -> None:
    """Its results are as right or wrong as they were."""
    net, driver, tensor = ready
    wrong, sound = (net(tensor(n), out="device") for n in (9, 2))
    del net
    gc.collect()
    with pytest.raises(RunError, match=TEXT.format(9)):
        wrong.numpy()
    assert right(sound, 2)
    del wrong, sound, ready
    gc.collect()
    assert len(driver.retained) == 1


def test_a_gpu_that_fails_is_told_by_the_next_call(ready: Ready) -> None:
    net, driver, tensor = ready
    y = net(tensor(1), out="device")
    driver.failing["cuEventQuery"] = 700
    with pytest.raises(RunError, match=r"did not do its work .CUDA_ERROR_ILLEGAL_ADDRESS"):
        net(tensor(1), out="device")
    driver.failing.clear()
    with pytest.raises(RunError, match="has failed before"):
        y.numpy()


def test_results_without_elements_are_checked_as_others_are() -> None:
    """Of a model whose sizes vary: calls of other sizes know their own bounds."""
    net, driver = on_driver(prepared(rows(NEXT, "n")))
    good, none = (ByExchange(driver, np.array(row, np.int64)) for row in ([1, 2, 3], []))
    good.write(good.values)
    for x in (good, none) * 4:
        np.testing.assert_array_equal(net(x, out="device").numpy(), NEXT[x.values])
    good.write(np.array([1, 7, 3]))
    driver.calls.clear()
    y, z = net(good, out="device"), net(none, out="device")
    assert "cuStreamSynchronize" not in driver.calls
    with pytest.raises(RunError, match=TEXT.format(7)):
        y.numpy()
    assert z.numpy().shape == (0,)


def test_results_of_a_cycle_leave_their_memory_to_the_next_call(ready: Ready) -> None:
    """As those that an exception's traceback refers to: Python ends all that is in it at once."""
    net, driver, tensor = ready
    cycle: list[object] = [net(tensor(2), out="device")]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert "cuMemFreeAsync" not in driver.calls
    for n in (1, 3):
        assert right(net(tensor(n), out="device"), n)
