"""Simulated bytes, their gradients, and networks that have them in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import modelcc
from conformance.onnx_emission import run_model
from modelcc import Input, ModelError, Tensor, nn
from modelcc.driver import NOWHERE, pipeline, target_of
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import Array
from modelcc.nn.quantization import (
    FakeQuantize,
    SimulatedLayer,
    calibrated,
    converted,
    fake_quantize,
    prepared,
)
from modelcc.ops.quant_matmul import ConvInteger, MatMulInteger
from modelcc.options import Options
from modelcc.pipeline import before_block, run_stages


def array(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_values_are_those_of_bytes() -> None:
    x = np.array([-5, -0.2, 0.0, 0.26, 0.9, 40], np.float32)
    y = fake_quantize(Tensor(x), Tensor(np.float32(0.1)), Tensor(np.uint8(3)))
    np.testing.assert_allclose(y, [-0.3, -0.2, 0, 0.3, 0.9, 25.2], rtol=1e-5)


def test_gradients_go_straight_through_in_range() -> None:
    x = np.array([-5, -0.2, 0.0, 0.26, 0.9, 40], np.float32)
    weights = np.arange(1, 7).astype(np.float32)

    def loss(x: Tensor, scale: Tensor) -> Tensor:
        y = fake_quantize(x, scale, Tensor(np.uint8(3)))
        return nn.functional.mse_loss(y * Tensor(weights), y * 0, reduction="sum")

    dx, dscale = modelcc.jit(modelcc.grad(loss, (0, 1)))(Tensor(x), Tensor(np.float32(0.1)))
    y = np.clip(np.round(x / 0.1) + 3, 0, 255) * 0.1 - 0.3
    dy = 2 * y * weights**2
    inside = np.array([0, 1, 1, 1, 1, 0])
    np.testing.assert_allclose(dx, dy * inside, rtol=1e-4)
    expected = np.sum(dy * (y - x * inside) / 0.1) / np.sqrt(6 * 255)
    np.testing.assert_allclose(dscale, expected, rtol=1e-3)


def test_gradients_are_torchs() -> None:
    torch: Any = pytest.importorskip("torch")
    x, scale = array(3, 4, 5) * 2, np.array([0.01, 0.02, 0.05, 0.005], np.float32)
    zeros = np.zeros(4, np.int8)
    tx = torch.tensor(x, requires_grad=True)
    ty = torch.fake_quantize_per_channel_affine(
        tx, torch.tensor(scale), torch.zeros(4, dtype=torch.int32), 1, -128, 127
    )
    (ty**2).sum().backward()

    def loss(x: Tensor) -> Tensor:
        y = fake_quantize(x, Tensor(scale), Tensor(zeros), 1)
        return nn.functional.mse_loss(y, y * 0, reduction="sum")

    np.testing.assert_allclose(modelcc.grad(loss)(Tensor(x)), tx.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_a_range_follows_what_is_seen() -> None:
    fake = FakeQuantize("u8", averaging=0.5)
    fake(Tensor([-1.0, 3.0]))
    np.testing.assert_allclose((fake.low, fake.high), (-1, 3))
    fake(Tensor([0.0, 7.0]))
    np.testing.assert_allclose((fake.low, fake.high), (-0.5, 5))
    np.testing.assert_allclose(fake.scale, 5.5 / 255, rtol=1e-6)
    assert int(fake.zero_point) == round(0.5 / (5.5 / 255))
    fake.eval()
    fake(Tensor([-100.0, 100.0]))
    np.testing.assert_allclose((fake.low, fake.high), (-0.5, 5))


def test_each_slice_has_its_scale() -> None:
    fake = FakeQuantize("i8", 0, 2, averaging=1.0)
    y = fake(Tensor([[127.0, -1.2], [0.127, 0.0104]]))
    np.testing.assert_allclose(fake.scale, [1, 0.001], rtol=1e-6)
    np.testing.assert_allclose(y, [[127, -1], [0.127, 0.01]], rtol=1e-5)


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, rng=0),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, rng=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 36, 10, rng=2),
    )


def lowered(graph: Graph) -> Graph:
    """After all passes on graphs."""
    options = Options(threads=1, cpu="x86-64-v4")
    stages = pipeline(target_of(options, NOWHERE), options, NOWHERE)
    return run_stages(before_block(stages, "lower"), graph)


def test_a_converted_network_runs_on_integers_and_is_what_was_simulated() -> None:
    x = array(4, 3, 8, 8)
    simulated = calibrated(prepared(network()), [Tensor(x), Tensor(array(4, 3, 8, 8, seed=1))])
    expected = simulated.eval()(Tensor(x)).numpy()
    net = converted(simulated)
    graph = modelcc.trace(lambda x: net(x), Input((4, 3, 8, 8)))
    kinds = [type(node.op) for node in lowered(graph.graph).nodes]
    assert kinds.count(ConvInteger) + kinds.count(MatMulInteger) >= 3
    found = graph.compile()(x)
    # A rounding of an operand that falls to the other side moves a result by a step at most.
    step = float(np.abs(expected).max()) / 127
    np.testing.assert_allclose(found, expected, atol=step)
    plain = network().eval()(Tensor(x)).numpy()
    assert np.abs(found - plain).max() < 0.1 * np.abs(plain).max()


def test_onnxruntime_runs_an_exported_network_on_its_bytes(tmp_path: Path) -> None:
    x = array(4, 3, 8, 8)
    net = converted(calibrated(prepared(network()), [Tensor(x)]))
    graph = modelcc.trace(lambda x: net(x), Input(("n", 3, 8, 8))).graph
    modelcc.export_onnx(graph, tmp_path / "net.onnx")
    model = onnx.load(tmp_path / "net.onnx")
    kinds = [onnx.TensorProto.DataType.Name(i.data_type) for i in model.graph.initializer]
    assert kinds.count("INT8") >= 3  # weights, and no floats of their size
    assert sum(np.prod(i.dims) for i in model.graph.initializer if i.data_type == 1) < 100
    (found,) = run_model(model, {graph.inputs[0]: x})
    expected = interpret(graph, {graph.inputs[0]: x})[graph.outputs[0]]
    step = float(np.abs(expected).max()) / 127
    np.testing.assert_allclose(found, expected, atol=step)
    assert np.median(np.abs(found - expected)) < 1e-5


@pytest.mark.parametrize("learned", [False, True])
def test_a_simulated_network_learns(learned: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 6)).astype(np.float32)
    labels = (x[:, 0] * x[:, 1] > 0).astype(np.int64)
    plain = nn.Sequential(nn.Linear(6, 16, rng=0), nn.Tanh(), nn.Linear(16, 2, rng=1))
    net = calibrated(prepared(plain, learned=learned), [Tensor(x)])

    def loss(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> Any:
        copy = net.with_parameters(parameters).with_buffers(buffers)
        found = nn.functional.cross_entropy(copy(Tensor(x)), Tensor(labels))
        return found, copy.buffers()

    step = modelcc.jit(modelcc.value_and_grad(loss, has_aux=True))
    parameters, buffers, losses = net.parameters(), net.buffers(), list[float]()
    for _ in range(80):
        (value, buffers), slopes = step(parameters, buffers)
        parameters = {n: Tensor(p.numpy() - 0.5 * slopes[n].numpy()) for n, p in parameters.items()}
        losses.append(float(value))
    assert losses[-1] < 0.7 * losses[0]
    assert ("0.weight.scale" in parameters) == learned
    trained = net.with_parameters(parameters).with_buffers(buffers)
    simulated = trained.eval()(Tensor(x)).numpy()
    found = converted(trained)(Tensor(x)).numpy()
    np.testing.assert_allclose(found, simulated, atol=np.abs(simulated).max() / 50)


def test_only_chosen_layers_simulate() -> None:
    net = prepared(network(), lambda path: path != "0")
    kinds = [type(part) for part in net.children()]
    assert kinds.count(SimulatedLayer) == 2
    assert kinds[0] is nn.Conv2d


def test_a_network_without_such_layers_is_refused() -> None:
    with pytest.raises(ModelError, match="has no linear layers or convolutions"):
        prepared(nn.Sequential(nn.ReLU()))
    with pytest.raises(ModelError, match="no layers that simulate bytes"):
        converted(network())
