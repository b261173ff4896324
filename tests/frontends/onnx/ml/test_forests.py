"""Random tree ensembles, node by node and as tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto

import modelcc
from modelcc.driver import compile_model
from modelcc.frontends.onnx import import_onnx
from modelcc.ir.errors import ModelError
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import Array
from modelcc.ops.forest import Forest
from modelcc.runtime.session import Session
from tests.frontends.onnx.forests import (
    Shape,
    attributes,
    balanced,
    features,
    random_forest,
    walked,
)
from tests.frontends.onnx.ml_models import assert_compiled_agrees, ml_model
from tests.machines import chosen_options

SHAPES = {
    "stumps": Shape(depth=1),
    "leaves only": Shape(depth=0),
    "plain": Shape(modes=("BRANCH_LEQ",)),
    "equalities": Shape(modes=("BRANCH_EQ", "BRANCH_NEQ"), trees=20),
    "all modes": Shape(depth=6, trees=16),
    "chains": Shape(depth=40, trees=3, skew=0.5),
    "shared": Shape(shared=0.3, depth=6),
    "shuffled": Shape(shuffled=True, shared=0.2),
    "a target for each tree": Shape(targets=3, per_leaf="tree"),
    "a target for each leaf": Shape(targets=3),
    "any weights": Shape(targets=3, per_leaf="any"),
    "any weights for one target": Shape(per_leaf="any"),
    "shared and any weights": Shape(targets=2, per_leaf="any", shared=0.3, shuffled=True),
}


def model_of(shape: Shape, x: Array, seed: int) -> tuple[ModelProto, dict[str, Array], Array]:
    """An ensemble, its input, and what walking node by node gives."""
    nodes = random_forest(np.random.default_rng(seed), shape)
    given: dict[str, Any] = attributes(nodes) | {"n_targets": shape.targets}
    if x.dtype == np.float64:
        for name in ("nodes_values", "target_weights"):
            given[f"{name}_as_tensor"] = onnx.numpy_helper.from_array(np.array(given.pop(name)))
    model, feeds = ml_model("TreeEnsembleRegressor", [x], opset=3, symbolic=True, **given)
    return model, feeds, walked(nodes, x, shape.targets)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_tables_mean_what_the_nodes_do(shape: Shape, dtype: type[np.generic]) -> None:
    for seed in range(8):
        x = features(np.random.default_rng(seed), 17, shape.features, dtype)
        model, feeds, expected = model_of(shape, x, seed)
        (found,) = interpret(import_onnx(model), feeds).values()
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("target", ["native", "c"])
@pytest.mark.parametrize(
    "name", ["leaves only", "plain", "all modes", "chains", "a target for each tree", "any weights"]
)
def test_compiled_code_walks_alike(name: str, target: str) -> None:
    shape = SHAPES[name]
    x = features(np.random.default_rng(0), 1, shape.features, np.float32)
    model, _, _ = model_of(shape, x, 5)
    nodes = random_forest(np.random.default_rng(5), shape)
    session = Session(compile_model(model, chosen_options(target=target)).artifact)
    for rows in (0, 1, 7, 8, 9, 64, 150):
        x = features(np.random.default_rng(rows), rows, shape.features, np.float32)
        expected = walked(nodes, x, shape.targets)
        np.testing.assert_allclose(session(x), expected, rtol=1e-6, atol=1e-6)


def test_threads_share_rows() -> None:
    shape = Shape(trees=16, depth=6, modes=("BRANCH_LEQ",))
    x = features(np.random.default_rng(0), 700, shape.features, np.float32)
    model, feeds, expected = model_of(shape, x, 0)
    net = modelcc.compile(model, threads=2, cache=None)
    np.testing.assert_allclose(net.run(feeds)["y0"], expected, rtol=1e-6, atol=1e-6)


def test_classes_that_each_tree_has_one_of() -> None:
    shape = Shape(trees=12, targets=3, per_leaf="tree", modes=("BRANCH_LEQ",))
    x = np.random.default_rng(0).random((20, shape.features), np.float32)
    nodes = random_forest(np.random.default_rng(3), shape)
    given: dict[str, Any] = attributes(nodes, "class") | {
        "classlabels_int64s": [5, 6, 7],
        "post_transform": "SOFTMAX",
    }
    model, feeds = ml_model("TreeEnsembleClassifier", [x], outputs=2, opset=3, **given)
    assert_compiled_agrees(model, feeds)


def test_links_of_many_nodes_and_features_are_wide() -> None:
    depth, columns = 16, 1 << 16
    given = balanced(depth, columns)
    x = np.random.default_rng(0).random((9, columns), np.float32)
    model, feeds = ml_model("TreeEnsembleRegressor", [x], opset=3, **given)
    graph = import_onnx(model)
    (node,) = (n for n in graph.nodes if isinstance(n.op, Forest))
    assert graph.types[node.inputs[2]].dtype.name == "i64"
    node_ids = np.zeros(len(x), np.int64)
    for _ in range(depth):
        feature, bound = given["nodes_featureids"][node_ids], given["nodes_values"][node_ids]
        node_ids = 2 * node_ids + 1 + ~(x[np.arange(len(x)), feature] <= bound)
    net = modelcc.compile(model, threads=1, cache=None)
    assert net.run(feeds)["y0"][:, 0].tolist() == (node_ids - (1 << depth) + 1).tolist()


def test_a_feature_that_is_not_there_is_refused() -> None:
    given = balanced(2, 3)
    given["nodes_featureids"] = [0, 1, 9, 0, 0, 0, 0]
    x = np.zeros((2, 3), np.float32)
    model, _ = ml_model("TreeEnsembleRegressor", [x], **given)
    with pytest.raises(ModelError, match="9"):
        modelcc.compile(model, cache=None)
    given["nodes_featureids"] = [0, -1, 0, 0, 0, 0, 0]
    model, _ = ml_model("TreeEnsembleRegressor", [x], **given)
    with pytest.raises(ModelError, match="a node compares feature -1"):
        modelcc.compile(model, cache=None)
