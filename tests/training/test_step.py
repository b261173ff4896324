"""A compiled step of training: what it computes, and what it keeps."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import modelcc
from modelcc import ModelError, Tensor, nn, optim, training

Array = np.ndarray
BATCH = 8


def batch(seed: int = 0, size: int = BATCH) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(size, 3, 6, 6)).astype(np.float32)
    return x, rng.integers(0, 4, size)


def network(*extra: nn.Module) -> nn.Sequential:
    rng = np.random.default_rng(0)
    return nn.Sequential(
        nn.Conv2d(3, 5, 3, rng=rng),
        nn.BatchNorm2d(5),
        nn.ReLU(),
        *extra,
        nn.Flatten(),
        nn.Linear(80, 4, rng=rng),
    )


def loss(model: Any, x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    z = model(x)
    right = (z.argmax(1) == y).astype("f32").mean()
    return nn.functional.cross_entropy(z, y), {"accuracy": right}


def weights() -> dict[str, Tensor]:
    rng = np.random.default_rng(0)
    shapes = {"w": (4, 3), "b": (3,)}
    return {n: Tensor(rng.normal(size=s).astype(np.float32)) for n, s in shapes.items()}


def squares(params: dict[str, Tensor], x: Tensor) -> Tensor:
    return (x @ params["w"] + params["b"]).square().mean()


def rows(seed: int = 0, size: int = BATCH) -> Array:
    return np.random.default_rng(seed).normal(size=(size, 4)).astype(np.float32)


def assert_close(found: dict[str, Any], wanted: dict[str, Any], tolerance: float = 1e-5) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, tolerance, tolerance, err_msg=name)


def test_a_step_is_gradient_and_update() -> None:
    rule, clip = optim.Adam(0.05), optim.ClipGlobalNorm(0.5)
    step = training.TrainStep(weights(), squares, rule, clip=clip, threads=1)
    params = weights()
    state, gradient = rule.init(params), modelcc.value_and_grad(squares)
    for seed in range(3):
        reported = step(rows(seed))
        value, grads = gradient(params, Tensor(rows(seed)))
        params, state = rule.update(clip(grads), state, params)
        assert reported.keys() == {"loss"}
        np.testing.assert_allclose(reported["loss"], value, 1e-5)
    assert_close(step.module, params)
    assert step.values["optimizer.step"] == 3


def test_modules_are_trained_with_their_buffers() -> None:
    torch = pytest.importorskip("torch")
    model = network()
    theirs = torch.nn.Sequential(
        torch.nn.Conv2d(3, 5, 3),
        torch.nn.BatchNorm2d(5),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(80, 4),
    )
    mine = {n: torch.tensor(x.numpy()) for n, x in model.state_dict().items()}
    theirs.load_state_dict(mine)
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1, momentum=0.9)
    step = training.TrainStep(model, loss, optim.SGD(0.1, momentum=0.9), threads=1)
    for seed in range(5):
        x, y = batch(seed)
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y))
        value.backward()
        optimizer.step()
        np.testing.assert_allclose(step(x, y)["loss"], value.item(), 1e-5)
    assert_close(step.module.state_dict(), theirs.state_dict(), 1e-4)
    x, y = batch(9)
    theirs.eval()
    value = torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y))
    np.testing.assert_allclose(step.evaluate(x, y)["loss"], value.item(), 1e-5)
    assert model.state_dict()["1.num_batches_tracked"].item() == 0


def test_keys_of_random_numbers_are_kept() -> None:
    step = training.TrainStep(network(nn.Dropout(0.5, rng=1)), loss, optim.SGD(0.0), threads=1)
    x, y = batch()
    keys = [step.values["model.3.key"]]
    losses: list[float] = []
    for _ in range(3):
        losses.append(float(step(x, y)["loss"]))
        keys.append(step.values["model.3.key"])
    assert len(set(losses)) == 3
    assert len({key.tobytes() for key in keys}) == 4
    assert len({float(step.evaluate(x, y)["loss"]) for _ in range(3)}) == 1
    assert step.module.training
    assert step(x[:4], y[:4])["loss"] != step.evaluate(x[:4], y[:4])["loss"]


def test_batches_of_other_sizes_go_on_with_the_same_state() -> None:
    sizes = [8, 8, 5, 8, 3]
    fixed = training.TrainStep(weights(), squares, optim.Adam(0.1), threads=1)
    named = training.TrainStep(weights(), squares, optim.Adam(0.1), batch_dim="batch", threads=1)
    for seed, size in enumerate(sizes):
        x = rows(seed, size)
        np.testing.assert_allclose(fixed(x)["loss"], named(x)["loss"], 1e-5)
    assert_close(fixed.values, named.values)
    (dim,) = named.compile(rows()).dims
    assert (dim.name, dim.low, dim.high) == ("batch", 1, None)
    assert named.compile(rows(size=8)) is named.compile(rows(size=3))
    assert fixed.compile(rows(size=8)) is not fixed.compile(rows(size=3))


def test_accumulated_gradients_are_those_of_the_whole_batch() -> None:
    rule = optim.SGD(0.1, momentum=0.9)
    whole = training.TrainStep(weights(), squares, rule, threads=1)
    parts = training.TrainStep(weights(), squares, rule, accumulate=4, threads=1)
    for seed in range(3):
        x = rows(seed)
        np.testing.assert_allclose(whole(x)["loss"], parts(x)["loss"], 1e-5)
    assert_close(whole.values, parts.values)
    with pytest.raises(ModelError, match=r"f32\[6, 4\] cannot be cut into 4 equal parts"):
        parts(rows(size=6))


def test_accumulation_passes_buffers_from_part_to_part() -> None:
    step = training.TrainStep(network(), loss, optim.SGD(0.1), accumulate=2, threads=1)
    reported = step(*batch())
    assert step.values["model.1.num_batches_tracked"] == 2
    x, y = batch()
    halves = [network().train() for _ in range(2)]
    values = [loss(model, Tensor(x[part]), Tensor(y[part]))
              for model, part in zip(halves, (slice(4), slice(4, 8)), strict=True)]  # fmt: skip
    losses = [float(value) for value, _ in values]
    shares = [float(metrics["accuracy"]) for _, metrics in values]
    np.testing.assert_allclose(reported["loss"], np.mean(losses), 1e-5)
    np.testing.assert_allclose(reported["accuracy"], np.mean(shares), 1e-5)


def test_what_is_frozen_stays_as_it_is() -> None:
    model = network()
    model.freeze("0")
    before = {name: x.numpy() for name, x in model.state_dict().items()}
    step = training.TrainStep(model, loss, optim.AdamW(0.1), threads=1)
    step(*batch())
    step(*batch(1))
    after = step.module.state_dict()
    same = {name for name, x in after.items() if np.array_equal(x.numpy(), before[name])}
    assert same == {"0.weight", "0.bias"}
    assert "optimizer.exp_avg.0.weight" not in step.values
    model.freeze()
    with pytest.raises(ModelError, match=r"no parameters to train\n.*unfreeze"):
        training.TrainStep(model, loss, optim.SGD())


class Tied(nn.Module):
    """An embedding whose weights are those of the last layer, too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4, rng=0)
        self.last = nn.Linear(4, 5, bias=False, rng=0)
        self.last.weight = nn.Parameter(self.embedding.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.embedding(x))


