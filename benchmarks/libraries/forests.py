"""A tree ensemble of any size: ``python -m benchmarks.libraries.forests``.

Seconds and memory to compile it, and the throughput of ONNX Runtime and modelcc.

LightGBM grows some hundreds of trees on synthetic data, which the ensemble repeats.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import click
import lightgbm
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import modelcc
from benchmarks.irregular.turns import turns_on

FEATURES, LEAVES, GROWN = 50, 1024, 200
NODE_BYTES = 35
"""Approximate bytes of the file per node, to derive the number of trees."""
ROWS = (1, 16, 64, 256, 1024)
MAKE = """
import sys
import onnx
from benchmarks.libraries.forests import model
onnx.save(model(float(sys.argv[1])), sys.argv[2])
"""


def model(megabytes: float) -> onnx.ModelProto:
    """A TreeEnsembleRegressor of about ``megabytes``."""
    trees = round(megabytes * 1e6 / NODE_BYTES / (2 * LEAVES - 1))
    grown = [list(_nodes(tree["tree_structure"])) for tree in _grown(min(trees, GROWN))]
    lists: dict[str, Any] = {}
    for number in range(trees):
        for place, node in enumerate(grown[number % len(grown)]):
            for key, value in (("treeids", number), ("nodeids", place), *node.items()):
                lists.setdefault(f"nodes_{key}", []).append(value)
    weights = lists.pop("nodes_weight")
    ends = [n for n, mode in enumerate(lists["nodes_modes"]) if mode == "LEAF"]
    lists["target_treeids"] = [lists["nodes_treeids"][n] for n in ends]
    lists["target_nodeids"] = [lists["nodes_nodeids"][n] for n in ends]
    lists["target_ids"] = [0] * len(ends)
    lists["target_weights"] = [weights[n] for n in ends]
    ml = "ai.onnx.ml"
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain=ml, n_targets=1, **lists)
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", extent])
        for name, extent in (("x", FEATURES), ("y", 1))
    )
    graph = helper.make_graph([node], "forest", [x], [y])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(ml, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _grown(trees: int) -> list[Mapping[str, Any]]:
    random = np.random.default_rng(0)
    x = random.standard_normal((40_000, FEATURES)).astype(np.float32)
    y = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2]) + random.standard_normal(len(x))
    wanted = {
        "objective": "regression", "num_leaves": LEAVES, "min_data_in_leaf": 2,
        "learning_rate": 0.05, "verbose": -1, "num_threads": 1, "max_bin": 63,
    }  # fmt: skip
    return lightgbm.train(wanted, lightgbm.Dataset(x, y), trees).dump_model()["tree_info"]


def _nodes(tree: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The nodes of a tree in preorder, without recursion."""
    waiting, found = [tree], list[tuple[Mapping[str, Any], dict[str, Any]]]()
    while waiting:
        node = waiting.pop()
        inner = "split_feature" in node
        made = {
            "featureids": node.get("split_feature", 0),
            "values": float(np.float32(node.get("threshold", 0.0))),
            "modes": "BRANCH_LEQ" if inner else "LEAF",
            "missing_value_tracks_true": 0,
            "truenodeids": 0,
            "falsenodeids": 0,
            "weight": float(node.get("leaf_value", 0.0)),
        }
        found.append((node, made))
        waiting += [node["right_child"], node["left_child"]] if inner else []
    numbers = {id(node): number for number, (node, _) in enumerate(found)}
    for node, made in found:
        if "split_feature" in node:
            made["truenodeids"] = numbers[id(node["left_child"])]
            made["falsenodeids"] = numbers[id(node["right_child"])]
        yield made


def measure(path: Path) -> None:
    """Compiles the ensemble in ``path``, and predicts interleaved with ONNX Runtime."""
    size, before, start = os.path.getsize(path), _peak(), time.perf_counter()
    net = modelcc.compile(path, threads=1, cache=None)
    seconds, more = time.perf_counter() - start, _peak() - before
    click.echo(
        f"{size / 1e6:.0f} MB: compiled in {seconds:.1f} s, by {more / size:.2f} times its size of "
        f"memory beside the {before / 1e6:.0f} MB before"
    )
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    peer = onnxruntime.InferenceSession(str(path), settings)
    random = np.random.default_rng(1)
    for rows in ROWS:
        feeds = {"x": random.standard_normal((rows, FEATURES)).astype(np.float32)}
        runs = partial(net.run, feeds), partial(peer.run, None, feeds)
        own, other = turns_on(1).times(runs)
        error = median(np.abs(net.run(feeds)["y"] - peer.run(None, feeds)[0]).ravel().tolist())
        click.echo(
            f"{rows:6} rows: {1e3 * own:.3f} ms, onnxruntime takes {other / own:.2f} times as long;"
            f" median difference {error:.1e}"
        )


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@click.command()
@click.option("--megabytes", default=200.0, show_default=True, help="Of the model's file.")
def main(megabytes: float) -> None:
    """Time and memory to compile a tree ensemble, and its rate."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "forest.onnx")
        # A separate process keeps this one's memory unaffected.
        made = (sys.executable, "-c", MAKE, str(megabytes), str(path))
        subprocess.run(made, check=True)
        measure(path)


if __name__ == "__main__":
    main()
