"""What tests of graph passes share: examples from docstrings, feeds, and comparison of graphs."""

from __future__ import annotations

import inspect
import re
import textwrap
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from modelcc.ir.constant import Constant
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.graph_parser import parse_graph
from modelcc.ir.graph_verifier import verify_graph
from modelcc.ir.types import STRING, Array, TensorType
from modelcc.ops.catalog import MCC


def random_array(label: str, type: TensorType) -> Array:
    """Values in 0.5 … 1.5 (integers 0 … 2) that depend on ``label`` only."""
    rng = np.random.default_rng(zlib.crc32(label.encode()))
    shape = tuple(d if isinstance(d, int) else 3 for d in type.shape)
    if type.dtype.is_float:
        return rng.uniform(0.5, 1.5, shape).astype(type.dtype.numpy)
    return rng.integers(0, 2, shape).astype(type.dtype.numpy)


def parse(text: str) -> Graph:
    """A graph whose large constants are random."""

    def resolve(handle: str, type: TensorType) -> Constant:
        return Constant(random_array(handle, type))

    graph = parse_graph(text, resolve, (MCC,))
    verify_graph(graph)
    return graph


@dataclass(frozen=True)
class Example:
    before: Graph
    after: Graph


def example_of(step: type[Any]) -> Example:
    """The graphs under ``before::`` and ``after::`` in a pass's docstring."""
    doc = inspect.getdoc(step) or ""
    blocks = dict(re.findall(r"^(before|after)::\n\n((?:    .*\n?|\n)+)", doc, re.MULTILINE))
    return Example(*(parse(textwrap.dedent(blocks[part])) for part in ("before", "after")))


def feeds_of(graph: Graph) -> dict[str, Array]:
    """Random inputs, negative ones too; texts are numbers, of which there are few."""
    found = {}
    for name in graph.inputs:
        if graph.types[name].dtype == STRING:
            count = np.arange(np.prod(graph.types[name].static_shape())) % 2
            found[name] = count.reshape(graph.types[name].static_shape()).astype(str).astype(object)
            continue
        values = random_array(name, graph.types[name])
        is_float = graph.types[name].dtype.is_float
        found[name] = ((values - 1) * 6).astype(values.dtype) if is_float else values
    return found


def shape_of(graph: Graph) -> list[str]:
    """Outputs as nested text of ops, attributes and inputs; constants by type, small by value."""
    known: dict[str, str] = {}
    for name, constant in graph.constants.items():
        small = constant.data.size == 1
        known[name] = f"{constant.type}" + (f"={constant.data.reshape(-1)[0]}" if small else "")
    for name in graph.inputs:
        known[name] = name
    for node in graph.nodes:
        operands = ", ".join(known[n] if n else "none" for n in node.inputs)
        for i, name in enumerate(node.outputs):
            known[name] = f"{node.op}#{i}({operands})"
    return [f"{n} = {known[n]}" for n in graph.outputs]


def assert_same_meaning(before: Graph, after: Graph, tolerance: float = 1e-5) -> None:
    """Both graphs are well formed and compute the same, up to rounding."""
    verify_graph(after)
    assert after.inputs == before.inputs and after.outputs == before.outputs
    feeds = feeds_of(before)
    stored = {name: after.types[name].dtype.numpy for name in after.inputs}
    moved = {n: v.astype(stored[n]) if v.dtype == object else v for n, v in feeds.items()}
    want, got = interpret(before, feeds), interpret(after, moved)
    for name, value in want.items():
        assert got[name].dtype == value.dtype and got[name].shape == value.shape
        np.testing.assert_allclose(
            got[name].astype(np.float64), value.astype(np.float64), tolerance, tolerance
        )