def test_tied_weights_stay_tied() -> None:
    def tied_loss(model: Tied, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(x), y)

    step = training.TrainStep(Tied(), tied_loss, optim.SGD(0.5), threads=1)
    x, y = np.array([0, 1, 2, 3, 4]), np.array([1, 2, 3, 4, 0])
    first = step(x, y)["loss"]
    for _ in range(30):
        step(x, y)
    assert step.evaluate(x, y)["loss"] < first / 2
    module = step.module
    np.testing.assert_array_equal(module.embedding.weight, module.last.weight)
    assert [name for name in step.values if name.startswith("model")] == ["model.embedding.weight"]
    assert not np.array_equal(module.embedding.weight, Tied().embedding.weight)


def test_parameters_without_a_gradient_are_left_alone() -> None:
    params = {**weights(), "other": Tensor([1.0])}
    step = training.TrainStep(params, squares, optim.AdamW(0.1, weight_decay=0.5), threads=1)
    step(rows())
    np.testing.assert_array_equal(step.module["other"], [1.0])
    assert not np.array_equal(step.module["b"], params["b"])


def test_batches_may_be_dicts_tensors_and_numbers() -> None:
    def named(params: dict[str, Tensor], x: Tensor, scale: Tensor) -> Tensor:
        return squares(params, x) * scale

    one = training.TrainStep(weights(), named, optim.SGD(0.1), threads=1)
    other = training.TrainStep(weights(), named, optim.SGD(0.1), threads=1)
    np.testing.assert_allclose(one(Tensor(rows()), 0.5)["loss"],
                               other(x=rows(), scale=np.float32(0.5))["loss"])  # fmt: skip
    assert_close(one.values, other.values)


