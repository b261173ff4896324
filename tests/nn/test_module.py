"""Modules: what they are made of, by name and as trees, and what is wrong with a call."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import modelcc
from modelcc import ModelError, Tensor, nn
from modelcc.nn import functional
from modelcc.tensor.lazy import FREE


class Net(nn.Module):
    """Two layers, a list, a parameter of its own and two buffers."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.first = nn.Linear(3, 4, rng=rng)
        self.norm = nn.BatchNorm1d(4)
        self.rest = [nn.Linear(4, 4, rng=rng), nn.Dropout(0.5, rng=rng)]
        self.scale = nn.Parameter(np.ones(4, np.float32))
        self.offset = Tensor(np.zeros(4, np.float32))
        self.width = 4

    def forward(self, x: Any) -> Tensor:
        x = self.norm(self.first(x))
        for layer in self.rest:
            x = layer(x)
        return x * self.scale + self.offset

    def reset_parameters(self, rng: np.random.Generator) -> None:
        self.scale = Tensor(rng.uniform(0.5, 1.5, 4), "f32")


X = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
PARAMETERS = ["first.weight", "first.bias", "norm.weight", "norm.bias",
              "rest.0.weight", "rest.0.bias", "scale"]  # fmt: skip
BUFFERS = ["norm.running_mean", "norm.running_var", "norm.num_batches_tracked",
           "rest.1.key", "offset"]  # fmt: skip


def test_tensors_have_names() -> None:
    net = Net()
    assert list(net.parameters()) == PARAMETERS
    assert list(net.buffers()) == BUFFERS
    assert set(net.state_dict()) == {*PARAMETERS, *BUFFERS} - {"rest.1.key"}
    assert list(net.modules()) == ["", "first", "norm", "rest.0", "rest.1"]
    assert [type(m).__name__ for m in net.children()] == [
        "Linear",
        "BatchNorm1d",
        "Linear",
        "Dropout",
    ]


def test_a_copy_has_other_tensors_and_the_module_its_own() -> None:
    net = Net()
    before = net.first.weight
    copy = net.with_parameters({"first.weight": before + 1})
    assert net.first.weight is before
    np.testing.assert_array_equal(copy.first.weight.numpy(), before.numpy() + 1)
    assert copy.parameters()["rest.0.weight"] is net.parameters()["rest.0.weight"]
    with pytest.raises(ModelError, match=r"is 'first\.wieght' meant to be 'first\.weight'"):
        net.with_parameters({"first.wieght": before})
    with pytest.raises(ModelError, match=r"first.weight: f32\[4\] for f32\[4, 3\]"):
        net.with_parameters({"first.weight": net.scale})
    with pytest.raises(ModelError, match="unknown: offset"):
        net.with_parameters({"offset": net.scale})


def test_one_tensor_at_two_places_is_trained_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            self.embedding = nn.Embedding(6, 4, rng=0)
            self.head = nn.Linear(4, 6, bias=False, rng=0)
            self.head.weight = self.embedding.weight

        def forward(self, x: Any) -> Tensor:
            return self.head(self.embedding(x))

    net = Tied()
    assert list(net.parameters()) == ["embedding.weight"]
    assert list(net.state_dict()) == ["embedding.weight", "head.weight"]
    copy = net.with_parameters({"embedding.weight": net.embedding.weight * 2})
    assert copy.head.weight is copy.embedding.weight
    copy.load_state_dict(net.state_dict())
    assert copy.head.weight is copy.embedding.weight


def test_copies_are_trained_apart() -> None:
    layer = nn.Linear(3, 3, rng=0)
    several = nn.ModuleList([layer, deepcopy(layer)])
    assert len(several.parameters()) == 4
    np.testing.assert_array_equal(several[0].weight.numpy(), several[1].weight.numpy())


def test_layers_of_one_stack_begin_alike_and_are_trained_apart() -> None:
    stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, rng=0), 2, rng=0)
    first, second = stack.layers
    np.testing.assert_array_equal(first.linear1.weight.numpy(), second.linear1.weight.numpy())
    assert (first.dropout.key.numpy() != second.dropout.key.numpy()).any()
    assert len(stack.parameters()) == 2 * len(first.parameters())


def test_a_compiled_module_keeps_what_it_changes() -> None:
    net, other = Net(), Net()
    step = modelcc.jit(net, shapes={"x": ("batch", 3)})
    for _ in range(2):
        np.testing.assert_allclose(step(X).numpy(), other(X).numpy(), rtol=1e-5, atol=1e-5)
    for name, tensor in other.buffers().items():
        np.testing.assert_allclose(net.buffers()[name].numpy(), tensor.numpy(), rtol=1e-6)
    net.load_state_dict({n: t.numpy() + 1 for n, t in net.state_dict().items()})
    other.load_state_dict(net.state_dict())
    net.eval()
    other.eval()
    np.testing.assert_allclose(step(X).numpy(), other(X).numpy(), rtol=1e-5, atol=1e-5)


