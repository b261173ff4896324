"""Calls at addresses, some of them in a GPU's memory, on what stands for its driver."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest
from cuda_driver import FakeDriver
from onnx import TensorProto, helper
from small_models import mlp, mlp_result, model

import modelcc
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_states import with_states
from modelcc.ir.types import F32, Array, TensorType
from modelcc.ops.elementwise import Add
from modelcc.runtime.devices import recorded_calls
from modelcc.runtime.devices.device_steps import End
from modelcc.runtime.errors import InputError, RunError
from modelcc.runtime.session import Session
from tests.test_states import decoder

pytest.importorskip("modelcc.runtime.streams.cuda_device")
from tests.runtime.devices.test_device_arrays import Tensor, normal, number
from tests.runtime.devices.test_graph_replay import WAITS
from tests.targets.cuda.test_program import on_driver, prepared

EVERY: frozenset[End] = frozenset((kind, n) for kind in ("input", "output") for n in range(4))


def empty(driver: FakeDriver, *shape: int) -> Tensor:
    """One that nobody is going to write but calls."""
    made = Tensor(driver, np.zeros(shape, np.float32))
    driver.cuStreamSynchronize(made.stream)
    return made


def read(driver: FakeDriver, tensor: Tensor, stream: int) -> Array:
    """What it holds when a stream has done all that it was asked for."""
    driver.cuStreamSynchronize(stream)
    held = (ctypes.c_uint8 * tensor.values.nbytes).from_address(tensor.address)
    return np.frombuffer(bytes(held), tensor.values.dtype).reshape(tensor.values.shape)


def test_recorded_work_is_asked_for_between_that_of_a_stream() -> None:
    """What the stream writes before comes first, and what it reads after comes last."""
    net, driver = on_driver(prepared(mlp(2)))
    x, y = Tensor(driver, normal(0)), empty(driver, 2, 3)
    call = net.placed(net.signature(((2, 6),)), EVERY)
    for seed in range(4):
        x.write(normal(seed))
        before = driver.calls.count("cuStreamSynchronize")
        net.run_bound(call, [x.address], [y.address], x.stream)
        waited = driver.calls.count("cuStreamSynchronize") - before
        assert bool(waited) == (seed < 1), "the first one brings weights"
        np.testing.assert_allclose(
            read(driver, y, x.stream), mlp_result(normal(seed)), rtol=1e-4, atol=1e-5
        )
    assert driver.calls.count("cuStreamBeginCapture") == 1
    z = Tensor(driver, normal(9))
    net.run_bound(call, [z.address], [y.address], z.stream)
    np.testing.assert_allclose(
        read(driver, y, z.stream), mlp_result(normal(9)), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("end", [("input", 0), ("output", 0)])
def test_an_end_on_the_host(end: End) -> None:
    """It is brought in each call, and waited for if it comes from the GPU."""
    net, driver = on_driver(prepared(mlp(2)))
    y = empty(driver, 2, 3)
    call = net.placed(net.signature(((2, 6),)), EVERY - {end})
    for seed in range(3):
        given, result = normal(seed), np.empty((2, 3), np.float32)
        x = Tensor(driver, given.copy())
        from_host = end[0] == "input"
        source = given.ctypes.data if from_host else x.address
        target = y.address if from_host else result.ctypes.data
        driver.calls.clear()
        net.run_bound(call, [source], [target], x.stream)
        assert ("cuStreamSynchronize" in driver.calls) == (not from_host or seed < 1)
        given[:] = 0
        found = read(driver, y, x.stream) if from_host else result
        np.testing.assert_allclose(found, mlp_result(normal(seed)), rtol=1e-4, atol=1e-5)


def test_what_the_host_computes_with() -> None:
    """It is brought there, and what is made there back."""
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Det", ["x"], ["d"])]
    matrix = model(nodes, {"x": (3, 3)}, {"y": (3, 3), "d": ()}, {})
    net, driver = on_driver(prepared(matrix))
    values = np.array([[2, -1, 0], [0, 3, 1], [0, 0, 4]], np.float32)
    x, y = Tensor(driver, values), empty(driver, 3, 3)
    d = empty(driver)
    call = net.placed(net.signature(((3, 3),)), EVERY)
    for _ in range(3):
        net.run_bound(call, [x.address], [y.address, d.address], x.stream)
        np.testing.assert_array_equal(read(driver, y, x.stream), np.maximum(values, 0))
        np.testing.assert_allclose(read(driver, d, x.stream), 24)


class Decoding:
    """Calls of a decoder whose cache is in the caller's memory on the GPU."""

    def __init__(self) -> None:
        self.net, self.driver = on_driver(prepared(decoder(8)))
        self.names = [spec.name for spec in self.net.manifest.inputs]
        shapes: dict[str, tuple[int, ...]]
        shapes = {"row": (1, 1, 16), "place": (1,), "cache": (1, 8, 16)}
        signature = self.net.signature(tuple(shapes[name] for name in self.names))
        self.row, self.place = empty(self.driver, 1, 1, 16), Tensor(self.driver, np.array([0]))
        self.cache, self.sums = empty(self.driver, 1, 8, 16), empty(self.driver, 1, 8, 1)
        self.row.stream = self.place.stream = self.cache.stream
        self.call = self.net.placed(signature, EVERY)

    def run(self, place: int, cache: Tensor | None = None) -> list[str]:
        """Puts a row of ``place + 1``; what is asked of the driver."""
        self.row.write(np.full((1, 1, 16), place + 1, np.float32))
        self.place.write(np.array([place]))
        given = {"row": self.row, "place": self.place, "cache": cache or self.cache}
        outputs = [self.sums.address if s.name == "sums" else 0 for s in self.net.manifest.outputs]
        self.driver.calls.clear()
        addresses = [given[name].address for name in self.names]
        self.net.run_bound(self.call, addresses, outputs, self.cache.stream)
        return list(self.driver.calls)

    def read(self, tensor: Tensor) -> Array:
        return read(self.driver, tensor, self.cache.stream)