def test_runs_go_on_from_the_values_of_others() -> None:
    one = training.TrainStep(weights(), squares, optim.Adam(0.1), threads=1)
    for seed in range(3):
        one(rows(seed))
    saved = one.values
    for seed in range(3, 6):
        one(rows(seed))
    other = training.TrainStep(weights(), squares, optim.Adam(0.1), threads=1)
    other(rows(9))
    other.load(saved)
    for seed in range(3, 6):
        other(rows(seed))
    for name, array in one.values.items():
        np.testing.assert_array_equal(array, other.values[name])


def test_values_of_another_model_are_refused_with_the_differences() -> None:
    step = training.TrainStep(weights(), squares, optim.Adam(0.1), threads=1)
    values = step.values
    del values["model.b"]
    values |= {"model.c": rows(), "model.w": rows(), "optimizer.step": np.zeros((), np.float32)}
    with pytest.raises(ModelError) as error:
        step.load(values)
    text = str(error.value)
    for line in (
        "model.b is missing: f32[3]",
        "model.c is unexpected: f32[8, 4]",
        "model.w has another shape: f32[8, 4], expected f32[4, 3]",
        "optimizer.step has another element type: f32[], expected i64[]",
    ):
        assert f"\n  {line}" in text


def test_the_first_operation_that_was_not_finite_is_named() -> None:
    def broken(params: dict[str, Tensor], x: Tensor) -> Tensor:
        mask = Tensor([0.0, 0.0, -np.inf])
        weights = nn.functional.softmax(x @ params["w"] + mask, 1)
        return (params["b"] - weights).log().mean()  # the place

    step = training.TrainStep(weights(), broken, optim.SGD(0.1), check_finite=True, threads=1)
    before = step.values
    with pytest.raises(training.NonFiniteError) as error:
        step(rows())
    text = str(error.value)
    assert "loss is not finite: Log made the first NaN" in text
    assert line_of("the place") in text
    for name, array in step.values.items():
        np.testing.assert_array_equal(array, before[name])


def line_of(mark: str) -> str:
    """Where in this file a line ends with ``mark`` as a comment."""
    lines = Path(__file__).read_text("utf-8").splitlines()
    return f"{__file__}:{next(n for n, x in enumerate(lines, 1) if x.endswith('# ' + mark))}"


def test_a_gradient_that_was_not_finite_is_named() -> None:
    def root(params: dict[str, Tensor], x: Tensor) -> Tensor:
        least = (params["w"] * 0.0).sqrt().sum()  # the root
        return least + squares(params, x)

    step = training.TrainStep(weights(), root, optim.SGD(0.1), check_finite=True, threads=1)
    with pytest.raises(training.NonFiniteError, match=r"model.w is not finite") as error:
        step(rows())
    assert f"in the backward pass\n  at {line_of('the root')}" in str(error.value)
    fine = training.TrainStep(weights(), squares, optim.SGD(0.1), check_finite=True, threads=1)
    assert np.isfinite(fine(rows())["loss"])