def test_tracing_leaves_a_module_as_it_is() -> None:
    net = Net()
    before = net.buffers()
    graph = modelcc.trace(net, modelcc.Input(("n", 3)))
    assert {n: t is before[n] for n, t in net.buffers().items()} == dict.fromkeys(before, True)
    assert [str(t.type) for t in graph.outputs.values()] == ["f32[n, 4]"]
    assert list(graph.inputs) == ["x"]


def test_what_is_frozen_is_no_parameter() -> None:
    net = Net().freeze("first", "rest.0.bias")
    assert list(net.frozen_parameters()) == ["first.weight", "first.bias", "rest.0.bias"]
    assert "first.weight" in net.state_dict()
    assert list(net.unfreeze("first.bias").frozen_parameters()) == ["first.weight", "rest.0.bias"]
    assert list(net.freeze().parameters()) == []
    assert list(net.unfreeze().parameters()) == PARAMETERS
    assert list(net.freeze("scale").initialize(0).frozen_parameters()) == ["scale"]
    with pytest.raises(ModelError, match="no parameters at firts"):
        net.freeze("firts")


def test_a_seed_gives_the_same_values() -> None:
    one, other = Net().initialize(3), Net().initialize(3)
    for name, tensor in {**one.state_dict(), **one.buffers()}.items():
        found = {**other.state_dict(), **other.buffers()}[name]
        np.testing.assert_array_equal(tensor.numpy(), found.numpy())
    assert (one.first.weight.numpy() != Net().initialize(4).first.weight.numpy()).any()

    wide = Net().astype("f64").initialize(3)
    assert {t.dtype.name for t in wide.parameters().values()} == {"f64"}
    np.testing.assert_array_equal(wide.first.weight.numpy(), one.first.weight.numpy())

    class Own(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter(1.0)

    with pytest.raises(ModelError, match="Own does not say how its parameters are drawn"):
        Own().initialize(0)


def test_modes_are_those_of_all_modules() -> None:
    net = Net()
    first, second = net(X), net(X)
    assert (first.numpy() != second.numpy()).any()
    assert net.buffers()["norm.num_batches_tracked"].item() == 2
    net.eval()
    np.testing.assert_array_equal(net(X).numpy(), net(X).numpy())
    assert net.buffers()["norm.num_batches_tracked"].item() == 2
    assert all(m.training for m in net.train().modules().values())


def test_dropout_keeps_the_mean_and_drops_its_share() -> None:
    layer = nn.Dropout(0.25, rng=0)
    y = layer(np.ones((200, 500), np.float32)).numpy()
    np.testing.assert_allclose(sorted(set(y.ravel().tolist())), [0, 4 / 3], rtol=1e-6)
    assert abs((y == 0).mean() - 0.25) < 0.01
    rows = (y == 0).mean(1)  # of 500 each: a deviation of 0.0194
    assert 0.015 < rows.std() < 0.025
    channels = nn.Dropout2d(0.5, rng=0)(np.ones((64, 8, 3, 3), np.float32)).numpy()
    assert ((channels == channels[:, :, :1, :1]).all()) and 0.4 < (channels == 0).mean() < 0.6


def test_buffers_keep_no_history() -> None:
    """Statistics of many steps depend on no step before."""
    net = nn.Sequential(nn.Linear(3, 4, rng=0), nn.BatchNorm1d(4))

    def loss(params: dict[str, Tensor], x: Any) -> tuple[Tensor, dict[str, Tensor]]:
        copy = net.with_parameters(params)
        return functional.mse_loss(copy(x), np.ones((5, 4), np.float32)), copy.buffers()

    (_, buffers), _ = modelcc.value_and_grad(loss, has_aux=True)(net.parameters(), X)
    mean = buffers["1.running_mean"]
    assert mean.phase == FREE
    mean.numpy()
    assert mean.operands == ()


def test_lists_of_parameters_and_attributes_of_none() -> None:
    class Several(nn.Module):
        def __init__(self) -> None:
            self.weights = [nn.Parameter([1.0, 2.0]), nn.Parameter([3.0])]
            self.table = {"a": nn.Buffer([1, 2]), "b": nn.Buffer([3])}
            self.nothing = None

    module = Several()
    assert list(module.parameters()) == ["weights.0", "weights.1"]
    assert list(module.buffers()) == ["table.a", "table.b"]
    with pytest.raises(ModelError, match="several roles"):
        module.mixed = [nn.Parameter([1.0]), nn.Buffer([1.0])]
    with pytest.raises(ModelError, match="a parameter of i64 cannot be trained"):
        nn.Parameter([1, 2])


def test_gradients_by_a_module_are_a_module() -> None:
    net = nn.Sequential(nn.Linear(3, 4, rng=0), nn.Tanh(), nn.Linear(4, 1, rng=0))
    found = modelcc.grad(lambda m, x: (m(x) * m(x)).mean())(net, Tensor(X))
    assert {n: t.shape for n, t in found.parameters().items()} == {
        n: t.shape for n, t in net.parameters().items()
    }


def test_an_attribute_that_may_change_unseen_is_refused() -> None:
    net = nn.Linear(3, 4)
    net.table = np.zeros(3)  # type: ignore[attr-defined]
    with pytest.raises(ModelError, match="attribute 'table' is a ndarray, which may change"):
        modelcc.jit(lambda m, x: m(x))(net, Tensor(X))


def test_containers() -> None:
    layers = nn.Sequential({"a": nn.Linear(3, 4), "b": nn.ReLU(), "c": nn.Linear(4, 2)})
    assert list(layers.parameters()) == ["a.weight", "a.bias", "c.weight", "c.bias"]
    assert isinstance(layers[1], nn.ReLU) and len(layers) == 3
    assert [type(m) for m in layers[:2]] == [nn.Linear, nn.ReLU]
    several = nn.ModuleList([nn.Linear(1, 1) for _ in range(3)]).append(nn.ReLU())
    assert list(several.modules()) == ["", "0", "1", "2", "3"]
    several[-1] = nn.Tanh()
    assert isinstance(several[3], nn.Tanh)
    with pytest.raises(ModelError, match="a function among modules"):
        nn.Sequential(nn.Linear(3, 4), functional.relu)  # type: ignore[arg-type]
    named = nn.ModuleDict({"x": nn.Linear(1, 2), "y": nn.ReLU()})
    assert list(named) == ["x", "y"] and "x" in named and isinstance(named["y"], nn.ReLU)
    assert list(named.parameters()) == ["x.weight", "x.bias"]


def test_an_error_names_the_layer_its_place_and_the_line() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), nn.Linear(5, 2)))
    with pytest.raises(ModelError) as error:
        net(X)
    text = str(error.value)
    assert "test_module.py:" in text
    assert "1.1 of the Sequential: Linear(in_features=5, out_features=2) of f32[5, 4]" in text
    assert "linear needs 5 features in the last axis of x, not f32[5, 4]" in text


