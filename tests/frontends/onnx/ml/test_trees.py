"""Tree ensembles through compiled code, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

import modelcc
from modelcc.frontends.onnx import import_onnx
from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array
from tests.frontends.onnx.ml_models import assert_compiled_agrees, ml_model
from tests.frontends.onnx.onnx_models import run_onnxruntime

FEATURES = 4
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def forest(
    prefix: str,
    targets: int,
    modes: tuple[str, ...] = MODES[:1],
    tracks: bool = False,
    ids: tuple[int, ...] | None = None,
    low: float = -1.0,
    depth: int = 4,
    trees: int = 5,
) -> dict[str, Any]:
    """Attributes of random trees of uneven depth; thresholds are halves, to be met exactly."""
    random = np.random.default_rng(7)
    keys = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    nodes: dict[str, list[Any]] = {f"nodes_{key}": [] for key in keys}
    nodes["nodes_missing_value_tracks_true"] = []
    leaves: dict[str, list[Any]] = {
        f"{prefix}_{key}": [] for key in ("treeids", "nodeids", "ids", "weights")
    }

    def add(tree: int, level: int) -> int:
        node = nodes["nodes_treeids"].count(tree)
        leaf = level == depth or (level > 0 and random.random() < 0.3)
        row = len(nodes["nodes_treeids"])
        mode = "LEAF" if leaf else modes[random.integers(len(modes))]
        values = (tree, node, int(random.integers(FEATURES)),
                  float(random.integers(-3, 4)) / 2, mode, 0, 0)  # fmt: skip
        for key, value in zip(keys, values, strict=True):
            nodes[f"nodes_{key}"].append(value)
        nodes["nodes_missing_value_tracks_true"].append(int(tracks and random.random() < 0.5))
        if leaf:
            for target in range(targets) if ids is None else ids:
                weight = float(np.float32(random.uniform(low, 1.0)))
                for key, value in zip(leaves, (tree, node, target, weight), strict=True):
                    leaves[key].append(value)
        else:
            nodes["nodes_truenodeids"][row] = add(tree, level + 1)
            nodes["nodes_falsenodeids"][row] = add(tree, level + 1)
        return node

    for tree in range(trees):
        add(tree, 0)
    return nodes | leaves | ({"n_targets": targets} if prefix == "target" else {})


def rows(missing: bool = False, dtype: str = "float32") -> Array:
    """Halves, so that thresholds are met; some of them NaN if there are ``missing`` ones."""
    random = np.random.default_rng(3)
    x = random.integers(-4, 5, (40, FEATURES)) / 2
    if missing:
        x[random.random(x.shape) < 0.2] = np.nan
    return x.astype(dtype)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("modes", [(m,) for m in MODES] + [MODES[:2], MODES[2:4]])
def test_node_modes(modes: tuple[str, ...], missing: bool) -> None:
    if missing and modes == ("BRANCH_NEQ",):
        pytest.skip("onnxruntime sends missing values by the tracking flag alone")
    attributes: dict[str, Any] = forest("target", 1, modes, tracks=missing)
    model, feeds = ml_model("TreeEnsembleRegressor", [rows(missing)], symbolic=True, **attributes)
    assert_compiled_agrees(model, feeds)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_aggregates_and_base_values(aggregate: str, targets: int) -> None:
    attributes: dict[str, Any] = forest("target", targets) | {
        "aggregate_function": aggregate,
        "base_values": [0.5, -1.0, 2.0][:targets],
        "n_targets": targets,
    }
    model, feeds = ml_model("TreeEnsembleRegressor", [rows()], **attributes)
    assert_compiled_agrees(model, feeds)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize(
    ("classes", "ids", "low"),
    [(3, None, -1.0), (2, (0,), -1.0), (2, (0,), 0.0), (2, (1,), -1.0), (2, (1,), 0.0)],
)
def test_classifiers(transform: str, classes: int, ids: Any, low: float) -> None:
    attributes: dict[str, Any] = forest("class", classes, ids=ids, low=low, trees=3) | {
        "classlabels_int64s": list(range(10, 10 + classes)),
        "post_transform": transform,
    }
    if ids == (0,):
        attributes["base_values"] = [0.25]
    model, feeds = ml_model("TreeEnsembleClassifier", [rows()], outputs=2, **attributes)
    assert_compiled_agrees(model, feeds)


def test_probit() -> None:
    attributes: dict[str, Any] = forest("target", 1, trees=1, low=0.05)
    attributes["post_transform"] = "PROBIT"
    model, feeds = ml_model("TreeEnsembleRegressor", [rows()], **attributes)
    assert_compiled_agrees(model, feeds, rtol=1e-4)


def test_two_classes_with_weights_of_their_own_take_the_higher_score() -> None:
    attributes: dict[str, Any] = forest("class", 2) | {"classlabels_int64s": [10, 11]}
    model, feeds = ml_model("TreeEnsembleClassifier", [rows()], outputs=2, **attributes)
    labels, scores = modelcc.compile(model, threads=1, cache=None)(*feeds.values())
    assert np.array_equal(labels, np.array([10, 11])[scores.argmax(1)])


def test_features_of_double_precision() -> None:
    model, feeds = ml_model("TreeEnsembleRegressor", [rows(dtype="float64")], **forest("target", 1))
    assert_compiled_agrees(model, feeds)


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_integer_features_are_those_of_floats(dtype: str) -> None:
    x = rows(dtype=dtype)
    whole, feeds = ml_model("TreeEnsembleRegressor", [x], **forest("target", 1))
    floating, others = ml_model(
        "TreeEnsembleRegressor", [x.astype(np.float32)], **forest("target", 1)
    )
    got = modelcc.compile(whole, threads=1, cache=None).run(feeds)
    np.testing.assert_allclose(got["y0"], run_onnxruntime(floating, others)["y0"], 1e-6)


def _broken(change: dict[str, Any]) -> ModelProto:
    attributes: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_values": [0.0, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
    }
    return ml_model("TreeEnsembleRegressor", [rows()], **attributes | change)[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes_truenodeids": [7, 0, 0]}, "tree 0 has no node 7"),
        (
            {
                "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"],
                "nodes_truenodeids": [2, 1, 0],
                "nodes_falsenodeids": [1, 1, 0],
            },
            "its nodes form a cycle",
        ),
        ({"target_ids": [0, 3]}, "a weight for target 3 of 1"),
        ({"nodes_modes": ["BRANCH_ODD", "LEAF", "LEAF"]}, "no node mode 'BRANCH_ODD'"),
    ],
)
def test_broken_forests_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        import_onnx(_broken(change))
