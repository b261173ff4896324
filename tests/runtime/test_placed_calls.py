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
from modelcc.ir.types import Array
from modelcc.runtime.device_steps import End
from modelcc.runtime.errors import InputError, RunError
from modelcc.runtime.session import Session
from tests.test_states import decoder

pytest.importorskip("modelcc.runtime.cuda_device")
from tests.runtime.test_device_arrays import Tensor, normal, number
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
        net.run_placed(call, [x.address], [y.address], x.stream)
        waited = driver.calls.count("cuStreamSynchronize") - before
        assert bool(waited) == (seed < 2), "until it is recorded where tensors are"
        np.testing.assert_allclose(
            read(driver, y, x.stream), mlp_result(normal(seed)), rtol=1e-4, atol=1e-5
        )
    assert driver.calls.count("cuStreamBeginCapture") == 2
    z = Tensor(driver, normal(9))
    net.run_placed(call, [z.address], [y.address], z.stream)
    np.testing.assert_allclose(
        read(driver, y, z.stream), mlp_result(normal(9)), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("end", [("input", 0), ("output", 0)])
def test_an_end_on_the_host(end: End) -> None:
    """It is brought in each call."""
    net, driver = on_driver(prepared(mlp(2)))
    y = empty(driver, 2, 3)
    call = net.placed(net.signature(((2, 6),)), EVERY - {end})
    for seed in range(3):
        given, result = normal(seed), np.empty((2, 3), np.float32)
        x = Tensor(driver, given)
        from_host = end[0] == "input"
        source = given.ctypes.data if from_host else x.address
        target = y.address if from_host else result.ctypes.data
        net.run_placed(call, [source], [target], x.stream)
        found = read(driver, y, x.stream) if from_host else result
        np.testing.assert_allclose(found, mlp_result(given), rtol=1e-4, atol=1e-5)


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
        net.run_placed(call, [x.address], [y.address, d.address], x.stream)
        np.testing.assert_array_equal(read(driver, y, x.stream), np.maximum(values, 0))
        np.testing.assert_allclose(read(driver, d, x.stream), 24)


def test_states_are_changed_where_they_are() -> None:
    """A cache of a decoder's, in the caller's memory on the GPU."""
    net, driver = on_driver(prepared(decoder(8)))
    shapes: dict[str, tuple[int, ...]] = {"row": (1, 1, 16), "place": (1,), "cache": (1, 8, 16)}
    names = [spec.name for spec in net.manifest.inputs]
    signature = net.signature(tuple(shapes[name] for name in names))
    cache = empty(driver, 1, 8, 16)
    given, stream = {"cache": cache}, cache.stream
    sums = empty(driver, *signature.outputs[0])
    call = net.placed(signature, EVERY)
    for place in range(3):
        given["row"] = Tensor(driver, np.full(shapes["row"], place + 1, np.float32))
        given["place"] = Tensor(driver, np.array([place]))
        addresses = [given[name].address for name in names]
        outputs = [sums.address if spec.name == "sums" else 0 for spec in net.manifest.outputs]
        for tensor in given.values():
            driver.cuStreamSynchronize(tensor.stream)
        net.run_placed(call, addresses, outputs, stream)
    np.testing.assert_array_equal(read(driver, sums, stream)[0, :4, 0], [16, 32, 48, 0])
    assert read(driver, cache, stream).sum() == 16 * 6


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
        net.run_placed(call, [x.address, i.address], [y.address], i.stream)

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


def test_tensors_without_elements_are_nowhere() -> None:
    net, driver = on_driver(prepared(mlp("batch")))
    x = Tensor(driver, normal(0))
    for batch in (2, 0, 2):
        y = empty(driver, batch, 3)
        call = net.placed(net.signature(((batch, 6),)), EVERY)
        places = ([x.address], [y.address]) if batch else ([0], [0])
        net.run_placed(call, *places, x.stream)
        expected = mlp_result(normal(0))[:batch]
        np.testing.assert_allclose(read(driver, y, x.stream), expected, rtol=1e-4, atol=1e-5)


def test_memory_of_another_gpu_is_named() -> None:
    net, driver = on_driver(prepared(mlp(2)))
    y = empty(driver, 2, 3)
    call = net.placed(net.signature(((2, 6),)), EVERY)
    host = normal(0)
    with pytest.raises(InputError, match="input 0"):
        net.run_placed(call, [host.ctypes.data], [y.address], y.stream)


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
        net.run_placed(call, [x.address], [y.address], x.stream)
    gc.collect()
    assert number(driver.cuMemAllocAsync(4, x.stream)) not in (x.address, y.address)
