"""Training over data: where it goes on, when it stops, and what it writes down."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from modelcc import ModelError, Tensor, nn, optim, training
from modelcc.training.progress_bar import numbers_text, training_bar

Array = np.ndarray
SAMPLES, SIZE = 44, 8
BATCHES = 6
"""Batches of an epoch, the last of 4 samples."""


def loss(model: Any, x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    error = (model(x) - y).square()
    return error.mean(), {"worst": error.max()}


def data(seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(SAMPLES, 5)).astype(np.float32)
    return x, x[:, :1] * x[:, 1:2]


def batches(seed: int = 0) -> training.Batches:
    return training.Batches(data(), SIZE, seed=seed)


def step(**options: Any) -> training.TrainStep:
    rng = np.random.default_rng(0)
    model = nn.Sequential(
        nn.Linear(5, 6, rng=rng), nn.Tanh(), nn.Dropout(0.2, rng=rng), nn.Linear(6, 1, rng=rng)
    )
    return training.TrainStep(model, loss, optim.AdamW(0.02), threads=1, **options)


def trainer(**settings: Any) -> training.Trainer:
    given: dict[str, Any] = {"step": step(), "data": batches(), "show_progress": False}
    return training.Trainer(**given | settings)


def assert_equal(found: training.TrainStep, wanted: training.TrainStep) -> None:
    assert found.values.keys() == wanted.values.keys()
    for name, array in wanted.values.items():
        np.testing.assert_array_equal(found.values[name], array, err_msg=name)


def lines(path: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(line.pop("time") > 0 for line in found)
    return found


def test_batches_have_an_order_for_each_epoch() -> None:
    x = np.arange(10)
    loader = training.Batches({"x": x, "y": x * 2}, 4, seed=3)
    assert len(loader) == 3
    epochs = [list(loader.epoch(number)) for number in range(2)]
    orders = [np.concatenate([batch["x"] for batch in epoch]) for epoch in epochs]
    for order, epoch in zip(orders, epochs, strict=True):
        assert [len(batch["x"]) for batch in epoch] == [4, 4, 2]
        assert sorted(order) == list(range(10))
        assert all(np.array_equal(batch["y"], batch["x"] * 2) for batch in epoch)
    assert not np.array_equal(orders[0], orders[1])
    rest = list(training.Batches({"x": x, "y": x * 2}, 4, seed=3).epoch(1, 2))
    np.testing.assert_array_equal(rest[0]["x"], epochs[1][2]["x"])
    (first, *_) = training.Batches((x,), 4, shuffle=False, drop_last=True)
    np.testing.assert_array_equal(first[0], [0, 1, 2, 3])
    assert len(training.Batches((x,), 4, drop_last=True)) == 2


def test_batches_of_what_does_not_fit_are_refused() -> None:
    with pytest.raises(ModelError, match="as many samples each, not 0: 3, 1: 4"):
        training.Batches((np.zeros(3), np.zeros(4)), 2)
    with pytest.raises(ModelError, match="1 to 3 samples, not 4"):
        training.Batches((np.zeros(3),), 4)


@pytest.mark.parametrize("stop", [4, 6, 9])
def test_a_run_goes_on_where_it_was(stop: int, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "validation": batches(),
        "checkpoint_every": 2,
        "log_every": 4,
        "stopping": training.EarlyStopping(patience=50),
    }
    whole = trainer(
        epochs=3,
        folder=tmp_path / "whole",
        logs=[training.JsonLines(tmp_path / "whole.jsonl")],
        **settings,
    )
    end = whole.fit()
    assert (end.step, end.epoch, end.batch) == (3 * BATCHES, 3, 0)

    class StoppedError(Exception):
        """Of the test."""

    given = step()
    calls = iter(range(stop + 1))

    class Interrupted(training.TrainStep):
        def __call__(self, *batch: Any, **named: Any) -> Any:
            if next(calls, None) is None:
                raise StoppedError
            return super().__call__(*batch, **named)

    given.__class__ = Interrupted
    again = {
        "epochs": 3,
        "folder": tmp_path / "parts",
        "logs": [training.JsonLines(tmp_path / "parts.jsonl")],
        **settings,
    }
    with pytest.raises(StoppedError):
        trainer(step=given, **again).fit()
    rest = trainer(**again)
    assert rest.fit() == end
    assert_equal(rest.step, whole.step)
    assert lines(tmp_path / "parts.jsonl") == lines(tmp_path / "whole.jsonl")
    assert len(list((tmp_path / "parts").glob("step-*"))) == 2
    assert trainer(**again).fit() == end


def test_a_finished_run_may_be_made_longer(tmp_path: Path) -> None:
    trainer(steps=7, folder=tmp_path).fit()
    longer = trainer(steps=15, folder=tmp_path)
    longer.fit()
    straight = trainer(steps=15)
    straight.fit()
    assert_equal(longer.step, straight.step)


def test_the_log_has_means_of_what_was_reported(tmp_path: Path) -> None:
    log = training.JsonLines(tmp_path / "log.jsonl")
    trainer(epochs=2, log_every=4, validation=batches(), logs=[log]).fit()
    found = lines(tmp_path / "log.jsonl")
    places = [(line["part"], line["step"], line["epoch"]) for line in found]
    assert places == [
        ("train", 4, 0),
        ("train", 6, 0),
        ("validation", 6, 0),
        ("train", 8, 1),
        ("train", 12, 1),
        ("validation", 12, 1),
    ]
    other = step()
    reported = [other(*batch) for batch in batches().epoch(0)]
    for name in ("loss", "worst"):
        np.testing.assert_allclose(found[0][name], np.mean([r[name] for r in reported[:4]]))
    sizes = [len(batch[0]) for batch in batches()]
    values = [other.evaluate(*batch)["loss"] for batch in batches()]
    np.testing.assert_allclose(found[2]["loss"], np.average(values, weights=sizes), 1e-6)


def test_it_stops_early_with_the_best_values(tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        run = trainer(
            epochs=20,
            validation=batches(),
            folder=folder,
            stopping=training.EarlyStopping(patience=2, least=0.5),
        )
        values = iter([5.0, 3.0, 4.0, 2.9, 1.0])
        seen: list[dict[str, Array]] = []

        def evaluated(
            _: Any, run: Any = run, values: Any = values, seen: Any = seen
        ) -> dict[str, float]:
            seen.append(run.step.values)
            return {"loss": next(values)}

        run.evaluate = evaluated  # type: ignore[method-assign]
        end = run.fit()
        assert (end.epoch, end.best, end.waited, end.stopped) == (4, 3.0, 2, True)
        for name, array in run.step.values.items():
            np.testing.assert_array_equal(array, seen[1][name])


def test_metrics_may_grow_and_nan_is_never_better() -> None:
    rule = training.EarlyStopping("accuracy", patience=2, mode="max")
    progress = training.Progress()
    for value, waited in ((float("nan"), 1), (0.5, 0), (0.4, 1), (0.6, 0), (float("nan"), 1)):
        progress = rule.seen(progress, {"accuracy": value})
        assert progress.waited == waited
    assert (progress.best, progress.stopped) == (0.6, False)
    with pytest.raises(ModelError, match=r"no metric is called 'accuracy'.*\n.*loss, worst"):
        trainer(epochs=1, validation=batches(), stopping=rule).fit()


@pytest.mark.parametrize("kind", ["list", "function", "dicts", "iterator"])
def test_data_is_whatever_can_be_iterated(kind: str, tmp_path: Path) -> None:
    pairs = list(batches())

    def epoch(number: int) -> Iterator[Any]:
        assert number < 2
        return iter(pairs)

    named = [{"x": x, "y": y} for x, y in pairs]
    kinds: dict[str, Any] = {"list": pairs, "function": epoch, "dicts": named}
    run = trainer(data=kinds.get(kind, iter(pairs * 2)), epochs=1 if kind == "iterator" else 2)
    end = run.fit()
    assert end.step == 12
    straight = trainer(data=pairs, epochs=2)
    straight.fit()
    assert_equal(run.step, straight.step)


def test_data_that_has_come_to_its_end_is_refused() -> None:
    with pytest.raises(ModelError, match=r"no batches in epoch 1\n.*iterated again"):
        trainer(data=iter(list(batches())), epochs=2).fit()


def test_checkpoints_of_other_models_and_data_are_refused(tmp_path: Path) -> None:
    trainer(steps=2, folder=tmp_path).fit()
    wider = nn.Sequential(nn.Linear(5, 7, rng=0), nn.Tanh(), nn.Linear(7, 1, rng=0))
    other = training.TrainStep(wider, loss, optim.SGD(0.1), threads=1)
    with pytest.raises(ModelError) as error:
        trainer(step=other, steps=4, folder=tmp_path).fit()
    text = str(error.value)
    assert "step-0000000002.safetensors" in text
    for line in (
        "model.2.weight is missing: f32[1, 7]",
        "model.0.weight has another shape: f32[6, 5], expected f32[7, 5]",
        "model.3.weight is unexpected: f32[1, 6]",
        "and ",
    ):
        assert f"\n  {line}" in text
    with pytest.raises(ModelError, match="other data: seed 0 then, 1 now"):
        trainer(data=batches(1), steps=4, folder=tmp_path).fit()


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path: Path) -> None:
    x, y = data()
    y[3] = np.inf
    run = trainer(data=training.Batches((x, y), SIZE, shuffle=False), epochs=1)
    with pytest.raises(training.NonFiniteError, match=r"step 0 \(epoch 0, batch 0\) is inf\n.*che"):
        run.fit()


def test_what_it_lacks_is_said() -> None:
    with pytest.raises(ModelError, match="when to stop"):
        trainer().fit()
    with pytest.raises(ModelError, match="early stopping looks at a validation"):
        trainer(epochs=1, stopping=training.EarlyStopping()).fit()


def test_tensorboard_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ModelError, match=r"pip install 'modelcc\[train\]'"):
        trainer(epochs=1, logs=[training.TensorBoard(tmp_path)]).fit()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_the_events(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    log = training.TensorBoard(tmp_path / "events")
    folder = tmp_path / "checkpoints"
    trainer(epochs=1, log_every=3, validation=batches(), logs=[log], folder=folder).fit()
    trainer(epochs=2, log_every=3, validation=batches(), logs=[log], folder=folder).fit()
    files = (tmp_path / "events").iterdir()
    events = [event for path in files for event in events_of(path)]
    events.sort(key=lambda event: event.wall_time)  # names of files tell the second alone
    found = [(e.step, v.tag) for e in events for v in e.summary.value]
    assert found[:2] == [(3, "train/loss"), (3, "train/worst")]
    assert (6, "validation/loss") in found
    assert (12, "train/worst") in found
    assert any(e.step == 7 and e.session_log.status == 1 for e in events)


def events_of(path: Path) -> Iterator[Any]:
    """Events of a file: a length in 8 bytes, its checksum in 4, the event, its checksum in 4."""
    proto: Any = import_module("tensorboardX.proto.event_pb2")
    contents = path.read_bytes()
    place = 0
    while place < len(contents):
        size = int.from_bytes(contents[place : place + 8], "little")
        yield proto.Event.FromString(contents[place + 12 : place + 12 + size])
        place += size + 16


def test_the_bar_shows_epoch_batches_and_numbers() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, color_system=None)
    with training_bar(True, 3, console) as bar:
        bar.shows(0, 7, 20, numbers_text({"loss": 0.123456, "accuracy": 1.0}))
        bar.bar.refresh()
        bar.says("epoch 1, step 20: validation loss 0.5")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())
    assert re.search(r"epoch 1/3 .* 7/20 loss 0.1235  accuracy 1 ", text)
    assert "validation loss 0.5" in text


def test_nothing_is_drawn_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    trainer(steps=2, show_progress=True, validation=batches()).fit()
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
