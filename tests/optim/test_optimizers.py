"""Optimisers against torch's, over twenty steps, and where torch has none against their formula."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import modelcc
from modelcc import ModelError, Tensor, optim

STEPS = 20
SHAPES = {"layer.weight": (3, 4), "layer.bias": (4,), "scale": ()}

CASES: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "sgd": (optim.SGD(0.1), "SGD", {"lr": 0.1}),
    "momentum": (optim.SGD(0.1, momentum=0.9), "SGD", {"lr": 0.1, "momentum": 0.9}),
    "dampening": (
        optim.SGD(0.1, momentum=0.9, dampening=0.3, weight_decay=0.01),
        "SGD",
        {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01},
    ),
    "nesterov": (
        optim.SGD(0.1, momentum=0.9, nesterov=True),
        "SGD",
        {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    ),
    "adam": (optim.Adam(), "Adam", {}),
    "adam_decay": (optim.Adam(0.01, weight_decay=0.1), "Adam", {"lr": 0.01, "weight_decay": 0.1}),
    "amsgrad": (optim.Adam(0.01, amsgrad=True), "Adam", {"lr": 0.01, "amsgrad": True}),
    "adamw": (optim.AdamW(0.01), "AdamW", {"lr": 0.01}),
    "adamw_amsgrad": (optim.AdamW(0.01, amsgrad=True), "AdamW", {"lr": 0.01, "amsgrad": True}),
    "adagrad": (optim.Adagrad(), "Adagrad", {}),
    "adagrad_decay": (
        optim.Adagrad(0.1, lr_decay=0.1, weight_decay=0.01, initial_accumulator_value=0.5),
        "Adagrad",
        {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.01, "initial_accumulator_value": 0.5},
    ),
    "rmsprop": (optim.RMSprop(), "RMSprop", {}),
    "rmsprop_centered": (
        optim.RMSprop(momentum=0.9, centered=True, weight_decay=0.01),
        "RMSprop",
        {"momentum": 0.9, "centered": True, "weight_decay": 0.01},
    ),
}


def drawn(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {path: np.asarray(rng.normal(size=s), np.float32) for path, s in SHAPES.items()}


def updated(rule: optim.Optimizer, steps: int = STEPS) -> dict[str, np.ndarray]:
    """Parameters after ``steps`` updates by random gradients."""
    params = {path: Tensor(array) for path, array in drawn(0).items()}
    state, update = rule.init(params), modelcc.jit(rule.update)
    for step in range(steps):
        grads = {path: Tensor(array) for path, array in drawn(step + 1).items()}
        params, state = update(grads, state, params)
    return {path: param.numpy() for path, param in params.items()}


def assert_close(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert found.keys() == wanted.keys()
    for path, array in wanted.items():
        np.testing.assert_allclose(found[path], array, 2e-6, 2e-6, err_msg=path)


@pytest.mark.parametrize("name", CASES)
def test_parameters_are_those_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    rule, kind, arguments = CASES[name]
    params = {path: torch.tensor(array, requires_grad=True) for path, array in drawn(0).items()}
    theirs = getattr(torch.optim, kind)(params.values(), **arguments)
    for step in range(STEPS):
        for path, array in drawn(step + 1).items():
            params[path].grad = torch.tensor(array)
        theirs.step()
    assert_close(updated(rule), {p: x.detach().numpy() for p, x in params.items()})


def test_defaults_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    for kind in ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop"):
        weight = torch.zeros(1, requires_grad=True)
        theirs = getattr(torch.optim, kind)([weight]).defaults
        mine = vars(getattr(optim, kind)())
        mine["lr"] = mine.pop("learning_rate")
        assert {n: theirs[n] for n in mine} == mine, kind


def test_lion_moves_by_the_sign_of_a_mean() -> None:
    rule = optim.Lion(0.01, betas=(0.8, 0.9), weight_decay=0.1)
    params = drawn(0)
    means = {path: np.zeros_like(array) for path, array in params.items()}
    for step in range(STEPS):
        for path, g in drawn(step + 1).items():
            way = np.sign(0.8 * means[path] + 0.2 * g)
            params[path] = params[path] * (1 - 0.01 * 0.1) - 0.01 * way
            means[path] = 0.9 * means[path] + 0.1 * g
    assert_close(updated(rule), params)


def test_nothing_changes_without_a_gradient() -> None:
    params = {"a": Tensor([1.0]), "b": Tensor([2.0])}
    rule = optim.Adam(0.1)
    state = rule.init(params)
    made, after = rule.update({"a": Tensor([1.0])}, state, params)
    assert made["b"] is params["b"]
    assert after["exp_avg"]["b"] is state["exp_avg"]["b"]
    np.testing.assert_allclose(made["a"], [0.9], 1e-6)
    assert int(after["step"]) == 1
    assert int(state["step"]) == 0


def test_parameters_keep_their_types() -> None:
    for dtype in ("f16", "bf16", "f64"):
        params = {"a": Tensor([1.0, 2.0], dtype)}
        rule = optim.AdamW(0.1, amsgrad=True)
        made, state = rule.update({"a": Tensor([1.0, -1.0])}, rule.init(params), params)
        assert str(made["a"].dtype) == dtype
        assert str(state["exp_avg"]["a"].dtype) == dtype
        np.testing.assert_allclose(made["a"].astype("f32"), [0.899, 2.098], 1e-2)


def test_groups_have_optimisers_of_their_own() -> None:
    params = {path: Tensor(array) for path, array in drawn(0).items()}
    grads = {path: Tensor(array) for path, array in drawn(1).items()}
    sgd = optim.SGD(0.1, momentum=0.9)
    rule = optim.Groups({"*.bias": sgd, "scale": None, "*": replace(sgd, learning_rate=0.5)})
    state = rule.init(params)
    assert state.keys() == {"0", "2"}
    assert state["0"]["momentum_buffer"].keys() == {"layer.bias"}
    made, state = rule.update(grads, state, params)
    assert made["scale"] is params["scale"]
    for path, rate in (("layer.bias", 0.1), ("layer.weight", 0.5)):
        wanted = params[path].numpy() - np.float32(rate) * grads[path].numpy()
        np.testing.assert_allclose(made[path], wanted, 1e-6)
    assert int(state["2"]["step"]) == 1


def test_groups_say_what_they_miss() -> None:
    params = {"weight": Tensor([1.0])}
    with pytest.raises(ModelError, match="'weight' is in no group"):
        optim.Groups({"*.bias": optim.SGD()}).init(params)
    with pytest.raises(ModelError, match=r"no parameter is in the group '\*\.bias'"):
        optim.Groups({"*.bias": optim.SGD(), "*": optim.SGD()}).init(params)


def test_what_is_no_parameter_is_refused() -> None:
    rule = optim.SGD()
    with pytest.raises(ModelError, match=r"'count' is i64\[\], which has no gradient"):
        rule.init({"count": Tensor(0)})
    params = {"a": Tensor([1.0])}
    with pytest.raises(ModelError, match=r"a gradient of 'b', which is no parameter.*\n.*: a"):
        rule.update({"b": Tensor([1.0])}, rule.init(params), params)
    with pytest.raises(ModelError, match="nesterov needs a momentum"):
        optim.SGD(nesterov=True)
