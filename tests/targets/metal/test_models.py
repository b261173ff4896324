"""Models compiled for Metal run on what stands for it as anywhere: kernels there, the rest here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from metal_driver import FakeMetal
from metal_kernels import install
from small_models import mlp

import modelcc
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import F32, F64, U8, Array, TensorType
from modelcc.ops.arithmetic import Mul
from modelcc.ops.top_k import TopK
from modelcc.runtime.errors import RunError
from tests.device_agreement import WIDTHS, check_control_flow, check_elements
from tests.random_control import control_models
from tests.test_control_flow import QUICK
from tests.test_states import FEEDS, GRAPHS, decoder

pytest.importorskip("onnxruntime")

from fuzz.opinions import onnxruntime_runner

HEAD = '<ir_version: 9, opset_import: ["" : 21]>'
GATHER = (
    f"""{HEAD} g (float[n, 4] x, int64[k] i) => (float[k, 4] y) {{ [look] y = Gather (x, i) }}"""
)
BLOCK = f"""{HEAD} g (float[n, 32] x, bool[n, n] mask) => (float[n, 32] y) {{
  qkv = MatMul (x, w)
  all = Add (qkv, b)
  q, k, v = Split <axis = 1, num_outputs = 3> (all)
  t = Transpose (k)
  s = MatMul (q, t)
  low = Constant <value_float = -10000.0> ()
  masked = Where (mask, s, low)
  p = Softmax (masked)
  a = MatMul (p, v)
  z = MatMul (a, o)
  h = Gelu (z)
  y = Add (h, x)
}}"""


@pytest.fixture(autouse=True)
def metal(monkeypatch: pytest.MonkeyPatch) -> FakeMetal:
    return install(monkeypatch)


def normal(*shape: int) -> Array:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


@settings(QUICK, max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(control_models())
def test_control_flow_agrees_with_the_interpreter(graph: Graph) -> None:
    """Tensors change sides in branches and loops."""
    check_control_flow(graph, "metal")


def test_a_block_agrees_with_onnxruntime() -> None:
    """One program at several sizes."""
    model = onnx.parser.parse_model(BLOCK)
    for name, shape in (("w", (32, 96)), ("o", (32, 32)), ("b", (96,))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(normal(*shape) / 6, name))
    net = modelcc.compile(model, "metal", cache=None)
    share = net.report().device
    assert share is not None and share.host == ()
    for n in (1, 7, 40):
        feeds = {"x": normal(n, 32), "mask": np.tri(n, dtype=bool)}
        (wanted,) = onnxruntime_runner(model)(feeds).values()
        np.testing.assert_allclose(net.run(feeds)["y"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
def test_elements_of_every_width(dtype: type) -> None:
    check_elements(dtype, "metal")


def test_doubles_run_on_the_processor() -> None:
    build = GraphBuilder("both")
    build.input("x", TensorType((5, 3), F32))
    build.input("y", TensorType((5, 3), F64))
    outputs = [*build.add(Mul(), "x", "x"), *build.add(Mul(), "y", "y")]
    report = modelcc.compile(build.build(outputs), "metal", cache=None).report()
    assert report.device is not None
    assert (report.device.launches, len(report.device.host)) == (1, 1)
    assert any("Metal has no f64" in note for note in report.notes)


def test_a_saved_model_runs_and_is_profiled(tmp_path: Path) -> None:
    net = modelcc.compile(mlp("batch"), "metal", cache=None)
    net.save(tmp_path / "m.mcc")
    loaded = modelcc.load(tmp_path / "m.mcc")
    feeds = {"x": normal(3, 6)}
    for name, array in net.run(feeds).items():
        np.testing.assert_array_equal(loaded.run(feeds)[name], array)
    report = loaded.report(profile=feeds)
    assert report.device is not None and report.device.host == ()
    assert (report.device.uploads, report.device.downloads) == (1, 1)
    assert all(row.seconds is not None and row.seconds > 0 for row in report.kernels)


def test_a_long_line_is_sorted_by_many_groups() -> None:
    build = GraphBuilder("sorted")
    build.input("x", TensorType((3000,), U8))
    op = TopK(3000, 0)
    net = modelcc.compile(build.build(build.add(op, "x")), "metal", cache=None)
    share = net.report().device
    assert share is not None and share.host == ()
    x = np.random.default_rng(0).integers(0, 256, 3000).astype(np.uint8)
    for found, wanted in zip(net.run({"x": x}).values(), op.reference(x), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("index", [2**32 + 1, -(2**63), 5, -6])
def test_an_index_outside_ends_the_run(index: int) -> None:
    """The next run is as if nothing had been."""
    net = modelcc.compile(onnx.parser.parse_model(GATHER), target="metal", cache=None)
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    with pytest.raises(RunError, match=rf"look: index {index} is outside of -5 … 4"):
        net(x, np.array([0, index, 1]))
    np.testing.assert_array_equal(net(x, np.array([4, -5])), x[[4, 0]])
    assert net(x, np.zeros(0, np.int64)).shape == (0, 4)


def test_a_cache_is_changed_where_it_is() -> None:
    """An index outside leaves it as it was."""
    net = modelcc.compile(decoder(8), "metal", cache=None)
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


def test_states_that_change_places() -> None:
    graph = GRAPHS["exchange"]()
    net = modelcc.compile(graph, "metal", cache=None)
    assert graph.interface is not None
    kept, feeds = graph.interface.states, FEEDS["exchange"]
    now = {state.input: feeds[state.input] for state in kept.values()}
    net.reset({n: feeds[state.input] for n, state in kept.items()})
    given = {spec.name: feeds[spec.name] for spec in net.inputs}
    for _ in range(3):
        wanted = interpret(graph, {**given, **now})
        for n, array in net.run(given).items():
            np.testing.assert_allclose(array, wanted[n], 1e-5, 1e-5)
        now = {state.input: wanted[state.output] for state in kept.values()}
