"""One ATen operator under conversion, as its handler receives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from modelcc.frontends.kit.conversion import Conversion
from modelcc.frontends.kit.emit import Emitter
from modelcc.frontends.torch.dtypes import dtype_of
from modelcc.ir.index import Expr, Index
from modelcc.ir.op import Op
from modelcc.ir.types import I64, DType, TensorType
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.views import cast

Number = float | int | bool
Operand = Value | Number | Expr
"""A tensor, a number or a size."""


@dataclass(frozen=True)
class Aten(Conversion):
    """An ATen operator: its name, the results that PyTorch infers, and emission of nodes.

    Handlers receive it and then all arguments of the operator's schema in order, defaults included:
    a tensor as a :class:`Value`, a size as an index, a dtype as a :class:`DType`, lists as tuples.
    ``given`` are PyTorch's own arguments.
    """

    target: str
    results: tuple[TensorType | None, ...]
    given: tuple[Any, ...]

    @property
    def result(self) -> TensorType:
        """Type of the first result."""
        first = self.results[0]
        assert first is not None
        return first

    def promoted(self) -> DType:
        """The promoted dtype of all operands by PyTorch's rules."""
        kind = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
        kinds = torch.Tensor | torch.SymFloat | float | int | bool
        given = [a for a in self.given if isinstance(a, kinds)]
        return dtype_of(elementwise_dtypes(*given, type_promotion_kind=kind)[1])

    def as_value(self, x: Operand, dtype: DType | None = None) -> Value:
        """A tensor, number or size as ``dtype``, by default that of the first result."""
        wanted = self.result.dtype if dtype is None else dtype
        if isinstance(x, Value):
            return cast(x, wanted)
        if isinstance(x, Expr):
            return cast(Value(self, self.emitter.note(_symbolic(x), I64)), wanted)
        return self.literal(_array(x, wanted))

    def op(self, op: Op, *xs: Operand) -> Value:
        """``op`` on operands converted to the type of the first result."""
        return of(op, *map(self.as_value, xs))

    def many(self, op: Op, *xs: Value | None) -> tuple[Value, ...]:
        """All results of ``op``."""
        names = self.add(op, *("" if x is None else x.name for x in xs))
        return tuple(Value(self, name) for name in names)

    def one(self, op: Op, *xs: Value | None) -> Value:
        """The first result of ``op``, whose last operands may be absent."""
        return self.many(op, *xs)[0]

    def axis(self, axis: int, rank: int) -> int:
        """``axis`` as a nonnegative one; a scalar counts as having one axis."""
        return self.normal(axis, max(rank, 1))

    def axes_of(self, axes: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
        """``axes`` as nonnegative ones, sorted; all if there are none."""
        if axes is None or axes == () or axes == []:
            return tuple(range(rank))
        many = (axes,) if isinstance(axes, int) else axes
        return tuple(sorted({self.axis(a, rank) for a in many}))

    def extents(self, i: int = 0) -> tuple[Index, ...]:
        """The shape of result ``i`` that PyTorch infers."""
        found = self.results[i]
        assert found is not None
        return found.shape


def _symbolic(value: Expr) -> np.ndarray[Any, Any]:
    array = np.empty((), object)
    array[()] = value
    return array


def _array(value: Number, dtype: DType) -> np.ndarray[Any, Any]:
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(dtype.numpy)


def as_number(value: Number, dtype: DType) -> Number:
    """``value`` rounded to ``dtype``."""
    found: Number = _array(value, dtype).item()
    return found


Subgraph = Callable[[Emitter, Sequence[str | Index]], Sequence[str]]
"""Converts an operator's sub-graph, with values of an emitter, or sizes, as its inputs."""

Result = Value | Sequence[Value | None]
Handler = Callable[..., Result]
Handlers = Mapping[str, Handler]


def table(**handlers: Handler) -> Handlers:
    """Handlers by the names of their operators, all overloads; see :func:`overloads`."""
    return MappingProxyType(handlers)


def overloads(handlers: Mapping[str, Handler]) -> Handlers:
    """Handlers by names with overloads, as in ``max.dim``; these take precedence over those by
    name."""
    return MappingProxyType(dict(handlers))
