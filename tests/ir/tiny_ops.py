"""A handful of ops for tests of the graph level, written apart from ``modelcc.ops``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.index import Index
from modelcc.ir.op import Dialect, Op, broadcast_shapes, require, same_dtype
from modelcc.ir.types import DType, TensorType


@dataclass(frozen=True)
class Neg(Op):
    dialect = "tiny"

    def infer(self, *inputs: TensorType | None) -> tuple[TensorType, ...]:
        (x,) = inputs
        assert x is not None
        return (x,)

    def reference(self, *inputs: Any) -> Any:
        return -inputs[0]


@dataclass(frozen=True)
class Add(Op):
    dialect = "tiny"

    def infer(self, *inputs: TensorType | None) -> tuple[TensorType, ...]:
        a, b = inputs
        assert a is not None and b is not None
        dtype = same_dtype(a, b)
        return (TensorType(broadcast_shapes(a.shape, b.shape), dtype),)

    def reference(self, *inputs: Any) -> Any:
        return inputs[0] + inputs[1]


@dataclass(frozen=True)
class Scale(Op):
    """``x * factor``, plus ``bias`` if there is one."""

    dialect = "tiny"
    factor: float = 1.0

    def infer(self, *inputs: TensorType | None) -> tuple[TensorType, ...]:
        x = inputs[0]
        require(x is not None and x.dtype.is_float, "Scale wants a float tensor")
        assert x is not None
        return (x,)

    def reference(self, *inputs: Any) -> Any:
        y = inputs[0] * inputs[0].dtype.type(self.factor)
        return y if len(inputs) < 2 or inputs[1] is None else y + inputs[1]


@dataclass(frozen=True)
class Reshape(Op):
    dialect = "tiny"
    shape: tuple[Index, ...]

    def infer(self, *inputs: TensorType | None) -> tuple[TensorType, ...]:
        (x,) = inputs
        assert x is not None
        return (TensorType(self.shape, x.dtype),)

    def reference(self, *inputs: Any) -> Any:
        return inputs[0].reshape(self.shape)


@dataclass(frozen=True)
class Halves(Op):
    """First and second half along axis 0, cast to ``to``."""

    dialect = "tiny"
    to: DType

    def infer(self, *inputs: TensorType | None) -> tuple[TensorType, ...]:
        (x,) = inputs
        assert x is not None
        half = TensorType((x.shape[0] // 2, *x.shape[1:]), self.to)
        return half, half

    def reference(self, *inputs: Any) -> Any:
        a, b = np.split(inputs[0], 2)
        return a.astype(self.to.numpy), b.astype(self.to.numpy)


@dataclass(frozen=True)
class Twice(Op):
    """Applies ``body`` twice."""

    dialect = "tiny"
    body: Graph
    note: str | None = None

    def infer(self, *inputs: TensorType | None) -> tuple[TensorType, ...]:
        return tuple(self.body.types[n] for n in self.body.outputs)

    def reference(self, *inputs: Any) -> Any:
        (name,) = self.body.inputs
        once = interpret(self.body, {name: inputs[0]})[self.body.outputs[0]]
        return interpret(self.body, {name: once})[self.body.outputs[0]]


@dataclass(frozen=True)
class Everything(Op):
    """Passes its operand through; has an attribute of every kind."""

    dialect = "tiny"
    i: int = -3
    f: float = 1e-5
    inf: float = float("inf")
    b: bool = True
    s: str = 'quote " slash \\ line\n é'
    none: None = None
    dtype: DType | None = None
    index: Index = 0
    nested: tuple[tuple[Index, ...], ...] = ()
    mixed: tuple[object, ...] = ()

    def infer(self, *inputs: TensorType | None) -> tuple[TensorType, ...]:
        (x,) = inputs
        assert x is not None
        return (x,)

    def reference(self, *inputs: Any) -> Any:
        return inputs[0]


TINY = Dialect("tiny", (Neg, Add, Scale, Reshape, Halves, Twice, Everything))