@pytest.mark.parametrize(
    ("layer", "x", "words"),
    [
        (nn.Conv2d(3, 4, 3), np.zeros((1, 2, 8, 8), np.float32), "input channels differ: 2"),
        (nn.Conv2d(3, 4, 3), np.zeros((8, 8), np.float32), "Conv needs"),
        (nn.Linear(3, 4), np.zeros((1, 3)), "f64"),
        (nn.BatchNorm2d(3), np.zeros((2, 4, 2, 2), np.float32), "BatchNorm2d needs"),
        (nn.LayerNorm(3), np.zeros((2, 4), np.float32), r"are not \[3\]"),
        (nn.LSTM(3, 4), np.zeros((2, 2, 5), np.float32), "LSTM needs"),
        (nn.Embedding(3, 4), np.zeros(2, np.float32), "integer"),
        (nn.PixelShuffle(2), np.zeros((1, 6, 2, 2), np.float32), "do not divide"),
        (nn.Upsample(3, mode="bilinear"), np.zeros((1, 2, 3), np.float32), "bilinear"),
        (nn.MaxPool2d((2, 2, 2)), np.zeros((1, 2, 3, 3), np.float32), "spatial axes"),
        (nn.Softmax(4), np.zeros((1, 2), np.float32), "axis 4"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_wrong_inputs_are_refused(layer: nn.Module, x: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words) as error:
        layer(x)
    assert type(layer).__name__ in str(error.value)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ModelError, match="do not divide into 2 groups"):
        nn.Conv2d(3, 4, 3, groups=2)
    with pytest.raises(ModelError, match="do not divide into 4 heads"):
        nn.MultiheadAttention(6, 4)
    with pytest.raises(ModelError, match=r"a chance of 1\.5"):
        nn.Dropout(1.5)
    with pytest.raises(ModelError, match="spatial axes"):
        nn.Conv2d(3, 4, (3, 3, 3))
    with pytest.raises(ModelError, match="needs a key"):
        functional.dropout(X)
    with pytest.raises(ModelError, match="both need one shape"):
        functional.mse_loss(X, X[:, :1])
    with pytest.raises(ModelError, match="targets"):
        functional.cross_entropy(X, X[:2].astype(np.int64))


def test_classes_of_any_integers() -> None:
    scores, classes = X, np.array([0, 1, 2, 2, 0])
    costs = [
        functional.cross_entropy(scores, classes.astype(kind), label_smoothing=0.1).item()
        for kind in (np.int64, np.int32, np.uint8)
    ]
    assert costs[0] == costs[1] == costs[2]


def test_a_class_that_there_is_not_ends_the_run() -> None:
    with pytest.raises(modelcc.RunError):
        functional.cross_entropy(X, np.array([0, 1, 3, 2, 0])).numpy()


def test_the_page_names_every_layer_and_function() -> None:
    page = (Path(__file__).parents[2] / "docs" / "layers.md").read_text("utf-8")
    named = set(re.findall(r"\w+", page))

    def is_named(name: str) -> bool:
        return name in named or re.sub(r"[123]d$", "Nd", name) in named

    assert [name for name in nn.__all__ if not is_named(name)] == []