def test_what_is_no_loss_is_refused() -> None:
    def no_scalar(params: dict[str, Tensor], x: Tensor) -> Tensor:
        return x @ params["w"]

    def no_metrics(params: dict[str, Tensor], x: Tensor) -> Any:
        return squares(params, x), 3

    def constant(params: dict[str, Tensor], x: Tensor) -> Tensor:
        return x.mean()

    def grown(params: dict[str, Tensor], x: Tensor) -> Tensor:
        params["count"] = params["count"].astype("f32")
        return squares(params, x)

    counted = {**weights(), "count": Tensor(0)}
    cases: dict[str, tuple[Any, dict[str, Tensor]]] = {
        r"a loss is one float, and the function returned f32\[8, 3\]": (no_scalar, weights()),
        "metrics are a dict by name": (no_metrics, weights()),
        "the loss depends on no parameter": (constant, weights()),
        "a step makes f32.. of model.count, which is i64": (grown, counted),
    }
    for message, (function, params) in cases.items():
        step = training.TrainStep(params, function, optim.SGD(), threads=1)
        with pytest.raises(ModelError, match=message):
            step(rows())
    with pytest.raises(ModelError, match="no parameters to train"):
        training.TrainStep({"count": Tensor(1)}, squares, optim.SGD())
    with pytest.raises(ModelError, match=r"no parameters to train\n.*a dict of tensors"):
        training.TrainStep(Tensor([1.0]), squares, optim.SGD())
    with pytest.raises(ModelError, match="accumulate=2"):
        training.TrainStep(weights(), squares, optim.SGD(), accumulate=2, batch_dim="batch")


def test_a_step_of_other_weights_is_found_in_the_cache(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def first(seed: int) -> tuple[int, float]:
        """How much was found, and the loss."""
        model = network().initialize(seed)
        step = training.TrainStep(model, loss, optim.AdamW(), threads=1, cache=tmp_path)
        caplog.clear()
        with caplog.at_level(logging.INFO, "modelcc"):
            value = float(step(*batch())["loss"])
        return sum("found in the cache" in message for message in caplog.messages), value

    (cold, value), (cached, other), (again, same) = first(1), first(2), first(2)
    assert (cold, cached, again) == (0, 1, 1)
    assert value != other == same


def test_a_step_is_one_program_that_prints_and_reads_back() -> None:
    step = training.TrainStep(network(), loss, optim.AdamW(), threads=1)
    model = step.compile(*batch())
    assert [spec.name for spec in model.inputs] == ["batch.0", "batch.1"]
    assert [spec.name for spec in model.outputs] == ["loss", "accuracy"]
    assert model.states.keys() == step.values.keys()


def test_kernels_are_from_lines_of_the_loss_or_from_the_update() -> None:
    def looped(params: dict[str, Tensor], x: Tensor) -> Tensor:
        y = (x @ params["w"]).sin()  # the product
        return modelcc.scan(lambda c, r: (c + r.tanh().sum(), r), 0.0, y)[0]  # the loop

    step = training.TrainStep(weights(), looped, optim.Adam(0.1), clip=optim.ClipGlobalNorm(1.0))
    found = {place for kernel in step.compile(rows()).report().kernels for place in kernel.source}
    assert found == {line_of("the product"), line_of("the loop"), "the update of parameters"}


def test_a_step_fits_into_memory_and_learns_the_same() -> None:
    def deep(params: dict[str, Tensor], x: Tensor) -> Tensor:
        for _ in range(2):
            x = (x @ params["w"]).tanh().tanh()
        return x.mean()

    params = {"w": Tensor(np.eye(16, dtype=np.float32))}
    x = np.ones((64, 16), np.float32)
    whole = training.TrainStep(params, deep, optim.SGD(0.1), threads=1)
    most = whole.compile(x).report().arena
    small = training.TrainStep(params, deep, optim.SGD(0.1), memory=most - 1, threads=1)
    for _ in range(2):
        np.testing.assert_allclose(small(x)["loss"], whole(x)["loss"], 1e-6)
    report = small.compile(x).report()
    assert report.arena < most == report.arena_before
    assert report.recomputed and np.asarray(small.values["model.w"]).shape == (16, 16)
