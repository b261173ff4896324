"""Imported models that are trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import modelcc
from modelcc import ModelError, Tensor, nn
from modelcc.ir.types import Array
from modelcc.nn.imported import GraphModule

CLASSES = 4


def small_net(double: bool = False) -> onnx.ModelProto:
    """Convolution, norm, activation, convolution, pooling and a linear head."""
    rng = np.random.default_rng(0)
    kind = np.float64 if double else np.float32
    weights: dict[str, Array] = {
        "features.0.weight": rng.normal(size=(6, 3, 3, 3)) * 0.3,
        "features.1.weight": np.ones(6),
        "features.1.bias": np.zeros(6),
        "features.1.running_mean": rng.normal(size=6) * 0.1,
        "features.1.running_var": rng.uniform(0.5, 1.5, 6),
        "features.3.weight": rng.normal(size=(5, 6, 3, 3)) * 0.3,
        "features.3.bias": np.zeros(5),
        "head.weight": rng.normal(size=(CLASSES, 5)),
        "head.bias": np.zeros(CLASSES),
    }
    norm = [f"features.1.{name}" for name in ("weight", "bias", "running_mean", "running_var")]
    nodes = [
        helper.make_node("Conv", ["x", "features.0.weight"], ["c1"], pads=[1] * 4),
        helper.make_node("BatchNormalization", ["c1", *norm], ["n1"], epsilon=1e-5),
        helper.make_node("Relu", ["n1"], ["r1"]),
        helper.make_node("Conv", ["r1", "features.3.weight", "features.3.bias"], ["c2"]),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("GlobalAveragePool", ["r2"], ["p"]),
        helper.make_node("Flatten", ["p"], ["flat"]),
        helper.make_node("Gemm", ["flat", "head.weight", "head.bias"], ["y"], transB=1),
    ]
    element = TensorProto.DOUBLE if double else TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", element, ["batch", 3, 8, 8])],
        [helper.make_tensor_value_info("y", element, ["batch", CLASSES])],
        [numpy_helper.from_array(w.astype(kind), name) for name, w in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model)
    return model


def images(count: int, double: bool = False) -> Array:
    found = np.random.default_rng(1).normal(size=(count, 3, 8, 8))
    return found if double else found.astype(np.float32)


def squares(net: Any, x: Tensor) -> Tensor:
    y = net(x)
    return nn.functional.mse_loss(y, y * 0 + 1)


def test_it_computes_what_the_model_does() -> None:
    import_ = modelcc.load_onnx(small_net())
    expected = modelcc.compile(small_net())(images(3))
    for norms in ("fixed", "folded"):
        net = import_.trainable(batch_norm=norms).eval()
        np.testing.assert_allclose(net(Tensor(images(3))), expected, rtol=1e-4, atol=1e-5)


def test_parameters_have_the_names_of_initializers() -> None:
    net = modelcc.load_onnx(small_net()).trainable()
    assert list(net.parameters()) == [
        *("features.0.weight", "features.1.weight", "features.1.bias"),
        *("features.3.weight", "features.3.bias", "head.weight", "head.bias"),
    ]
    assert list(net.buffers()) == ["features.1.running_mean", "features.1.running_var"]


@pytest.mark.parametrize("select", ["head", ["head.*"], lambda name: name.startswith("head")])
def test_some_are_trained_and_others_frozen(select: Any) -> None:
    net = modelcc.load_onnx(small_net()).trainable(select)
    assert list(net.parameters()) == ["head.weight", "head.bias"]
    assert "features.0.weight" in net.frozen_parameters()


def test_gradients_are_those_of_finite_differences() -> None:
    net = modelcc.load_onnx(small_net(double=True)).trainable()
    x = Tensor(images(2, double=True))

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        return squares(net.with_parameters(parameters), x)

    parameters = net.parameters()
    slopes = modelcc.jit(modelcc.grad(loss))(parameters)
    step, value = 1e-6, modelcc.jit(loss)
    for name, tensor in parameters.items():
        direction = np.random.default_rng(2).normal(size=tensor.shape)
        high, low = (
            float(value({**parameters, name: Tensor(tensor.numpy() + s * direction)}))
            for s in (step, -step)
        )
        slope = np.sum(slopes[name].numpy() * direction)
        assert slope == pytest.approx((high - low) / (2 * step), rel=1e-5, abs=1e-9)


def test_gradients_are_torchs() -> None:
    torch: Any = pytest.importorskip("torch")
    functional = torch.nn.functional
    net = modelcc.load_onnx(small_net()).trainable()
    w = {n: torch.tensor(t.numpy()) for n, t in net.state_dict().items()}
    trained = {n: w[n].requires_grad_() for n in net.parameters()}
    x = torch.tensor(images(3))
    y = functional.conv2d(x, w["features.0.weight"], padding=1)
    scales = (w["features.1.weight"], w["features.1.bias"])
    stats = (w["features.1.running_mean"], w["features.1.running_var"])
    y = functional.relu(functional.batch_norm(y, *stats, *scales))
    y = functional.relu(functional.conv2d(y, w["features.3.weight"], w["features.3.bias"]))
    y = functional.linear(y.mean((2, 3)), w["head.weight"], w["head.bias"])
    ((y - 1) ** 2).mean().backward()

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        return squares(net.with_parameters(parameters), Tensor(images(3)))

    slopes = modelcc.grad(loss)(net.parameters())
    for name, tensor in trained.items():
        np.testing.assert_allclose(slopes[name], tensor.grad.numpy(), rtol=1e-3, atol=1e-5)


def test_norms_follow_the_batches() -> None:
    net = modelcc.load_onnx(small_net()).trainable(batch_norm="training")
    x = images(4)
    before = {name: tensor.numpy() for name, tensor in net.buffers().items()}
    net(Tensor(x))
    weight = net.parameters()["features.0.weight"].numpy()
    c1 = nn.functional.conv2d(Tensor(x), Tensor(weight), padding=1).numpy()
    moments = {"running_mean": c1.mean((0, 2, 3)), "running_var": c1.var((0, 2, 3), ddof=1)}
    for name, moment in moments.items():
        old = before[f"features.1.{name}"]
        found = net.buffers()[f"features.1.{name}"]
        np.testing.assert_allclose(found, 0.9 * old + 0.1 * moment, rtol=1e-3, atol=1e-5)
    net.eval()
    kept = net.buffers()["features.1.running_mean"]
    net(Tensor(x))
    assert net.buffers()["features.1.running_mean"] is kept


class Transferred(nn.Module):
    """Features of another model, and a new head."""

    def __init__(self, features: GraphModule, classes: int) -> None:
        self.features = features
        self.head = nn.Linear(5, classes, rng=0)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def trained(net: Any, x: Array, labels: Array, steps: int) -> Sequence[float]:
    """Losses of gradient descent."""

    def loss(parameters: dict[str, Tensor], x: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(net.with_parameters(parameters)(x), labels)

    step = modelcc.jit(modelcc.value_and_grad(loss))
    parameters, losses = net.parameters(), list[float]()
    for _ in range(steps):
        value, slopes = step(parameters, Tensor(x), Tensor(labels))
        parameters = {n: Tensor(p.numpy() - 0.5 * slopes[n].numpy()) for n, p in parameters.items()}
        losses.append(float(value))
    return losses


def test_a_new_head_learns_on_old_features() -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, 40)
    x = images(40) + np.float32(1.5) * labels[:, None, None, None].astype(np.float32)
    features = modelcc.load_onnx(small_net()).trainable(output="flat").freeze()
    net = Transferred(features, 2)
    assert list(net.parameters()) == ["head.weight", "head.bias"]
    losses = trained(net, x, labels, 60)
    assert losses[-1] < losses[0] / 2
    assert "head.weight" not in features.state_dict()


def test_what_is_wrong_is_told() -> None:
    model = modelcc.load_onnx(small_net())
    assert model.values()["flat"] == "f32[batch, 5]"
    with pytest.raises(ModelError, match="has no value 'nowhere'"):
        model.trainable(output="nowhere")
    with pytest.raises(ModelError, match="'tail' selects none of"):
        model.trainable("tail")
    with pytest.raises(ModelError, match=r"input 'x' must be f32\[batch, 3, 8, 8\]"):
        model.trainable()(Tensor(images(2)[:, :2]))