def test_states_are_changed_where_they_are() -> None:
    """A cache of a decoder's: nobody waits for that, and nothing is copied."""
    decoding = Decoding()
    asked = [decoding.run(place) for place in range(5)]
    np.testing.assert_array_equal(decoding.read(decoding.sums)[0, :6, 0], [16, 32, 48, 64, 80, 0])
    np.testing.assert_array_equal(decoding.read(decoding.cache)[0, :, 0], [1, 2, 3, 4, 5, 0, 0, 0])
    assert ["cuStreamSynchronize" in calls for calls in asked] == [True, *[False] * 4]
    assert [calls.count("cuGraphLaunch") for calls in asked] == [0, 2, 2, 2, 2]
    assert not any("cuMemcpyDtoDAsync" in calls for calls in asked)


def test_an_index_that_is_found_late_changes_no_other_memory() -> None:
    """Of what changes a cache; a later call raises it, and is not done."""
    decoding = Decoding()
    for place in (0, 1, 7, 9):
        decoding.run(place)
    wanted = [1, 2, 0, 0, 0, 0, 0, 8]
    np.testing.assert_array_equal(decoding.read(decoding.cache)[0, :, 0], wanted)
    with pytest.raises(RunError, match=r"start 9 .*\(in an earlier call\)"):
        decoding.run(2)
    np.testing.assert_array_equal(decoding.read(decoding.cache)[0, :, 0], wanted)
    decoding.run(3)
    np.testing.assert_array_equal(decoding.read(decoding.cache)[0, :5, 0], [1, 2, 0, 4, 0])


