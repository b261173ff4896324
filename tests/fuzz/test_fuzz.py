"""A short campaign of fixed seed, and that faults would be found."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_models import computed_gather, mlp, two_outputs

import modelcc
from fuzz.attempt import Limits, attempt
from fuzz.campaign import Campaign, Tried, mutant, tried, try_mutant
from fuzz.corruption import CORRUPTIONS
from fuzz.mutations import MUTATIONS, NothingToChangeError
from fuzz.report import groups, summary

MODELS = tuple(
    m.SerializeToString() for m in (mlp(), mlp("batch"), two_outputs(), computed_gather())
)


def with_everything() -> bytes:
    """A model with parts of every kind that mutations change: functions, branches, attributes."""
    side = helper.make_graph(
        [helper.make_node("Softmax", ["h"], ["s"], axis=1)], "side", [],
        [helper.make_tensor_value_info("s", TensorProto.FLOAT, [2, 3])],
    )  # fmt: skip
    nodes = [
        helper.make_node("Twice", ["x"], ["h"], "call", domain="own"),
        helper.make_node("If", ["c"], ["y"], "if", then_branch=side, else_branch=side),
        helper.make_node("Concat", ["y", "w"], ["z"], "join", axis=0),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    outputs = [helper.make_tensor_value_info("z", TensorProto.FLOAT, [4, 3])]
    weights = [numpy_helper.from_array(np.ones((2, 3), np.float32), "w")]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    twice = helper.make_function(
        "own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], opsets[:1]
    )
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, [2, 3]))
    model = helper.make_model(graph, opset_imports=opsets, functions=[twice], ir_version=9)
    return model.SerializeToString()


CHANGEABLE = (*MODELS, with_everything())


def test_hostile_inputs_are_drawn_and_survived(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(computed_gather().SerializeToString())
    outcome = attempt(path, Limits(seconds=120))
    assert (outcome.kind, outcome.stage) == ("ran", "run with hostile inputs")


def test_mutants_of_small_models_are_refused_or_run() -> None:
    campaign = Campaign(MODELS, seed=7, run_share=0.1)
    found = list(tried(campaign, range(60)))
    assert len(found) == 60
    assert not groups(found), "\n".join(groups(found))
    kinds = {t.outcome.kind for t in found}
    assert kinds == {"refused", "imported", "ran"}
    assert all(t.outcome.placed for t in found if t.outcome.kind == "refused")
    assert "60 mutants of 4 models" in summary(found)


def test_a_mutant_can_be_made_again() -> None:
    campaign = Campaign(MODELS, seed=1)
    assert mutant(campaign, 5) == mutant(campaign, 5)
    assert len({mutant(campaign, n)[2] for n in range(20)}) > 15


@pytest.mark.parametrize("mutation", dict.fromkeys(MUTATIONS), ids=lambda m: m.__name__)
def test_every_mutation_changes_something(mutation: Any) -> None:
    def changes(data: bytes, seed: int) -> bool:
        model = onnx.load_from_string(data)
        try:
            mutation(model, Random(seed))
        except NothingToChangeError:
            return False
        return model.SerializeToString() != data

    assert any(changes(data, seed) for data in CHANGEABLE for seed in range(20))


@pytest.mark.parametrize("corruption", CORRUPTIONS, ids=lambda c: c.__name__)
def test_every_corruption_changes_something(corruption: Any) -> None:
    def corrupted(seed: int) -> bytes:
        data = bytearray(MODELS[0])
        corruption(data, Random(seed))
        return bytes(data)

    assert any(corrupted(seed) != MODELS[0] for seed in range(8))


def crash(*_: object, **__: object) -> None:
    os.abort()


def spin(*_: object, **__: object) -> None:
    while True:
        pass


def swell(*_: object, **__: object) -> None:
    bytearray(8 << 30)


def stumble(*_: object, **__: object) -> None:
    raise KeyError("x")


@pytest.mark.parametrize(
    ("fault", "kind"), [(crash, "crash"), (spin, "hang"), (swell, "memory"), (stumble, "fault")]
)
def test_faults_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Any, kind: str
) -> None:
    onnx.save(mlp(), tmp_path / "model.onnx")
    monkeypatch.setattr(modelcc, "import_model", fault)
    outcome = attempt(tmp_path / "model.onnx", Limits(seconds=1, memory=2 << 30))
    assert outcome.kind == kind and outcome.is_finding
    assert groups([Tried(3, 0, "rewire", outcome)])[0].startswith("1 × #3 rewire: " + kind)


def test_a_worker_that_ends_early_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.campaign.try_mutant", lambda *_: os._exit(1))
    with pytest.raises(RuntimeError, match="2 mutants were not tried"):
        list(tried(Campaign(MODELS), range(2)))


def test_reading_a_file_outside_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def peep(path: Path) -> None:
        (path.parent.parent / "secret").read_bytes()
        raise modelcc.ModelError("refused", ("node",))

    monkeypatch.setattr(modelcc, "import_model", peep)
    found = try_mutant(Campaign(MODELS), 0, tmp_path)
    assert found.outcome.kind == "outside"
