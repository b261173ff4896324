"""Graphs written as Python formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.index import Index, Sym
from modelcc.ir.op import Op
from modelcc.ir.types import F32, Array, DType, TensorType
from modelcc.ops.arithmetic import Value, of

Unary = Callable[[Value], Value]
Formula = Unary | Callable[[Value, Value], Value] | Callable[[Value, Value, Value], Value]


Row = tuple[Formula, *tuple[Any, ...]]


def formulas(*values: Formula) -> tuple[Formula, ...]:
    """Formulas as values of a parameter; their arguments have types that way."""
    return values


def rows(*values: Row) -> tuple[Row, ...]:
    """The same with values of other parameters."""
    return values


def f32(*shape: Index | str) -> TensorType:
    """A type; strings name dimensions."""
    return TensorType(tuple(Sym(d) if isinstance(d, str) else d for d in shape), F32)


def graph_of(formula: Callable[..., Value], *types: TensorType) -> Graph:
    """The graph of a formula of inputs ``x0``, ``x1`` …; its result is called ``y``."""
    build = GraphBuilder()
    values = [Value(build, build.input(f"x{i}", t)) for i, t in enumerate(types)]
    result = formula(*values).name
    graph = build.build([result])
    return graph


def call(op: Op, *values: Value) -> Value:
    """One op applied to values."""
    return of(op, *values)


def constant(like: Value, value: Array | float, dtype: DType | None = None) -> Value:
    """A constant next to ``like``; a number has rank 0."""
    data = value if isinstance(value, np.ndarray) else np.asarray(value)
    return Value(like.build, like.build.constant(data, dtype or like.type.dtype))


def weights(like: Value, *shape: int, seed: int = 0) -> Value:
    """A random constant."""
    rng = np.random.default_rng(seed)
    return constant(like, rng.uniform(0.5, 1.5, shape))


def op_names(graph: Graph) -> list[str]:
    """Op class names in order."""
    return [type(node.op).__name__ for node in graph.nodes]