def test_a_state_that_begins_anywhere_is_copied_there_and_back() -> None:
    decoding = Decoding()
    shifted = Tensor(decoding.driver, np.zeros((1, 8, 16), np.float32), shift=16)
    decoding.driver.cuStreamSynchronize(shifted.stream)
    asked = [decoding.run(place, shifted) for place in range(4)]
    np.testing.assert_array_equal(decoding.read(shifted)[0, :, 0], [1, 2, 3, 4, 0, 0, 0, 0])
    assert [calls.count("cuMemcpyDtoDAsync") for calls in asked] == [2] * 4
    assert "cuStreamSynchronize" not in asked[-1]


def turning() -> Graph:
    """Two states that change places, and a third that becomes what one of them was."""
    b = GraphBuilder("turning")
    x, *names = (b.input(n, TensorType((3,), F32)) for n in "xabc")
    once = b.emit(Add(), names[0], x, name="once")
    graph = b.build(["b", once, "a"])
    return with_states(graph, {"a": ("a", "b"), "b": ("b", once), "c": ("c", "a")})


def test_states_that_are_copied_are_copied_in_the_recording() -> None:
    net, driver = on_driver(prepared(turning()))
    names = [spec.name for spec in net.manifest.inputs]
    values: dict[str, Array] = {n: np.full(3, i, np.float32) for i, n in enumerate(names)}
    held = {name: Tensor(driver, value) for name, value in values.items()}
    for tensor in held.values():
        driver.cuStreamSynchronize(tensor.stream)
    call, stream = net.placed(net.signature(((3,),) * len(names)), EVERY), held["x"].stream
    for _ in range(4):
        driver.calls.clear()
        net.run_bound(call, [held[name].address for name in names], [0] * 3, stream)
        once = values["a"] + values["x"]
        values |= {"a": values["b"], "b": once, "c": values["a"]}
        for name in names:
            np.testing.assert_array_equal(read(driver, held[name], stream), values[name])
    asked = [name for name in driver.calls if name not in (*WAITS, "cuStreamSynchronize")]
    assert asked == ["cuGraphLaunch"]


