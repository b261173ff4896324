"""The epilogue of a product or a convolution, if NVIDIA's libraries have it: a bias, an addend, and
relu or gelu.

Our kernels round intermediate values to the model's type, libraries do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import pi, sqrt
from typing import Literal

from modelcc.ir.index import Index, Sym, substitute
from modelcc.ir.tensor import Apply, Cast, Number, Read, Scalar, Stage
from modelcc.ir.types import F32
from modelcc.schedule.canonical import CanonicalKernel


@dataclass(frozen=True)
class Tail:
    """Adds the vector ``bias``, then the tensor ``added`` (empty: none), then applies an
    ``activation``."""

    bias: str = ""
    added: str = ""
    activation: Literal["", "relu", "gelu"] = ""


def product_and_tail(
    kernel: CanonicalKernel, axis: int = -1
) -> tuple[CanonicalKernel, Tail] | None:
    """``kernel`` as its product alone, with a result of the operands' type, and the epilogue; None
    if libraries do not have it.  A bias has an element for each index along ``axis``."""
    first, *rest = kernel.stages
    types = dict(kernel.types)
    if len(kernel.outputs) != 1 or not isinstance(first.body, Apply):
        return None
    (output,) = kernel.outputs
    found: dict[str, Tail] = {first.output: Tail()}
    for stage in rest:
        tail = _StageTail(stage, found, kernel, axis).of(stage.body)
        if tail is None or not _is_plain(stage, types[output].shape):
            return None
        found[stage.output] = tail
    if output not in found or (rest and rest[-1].output != output):
        return None
    body = replace(first.body, args=tuple(map(_uncast, first.body.args)))
    alike = types | {output: replace(types[output], dtype=body.args[0].dtype)}
    stages = (replace(first, output=output, body=body),)
    return replace(kernel, stages=stages, types=tuple(alike.items())), found[output]


def _uncast(factor: Scalar) -> Scalar:
    return factor.value if isinstance(factor, Cast) and factor.dtype == F32 else factor


def _is_plain(stage: Stage, shape: tuple[Index, ...]) -> bool:
    """Whether it computes each element of a tensor of ``shape`` from the same element of others."""
    extents = {Sym(axis.name): axis.extent for axis in stage.axes}
    written = tuple(extents.get(index) for index in stage.write if isinstance(index, Sym))
    return not stage.reduce and written == shape and len(stage.write) == len(extents)


@dataclass(frozen=True)
class _StageTail:
    stage: Stage
    before: Mapping[str, Tail]
    kernel: CanonicalKernel
    axis: int

    def of(self, body: Scalar) -> Tail | None:
        """The epilogue that ends with ``body``."""
        match body:
            case Read(tensor):
                return self.before.get(tensor) if self._is_same_element(body) else None
            case Cast(value):
                return self.of(value)
            case Apply("max", (value, Number(number))) if number == 0:
                return self._activated(value, "relu")
            case Apply("mul", (Apply("mul", (value, _)), _)) if body == _gelu(value):
                return self._activated(value, "gelu")
            case Apply("add", (left, right)):
                return self._added(left, right) or self._added(right, left)
            case _:
                return None

    def _activated(self, value: Scalar, name: Literal["relu", "gelu"]) -> Tail | None:
        found = self.of(value)
        return None if found is None or found.activation else replace(found, activation=name)

    def _added(self, value: Scalar, other: Scalar) -> Tail | None:
        """The epilogue of ``value`` and its addend."""
        found, other = self.of(value), _uncast(other)
        types = dict(self.kernel.types)
        if found is None or found.activation or found.added or not isinstance(other, Read):
            return None
        if other.tensor not in self.kernel.inputs or types[other.tensor].layout is not None:
            return None
        if self._is_same_element(other) and types[other.tensor].shape == self._shape:
            return replace(found, added=other.tensor)
        return Tail(other.tensor) if not found.bias and self._is_bias(other) else None

    def _is_bias(self, read: Read) -> bool:
        """Whether it reads a vector along the axis."""
        shape = dict(self.kernel.types)[read.tensor].shape
        along = self.stage.write[self.axis]
        vector = [(i, n) for i, n in zip(read.indices, shape, strict=True) if i != 0]
        ones = all(n == 1 for i, n in zip(read.indices, shape, strict=True) if i == 0)
        return ones and vector == [(along, self._shape[self.axis])]

    def _is_same_element(self, read: Read) -> bool:
        """Whether it reads the element that is written; axes of length 1 may be left out of an
        index."""
        ones: dict[str, Index] = {a.name: 0 for a in self.stage.axes if a.extent == 1}
        return read.indices == self.stage.write or (
            [substitute(i, ones) for i in read.indices]
            == [substitute(i, ones) for i in self.stage.write]
        )

    @property
    def _shape(self) -> tuple[Index, ...]:
        """The shape of the result."""
        return dict(self.kernel.types)[self.kernel.outputs[0]].shape


def _gelu(x: Scalar) -> Scalar:
    """The tanh approximation of Hendrycks & Gimpel, "Gaussian error linear units", 2016, as
    libraries compute it and models spell it."""

    def of(function: str, *args: Scalar) -> Scalar:
        return Apply(function, args, x.dtype)

    def number(value: float) -> Scalar:
        return Number(value, x.dtype)

    cubic = of("add", of("mul", of("mul", x, x), number(0.044715)), number(1.0))
    inner = of("mul", of("mul", x, cubic), number(sqrt(2 / pi)))
    gate = of("add", of("tanh", inner), number(1.0))
    return of("mul", of("mul", x, number(0.5)), gate)
