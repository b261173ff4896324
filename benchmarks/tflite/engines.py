"""A model ready to be called, by modelcc and by LiteRT, and their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import modelcc
from modelcc.ir.index import Expr
from modelcc.ir.types import Array

DELEGATE = "DELEGATE"
"""LiteRT's name of nodes run by a delegate: XNNPACK by default."""


Engine = Callable[[], list[Array]]
"""A call of a model with its prepared inputs."""


@dataclass(frozen=True)
class Delegation:
    """The number of nodes of a model, and of those that XNNPACK runs."""

    nodes: int
    delegated: int


def interpreter(path: Path, reference: bool = False) -> Any:
    """LiteRT on one thread, with its default delegate or with the reference kernels."""
    module: Any = import_module("ai_edge_litert.interpreter")
    kinds = module.OpResolverType
    kind = kinds.BUILTIN_REF if reference else kinds.AUTO
    found = module.Interpreter(str(path), num_threads=1, experimental_op_resolver_type=kind)
    found.allocate_tensors()
    return found


def random_feeds(path: Path, seed: int) -> list[Array]:
    """Inputs in the order of the file: integers over their whole range, standard normal floats."""
    rng = np.random.default_rng(seed)
    details = interpreter(path, reference=True).get_input_details()
    return [_random(d["shape"], np.dtype(d["dtype"]), rng) for d in details]


def _random(shape: Array, dtype: np.dtype[Any], rng: np.random.Generator) -> Array:
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def litert(found: Any, feeds: list[Array]) -> Engine:
    """Sets inputs, runs and gets outputs of an interpreter."""
    inputs = [d["index"] for d in found.get_input_details()]
    outputs = [d["index"] for d in found.get_output_details()]
    given = list(zip(inputs, feeds, strict=True))

    def run() -> list[Array]:
        for index, feed in given:
            found.set_tensor(index, feed)
        found.invoke()
        return [found.get_tensor(index) for index in outputs]

    return run


def reference_results(path: Path, feeds: list[Array]) -> list[Array] | None:
    """Results of the reference kernels; None if they crash, as on SVDF of 16-bit inputs."""
    with ProcessPoolExecutor(1, get_context("spawn")) as apart:
        try:
            return apart.submit(_referred, path, feeds).result()
        except BrokenProcessPool:
            return None


def _referred(path: Path, feeds: list[Array]) -> list[Array]:
    return litert(interpreter(path, reference=True), feeds)()


def delegation(found: Any) -> Delegation:
    """The nodes of a model that XNNPACK runs, according to the interpreter."""
    details = found._get_ops_details()  # there is no public interface
    own = [d for d in details if d["op_name"] != DELEGATE]
    makers = {int(tensor): d for d in own for tensor in d["outputs"]}
    inside: set[int] = set()
    for part in (d for d in details if d["op_name"] == DELEGATE):
        inside |= _within(part, makers)
    return Delegation(len(own), len(inside))


def _within(part: Mapping[str, Any], makers: Mapping[int, Mapping[str, Any]]) -> set[int]:
    """The nodes between the inputs and the outputs of a delegated partition."""
    known, waiting = set(map(int, part["inputs"])), list(map(int, part["outputs"]))
    nodes: set[int] = set()
    while waiting:
        tensor = waiting.pop()
        if tensor in known or tensor not in makers:
            continue
        known.add(tensor)
        nodes.add(int(makers[tensor]["index"]))
        waiting += map(int, makers[tensor]["inputs"])
    return nodes


def compiled(path: Path, cpu: str | None, feeds: list[Array]) -> Engine:
    """A model compiled for one thread of ``cpu`` (None: this one); dynamic extents are 1."""
    model = modelcc.compile(path, threads=1, cpu=cpu, dims=_ones(path), cache=None)

    def run() -> list[Array]:
        made = model(*feeds)
        return list(made) if isinstance(made, tuple) else [made]

    return run


def _ones(path: Path) -> dict[str, int]:
    graph = modelcc.import_model(path)
    extents = (extent for name in graph.inputs for extent in graph.types[name].shape)
    return {name: 1 for extent in extents if isinstance(extent, Expr) for name in extent.symbols}
