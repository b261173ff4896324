"""Overhead of a call: modelcc and onnxruntime on models of almost no work.

    python -m benchmarks.overhead [MODEL.onnx ...]

Prints a Markdown table of microseconds per call, the median of interleaved rounds; one thread.
The first row is a model that adds one to four numbers: there is nothing but overhead.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from onnx import TensorProto, helper

import modelcc

ROUNDS = 15
ROUND_SECONDS = 0.02

Call = Callable[[], object]


def trivial_model(folder: Path) -> Path:
    """A model that adds one to four numbers."""
    types = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in ("x", "y")]
    one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
    add = helper.make_node("Add", ["x", "one"], ["y"])
    graph = helper.make_graph([add], "trivial", types[:1], types[1:], [one])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 10
    onnx.save(model, folder / "trivial.onnx")
    return folder / "trivial.onnx"


def calls_of(model: Path) -> dict[str, Call]:
    """Ways to call ``model``, by name."""
    net = modelcc.compile(model, threads=1)
    feeds = net.random_inputs()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session: Any = onnxruntime.InferenceSession(str(model), options)
    arguments = tuple(feeds.values())
    return {
        "net(x)": lambda: net(*arguments),
        "net.run(feeds)": lambda: net.run(feeds),
        "onnxruntime": lambda: session.run(None, feeds),
    }


def microseconds(calls: Mapping[str, Call]) -> dict[str, float]:
    """Median time of one call of each, interleaved."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            call()
            count, start = 0, time.perf_counter()
            while (elapsed := time.perf_counter() - start) < ROUND_SECONDS:
                for _ in range(20):
                    call()
                count += 20
            found[name].append(elapsed / count * 1e6)
    return {name: statistics.median(times) for name, times in found.items()}


def main(models: Sequence[str]) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [trivial_model(Path(folder)), *map(Path, models)]
        rows = {path.stem: microseconds(calls_of(path)) for path in paths}
    names = list(next(iter(rows.values())))
    print("| µs per call | " + " | ".join(names) + " |")
    print("|---|" + "---:|" * len(names))
    for model, times in rows.items():
        print(f"| {model} | " + " | ".join(f"{times[name]:.2f}" for name in names) + " |")


if __name__ == "__main__":
    main(sys.argv[1:])
