"""A subgraph being rewritten: new tensors and operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from modelcc.frontends.tflite.module import (
    Option,
    TfliteOperator,
    TfliteQuantization,
    TfliteSubgraph,
    TfliteTensor,
)
from modelcc.ir.types import I32, Array
from modelcc.subsets.view import OperatorView, Shape


@dataclass(frozen=True)
class Draft:
    """New operators replacing ``view``'s, and the tensors between them."""

    view: OperatorView
    subgraph: TfliteSubgraph
    tensors: list[TfliteTensor] = field(default_factory=list[TfliteTensor])
    operators: list[TfliteOperator] = field(default_factory=list[TfliteOperator])

    @property
    def result(self) -> int:
        """The number of the operator's first result."""
        return self.view.operator.outputs[0]

    def given(self, place: int) -> int:
        """The number of the operator's operand at ``place``."""
        return self.view.operator.inputs[place]

    def tensor(self, like: TfliteTensor, shape: Shape, data: Array | None = None) -> int:
        """A new tensor with the type and scale of another."""
        name = f"{self.view.outputs[0].name}_{len(self.tensors)}"
        self.tensors.append(replace(like, name=name, shape=shape, data=data, variable=False))
        return len(self.subgraph.tensors) + len(self.tensors) - 1

    def constant(
        self, data: Array, like: TfliteTensor, quantization: TfliteQuantization | None
    ) -> int:
        """A new constant with another's type, optionally its own scale."""
        return self.tensor(replace(like, quantization=quantization), data.shape, data)

    def numbers(self, values: Sequence[int] | Sequence[Sequence[int]]) -> int:
        """A new integer constant: extents, axes or pads."""
        data = np.asarray(values, np.int32)
        return self.tensor(TfliteTensor("", data.shape, "INT32", I32), data.shape, data)

    def add(
        self,
        name: str,
        inputs: Sequence[int],
        output: int,
        options: Mapping[str, Option] = MappingProxyType({}),
        version: int = 1,
    ) -> int:
        """A new operator; returns its result."""
        attributes = MappingProxyType(dict(options))
        index = self.view.operator.index
        new = TfliteOperator(index, name, version, tuple(inputs), (output,), attributes)
        self.operators.append(new)
        return output

    def again(self, inputs: Sequence[int], output: int, **options: Option) -> int:
        """The operator itself on other tensors, with these options changed."""
        own = self.view.operator
        return self.add(own.name, inputs, output, {**own.options, **options}, own.version)