@pytest.mark.parametrize("large", [False, True])
def test_places_that_are_new_each_time(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tensors are copied to where recorded work takes them; for those that would take longer
    the GPU is asked for one kernel after the other.  Nobody waits for either."""
    monkeypatch.setattr(recorded_calls, "COPIED_BYTES", 64 if large else 4 << 20)
    weights = {f"w{n}": np.random.default_rng(n).random((16, 16), np.float32) for n in range(3)}
    nodes = [helper.make_node("MatMul", [f"x{n}", f"w{n}"], [f"x{n + 1}"]) for n in range(3)]
    chain = model(nodes, {"x0": (2, 16)}, {"x3": (2, 16)}, weights)
    net, driver = on_driver(prepared(chain))
    call = net.placed(net.signature(((2, 16),)), EVERY)
    kept: list[Tensor] = []
    asked: list[str] = []
    for seed in range(7):
        given = np.random.default_rng(seed).standard_normal((2, 16), np.float32)
        x, y = Tensor(driver, given), empty(driver, 2, 16)
        kept += [x, y]
        driver.calls.clear()
        net.run_bound(call, [x.address], [y.address], x.stream)
        assert ("cuStreamSynchronize" in driver.calls) == (seed < 1)
        asked = [name for name in driver.calls if name not in WAITS]
        wanted = given @ weights["w0"] @ weights["w1"] @ weights["w2"]
        np.testing.assert_allclose(read(driver, y, x.stream), wanted, rtol=1e-4)
    by_copies = ["cuMemcpyDtoDAsync", "cuGraphLaunch", "cuMemcpyDtoDAsync"]
    assert asked == (["cuLaunchKernel"] * 3 if large else by_copies)


def test_an_index_out_of_range_is_raised_by_a_later_call() -> None:
    nodes = [helper.make_node("Gather", ["x", "i"], ["y"])]
    lookup = model(nodes, {"x": (4, 3), "i": (2,)}, {"y": (2, 3)}, {})
    lookup.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    net, driver = on_driver(prepared(lookup))
    x = Tensor(driver, np.arange(12, dtype=np.float32).reshape(4, 3))
    driver.cuStreamSynchronize(x.stream)
    i, y = Tensor(driver, np.array([1, 2])), empty(driver, 2, 3)
    call = net.placed(net.signature(((4, 3), (2,))), EVERY)

    def run() -> None:
        net.run_bound(call, [x.address, i.address], [y.address], i.stream)

    for _ in range(3):
        run()
    np.testing.assert_array_equal(read(driver, y, i.stream), x.values[[1, 2]])
    i.write(np.array([1, 4]))
    run()
    i.write(np.array([0, 3]))
    driver.cuStreamSynchronize(i.stream)
    with pytest.raises(RunError, match=r"index 4 .*\(in an earlier call\)"):
        run()
    run()
    np.testing.assert_array_equal(read(driver, y, i.stream), x.values[[0, 3]])


def test_other_sizes_are_not_waited_for() -> None:
    """Once a call has brought the weights; recorded when they come back to their places."""
    net, driver = on_driver(prepared(mlp("batch")))
    asked: list[list[str]] = []
    tensors: dict[int, tuple[Tensor, Tensor]] = {}
    for batch in (2, 5, 3, 5, 2):
        given = np.random.default_rng(batch).standard_normal((batch, 6)).astype(np.float32)
        if batch not in tensors:
            tensors[batch] = Tensor(driver, given), empty(driver, batch, 3)
        x, y = tensors[batch]
        call = net.placed(net.signature(((batch, 6),)), EVERY)
        driver.calls.clear()
        net.run_bound(call, [x.address], [y.address], x.stream)
        asked.append(list(driver.calls))
        found = read(driver, y, x.stream)
        np.testing.assert_allclose(found, mlp_result(given), rtol=1e-4, atol=1e-5)
    assert ["cuStreamSynchronize" in calls for calls in asked] == [True, *[False] * 4]
    assert ["cuGraphLaunch" in calls for calls in asked] == [False] * 3 + [True] * 2


def test_tensors_without_elements_are_nowhere() -> None:
    net, driver = on_driver(prepared(mlp("batch")))
    x = Tensor(driver, normal(0))
    for batch in (2, 0, 2):
        y = empty(driver, batch, 3)
        call = net.placed(net.signature(((batch, 6),)), EVERY)
        places = ([x.address], [y.address]) if batch else ([0], [0])
        net.run_bound(call, *places, x.stream)
        expected = mlp_result(normal(0))[:batch]
        np.testing.assert_allclose(read(driver, y, x.stream), expected, rtol=1e-4, atol=1e-5)


def test_memory_of_another_gpu_is_named() -> None:
    net, driver = on_driver(prepared(mlp(2)))
    y = empty(driver, 2, 3)
    call = net.placed(net.signature(((2, 6),)), EVERY)
    host = normal(0)
    with pytest.raises(InputError, match="input 0"):
        net.run_bound(call, [host.ctypes.data], [y.address], y.stream)


def test_a_processor_has_no_such_calls() -> None:
    net = modelcc.compile(mlp(2), threads=1).session
    assert isinstance(net, Session)
    with pytest.raises(InputError, match="target='cuda'"):
        net.placed(net.signature(((2, 6),)), EVERY)


def test_memory_is_given_back() -> None:
    """Nothing of a call holds on to what the caller has."""
    net, driver = on_driver(prepared(mlp(2)))
    x, y = Tensor(driver, normal(0)), empty(driver, 2, 3)
    call = net.placed(net.signature(((2, 6),)), EVERY)
    for _ in range(3):
        net.run_bound(call, [x.address], [y.address], x.stream)
    gc.collect()
    assert number(driver.cuMemAllocAsync(4, x.stream)) not in (x.address, y.address)
