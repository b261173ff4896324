"""Cost of index checks: ``python -m benchmarks.gathers``.

Each model is compiled twice, with and without checks, and both run interleaved in one process.
With ``--against FOLDER`` the artifacts of another tree (``--save FOLDER`` there) replace those
without checks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

import click
import numpy as np
from onnx import ModelProto, TensorProto, helper

import modelcc

SECONDS = 1.5
"""Measurement time per model."""


def _floats(*shape: int) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda random: random.random(shape, dtype=np.float32)


def _below(limit: int, *shape: int) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda random: random.integers(0, limit, shape)


Operand = Callable[[np.random.Generator], np.ndarray]
CASES: Mapping[str, tuple[str, tuple[Operand, ...], dict[str, Any]]] = MappingProxyType(
    {
        "embedding": ("Gather", (_floats(50257, 768), _below(50257, 512)), {}),
        "short rows": ("Gather", (_floats(50000, 8), _below(50000, 200000)), {}),
        "elements, in cache": (
            "GatherElements", (_floats(1, 8192), _below(8192, 1, 1 << 22)), {"axis": 1},
        ),
        "elements, far": (
            "GatherElements", (_floats(1, 1 << 24), _below(1 << 24, 1, 1 << 22)), {"axis": 1},
        ),
        "elements, few": ("GatherElements", (_floats(64, 4096), _below(4096, 64, 4096)),
                          {"axis": 1}),
        "elements, axis 0": ("GatherElements", (_floats(512, 512), _below(512, 512, 512)), {}),
        "tuples": ("GatherND", (_floats(512, 512), _below(512, 500000, 2)), {}),
        "tuples, rows": ("GatherND", (_floats(512, 512, 16), _below(512, 100000, 2)), {}),
        "scatter rows": ("ScatterND", (_floats(1024, 64), _below(1024, 128, 1), _floats(128, 64)),
                         {}),
        "scatter elements": (
            "ScatterElements", (_floats(256, 256), _below(256, 256, 256), _floats(256, 256)),
            {"axis": 1},
        ),
    }
)  # fmt: skip


def _model(op: str, feeds: tuple[np.ndarray, ...], attributes: dict[str, Any]) -> ModelProto:
    names = [f"in{n}" for n in range(len(feeds))]
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in zip(names, feeds, strict=True)
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **attributes)], op, inputs, [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


Clock = Callable[[], float]


def _seconds(net: modelcc.Model, feeds: tuple[np.ndarray, ...], clock: Clock) -> float:
    start = clock()
    net(*feeds)
    return clock() - start


@click.command()
@click.option("--threads", default=1, show_default=True)
@click.option("--save", type=click.Path(path_type=Path), help="Folder for the artifacts.")
@click.option("--against", type=click.Path(path_type=Path), help="Folder of another tree's.")
def main(threads: int, save: Path | None, against: Path | None) -> None:
    """Median and tenth percentile of both, and their ratios (above 1: checks cost time)."""
    # With one thread, other load does not count.
    clock = time.process_time if threads == 1 else time.perf_counter
    for name, (op, operands, attributes) in CASES.items():
        random = np.random.default_rng(0)
        feeds = tuple(operand(random) for operand in operands)
        model = _model(op, feeds, attributes)
        file = f"{name.replace(', ', '_').replace(' ', '_')}.mcc"
        checked = modelcc.compile(model, threads=threads, cache=None)
        if save is not None:
            save.mkdir(parents=True, exist_ok=True)
            checked.save(save / file)
        if against is not None:
            plain = modelcc.load(against / file, threads=threads)
        else:
            plain = modelcc.compile(model, threads=threads, cache=None, unchecked=True)
        for net in (plain, checked):
            _seconds(net, feeds, clock)
        rounds = max(8, int(SECONDS / max(1e-5, _seconds(plain, feeds, clock)) / 2))
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(rounds):
            for which in (0, 1) if number % 2 else (1, 0):
                times[which].append(_seconds((plain, checked)[which], feeds, clock))
        tenths = [sorted(each)[len(each) // 10] for each in times]
        before, after = (1e3 * median(each) for each in times)
        click.echo(
            f"{name:20} {before:9.3f} ms {after:9.3f} ms  median {after / before:.3f}  "
            f"tenth {tenths[1] / tenths[0]:.3f}"
        )


if __name__ == "__main__":
    main()
