"""Nodes of tensors made through the builder interface: gradients, and code shared by frontends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic

from modelcc.ir.builder import as_array
from modelcc.ir.op import Builder, Op
from modelcc.ir.types import Array, DType, TensorType
from modelcc.ops.arithmetic import Value
from modelcc.tensor.lazy import Kind, apply


class TensorBuilder(Builder, Generic[Kind]):
    """A builder whose values are named tensors."""

    def __init__(self, kind: type[Kind]) -> None:
        """It makes nodes of ``kind``."""
        self.kind = kind
        self._tensors: dict[str, Kind] = {"": None}  # type: ignore[dict-item]
        self._source: tuple[str, ...] | None = None

    def located(self, source: Sequence[str]) -> TensorBuilder[Kind]:
        """This builder, with ``source`` as the nodes' location instead of the running line."""
        made = TensorBuilder(self.kind)
        made._tensors, made._source = self._tensors, tuple(source)
        return made

    def name(self, tensor: Kind) -> str:
        """A new name of ``tensor``."""
        name = f"v{len(self._tensors)}"
        self._tensors[name] = tensor
        return name

    def tensor(self, name: str) -> Kind:
        """The tensor called ``name``."""
        return self._tensors[name]

    def add(self, op: Op, *inputs: str) -> tuple[str, ...]:
        return tuple(map(self.name, self._applied(op, inputs)))

    def _applied(self, op: Op, inputs: Sequence[str]) -> tuple[Kind, ...]:
        return apply(self.kind, op, [self._tensors[n] for n in inputs], self._source)

    def constant(self, value: Array | float, dtype: DType | None = None) -> str:
        return self.name(self.kind.of_array(as_array(value, dtype)))

    def type_of(self, name: str) -> TensorType:
        return self._tensors[name].type


def applied(function: Callable[..., Any], *operands: Kind) -> list[Kind]:
    """Applies a function of graph values, with one or several results, to tensors."""
    build = TensorBuilder(type(operands[0]))
    found: Any = function(*(Value(build, build.name(x)) for x in operands))
    values: Any = found if isinstance(found, tuple) else (found,)  # pyright: ignore
    return [build.tensor(value.name) for value in values]
