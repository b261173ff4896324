"""Models compiled for OpenCL run there as anywhere, and say what is wrong when they cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given, settings
from onnx import TensorProto, helper, parser
from small_models import mlp

import modelcc
from modelcc.driver import NOWHERE, compile_model
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.types import F32, F64, U8, Array, TensorType
from modelcc.ops.arithmetic import Mul
from modelcc.ops.hardmax import RowHardmax
from modelcc.ops.top_k import TopK
from modelcc.options import Options
from modelcc.passes.program.place_transfers import side_of
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.runtime.devices.device_parts import CODE
from modelcc.runtime.devices.device_program import DeviceCode
from modelcc.runtime.errors import InputError, LoadError, RunError
from modelcc.runtime.session import Session
from modelcc.targets.base import TargetOptions
from modelcc.targets.opencl.target import opencl_target
from tests.device_agreement import WIDTHS, check_control_flow, check_elements
from tests.random_control import control_models
from tests.test_control_flow import QUICK
from tests.test_states import decoder

opencl = pytest.importorskip("modelcc.runtime.devices.opencl_device")


@pytest.fixture(scope="module", autouse=True)
def driver() -> None:
    try:
        opencl.find_devices()
    except LoadError as error:
        pytest.skip(str(error))


def normal(*shape: int) -> Array:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


@settings(QUICK, max_examples=6)
@given(control_models())
def test_control_flow_agrees_with_the_interpreter(graph: Graph) -> None:
    """Tensors change sides in branches and loops."""
    check_control_flow(graph, "opencl")


@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
def test_elements_of_every_width(dtype: type) -> None:
    check_elements(dtype, "opencl")


def test_floats_that_a_device_lacks_run_on_the_host() -> None:
    build = GraphBuilder("both")
    build.input("x", TensorType((5, 3), F32))
    build.input("y", TensorType((5, 3), F64))
    outputs = [*build.add(Mul(), "x", "x"), *build.add(Mul(), "y", "y")]
    target = replace(opencl_target(TargetOptions()), extensions=())
    lowered = lower_graph(build.build(outputs))
    single, double = target.schedule(lowered).callees
    assert (side_of(single), side_of(double)) == ("device", "host")


def test_a_device_without_spirv_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = compile_model(mlp(2), Options(target="opencl:spirv"), NOWHERE).artifact
    monkeypatch.setattr(opencl, "TAKES_SPIRV", "nothing")
    with pytest.raises(LoadError, match=r"kernels are SPIR-V, which .* does not take"):
        DeviceCode(artifact)


def test_a_saved_model_runs_and_is_profiled(tmp_path: Path) -> None:
    net = modelcc.compile(mlp("batch"), "opencl", cache=None)
    net.save(tmp_path / "m.mcc")
    loaded = modelcc.load(tmp_path / "m.mcc")
    feeds = {"x": normal(3, 6)}
    with pytest.raises(LoadError, match="OpenCL has no device 7"):
        modelcc.load(tmp_path / "m.mcc", target="opencl:7")
    loaded.limit(None)
    with pytest.raises(InputError, match="a device that can be left at work"):
        loaded.limit(1.0)
    for name, array in net.run(feeds).items():
        np.testing.assert_array_equal(loaded.run(feeds)[name], array)
    report = loaded.report(profile=feeds)
    assert report.device is not None and report.device.host == ()
    assert (report.device.uploads, report.device.downloads) == (1, 1)
    assert all(row.seconds is not None and row.seconds > 0 for row in report.kernels)


def test_a_device_times_its_work_by_its_own_clock() -> None:
    """What it does, not how long the host waits for it: a long sum against a short one."""
    source = b"""__kernel void work(__global float *x, long n) {
        float sum = 0;
        for (long i = 0; i < n; i++) sum = sum * 0.5f + x[i % 8];
        x[get_global_id(0)] = sum;
    }"""
    device = opencl.open_device(0)
    device.load(source, {"work": (1, 1, 1)})
    memory = device.allocate(64)
    taken: list[float] = []
    device.keep_times(True)
    for count in (1000, 3_000_000):
        start = perf_counter()
        device.launch("work", [(memory, 0)], [count], (1, 1, 1))
        device.synchronize()
        taken.append(device.seconds())
        assert 0 < taken[-1] <= perf_counter() - start + 1e-2
    assert taken[1] > 100 * taken[0] or taken[1] > 1e-3
    device.keep_times(False)
    device.launch("work", [(memory, 0)], [1], (1, 1, 1))
    assert device.seconds() == 0


def test_a_long_line_is_sorted_by_many_groups() -> None:
    build = GraphBuilder("sorted")
    build.input("x", TensorType((5000,), U8))
    op = TopK(5000, 0)
    net = modelcc.compile(build.build(build.add(op, "x")), "opencl", cache=None)
    share = net.report().device
    assert share is not None and share.host == ()
    x = np.random.default_rng(0).integers(0, 256, 5000).astype(np.uint8)
    for found, wanted in zip(net.run({"x": x}).values(), op.reference(x), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("rows", [2, 300])
def test_a_thread_does_what_is_independent_if_there_are_many(rows: int) -> None:
    build = GraphBuilder("marks")
    build.input("x", TensorType((rows, 5), F32))
    op = RowHardmax(1)
    net = modelcc.compile(build.build(build.add(op, "x")), "opencl", cache=None)
    share = net.report().device
    assert (share is not None and share.launches == 1) == (rows == 300)
    x = normal(rows, 5)
    (found,) = net.run({"x": x}).values()
    np.testing.assert_array_equal(found, op.reference(x))


def gathering(then: str) -> modelcc.Model:
    nodes = [helper.make_node("Gather", ["x", "i"], ["h"], "look_up"),
             helper.make_node(then, ["h"], ["y"])]  # fmt: skip
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 3)),
        helper.make_tensor_value_info("i", TensorProto.INT64, (2,)),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 3))]
    graph = helper.make_graph(nodes, "gathering", inputs, outputs)
    opset = [helper.make_opsetid("", 17)]
    return modelcc.compile(helper.make_model(graph, opset_imports=opset), "opencl", cache=None)


@pytest.mark.parametrize("then", ["Relu", "Softmax"])
def test_an_index_outside_ends_the_run(then: str) -> None:
    """The device notes it, in one kernel whether threads wait for each other or not; the next run
    is as if nothing had been."""
    net, x = gathering(then), normal(4, 3)
    for bad in (4, -5):
        with pytest.raises(RunError, match=f"look_up: .*{bad}"):
            net.run({"x": x, "i": np.array([0, bad])})
    found = net.run({"x": x, "i": np.array([1, -1])})["y"]
    rows = x[[1, 3]]
    powers = np.exp(rows) / np.exp(rows).sum(1, keepdims=True)
    np.testing.assert_allclose(found, powers if then == "Softmax" else np.maximum(rows, 0), 1e-5)
    report = net.report()
    assert report.device is not None and report.device.host == ()
    assert report.device.launches == 1


def test_a_cache_is_changed_where_it_is() -> None:
    """Nothing is copied, and an index outside leaves it as it was."""
    net = modelcc.compile(decoder(8), "opencl", cache=None)
    report = net.report()
    assert report.device is not None and report.device.host == ()
    assert not any(".copy" in kernel.function for kernel in report.kernels)
    wanted = np.zeros((1, 8, 16), np.float32)
    for place in (3, 7, 9, 0):
        row = normal(1, 1, 16) * place
        feeds = {"row": row, "place": np.array([place])}
        if place > 7:
            with pytest.raises(RunError, match="start 9 is outside"):
                net.run(feeds)
            continue
        wanted[:, place] = row[:, 0]
        np.testing.assert_allclose(net.run(feeds)["sums"], wanted.sum(2, keepdims=True), atol=1e-5)
    np.testing.assert_array_equal(net.states["cache"], wanted)


def test_what_is_empty_may_lie_at_the_end_of_memory() -> None:
    """Of no signals a transform is no numbers, behind all others."""
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[b, n, 1] x, int64 s, int64 l) =>'
        " (float[b, f, m, 2] y) { y = STFT(x, s, , l) }"
    )
    net = modelcc.compile(model, target="opencl", cache=None)
    steps = {"s": np.int64(4), "l": np.int64(8)}
    for batch in (0, 2):
        x = normal(batch, 32, 1)
        frames = np.lib.stride_tricks.sliding_window_view(x[:, :, 0], 8, 1)[:, ::4]
        wanted = np.fft.rfft(frames)
        (found,) = net.run({"x": x, **{n: np.asarray(v) for n, v in steps.items()}}).values()
        assert found.shape == (*wanted.shape, 2)
        np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], wanted, atol=1e-5)


@pytest.fixture
def code() -> DeviceCode:
    return DeviceCode(compile_model(mlp(2), Options(target="opencl"), NOWHERE).artifact)


def session_of(code: DeviceCode) -> Session:
    return Session(compile_model(mlp(2), Options(target="opencl"), NOWHERE).artifact, 1, code)


def test_a_device_without_room_says_how_much_is_missing(
    code: DeviceCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_of(code)
    monkeypatch.setattr(opencl.OpenclDevice, "memory", property(lambda _: 100))
    with pytest.raises(RunError, match=r"needs [\d,]+ bytes of .* has 100: [\d,]+ are missing"):
        session(normal(2, 6))
    monkeypatch.undo()
    assert session(normal(2, 6)) is not None


def test_a_device_that_is_lost_ends_the_run_alone(
    code: DeviceCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, other = session_of(code), modelcc.compile(mlp(2), cache=None)

    def lost(*_: object, **__: object) -> None:
        raise opencl.cl.RuntimeError("clFinish", -5, "lost")

    monkeypatch.setattr(opencl.cl, "enqueue_nd_range_kernel", lost)
    with pytest.raises(RunError, match=r"did not do its work.*load the model again"):
        session(normal(2, 6))
    (wanted,) = other.run({"x": normal(2, 6)}).values()
    monkeypatch.undo()
    np.testing.assert_allclose(session(normal(2, 6)), wanted, rtol=1e-5)


def test_kernels_that_a_driver_refuses() -> None:
    artifact = compile_model(mlp(2), Options(target="opencl"), NOWHERE).artifact
    broken = replace(artifact, objects={**artifact.objects, CODE: b"__kernel void broken( {"})
    with pytest.raises(LoadError, match="refuses the model's kernels"):
        DeviceCode(broken)


def test_devices_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = compile_model(mlp(2), Options(target="opencl:99"), NOWHERE).artifact
    with pytest.raises(LoadError, match="OpenCL has no device 99: opencl:0 is "):
        DeviceCode(artifact)
    for name, message in (("opencl:first:c", "have numbers"), ("native:1", "has no variants")):
        with pytest.raises(ModelError, match=message):
            modelcc.compile(mlp(2), name, cache=None)
    monkeypatch.setattr(opencl.cl, "get_platforms", list)
    with pytest.raises(LoadError, match="install a driver"):
        DeviceCode(artifact)
