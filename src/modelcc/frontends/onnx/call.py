"""One ONNX node under conversion, as its handler receives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol

from onnx import GraphProto

from modelcc.frontends.kit.body import Body, BodyInputs
from modelcc.frontends.kit.conversion import Conversion, Option
from modelcc.frontends.onnx.attributes import Attributes
from modelcc.ir.index import Bounds
from modelcc.ir.op import Op


class Inline(Protocol):
    """Converts a sub-graph inline, with ``operands`` as its inputs; returns its outputs."""

    def __call__(self, graph: GraphProto, *operands: str) -> tuple[str, ...]: ...


class MakeBody(Protocol):
    """Converts a sub-graph into its own graph; ``bounds`` are those of its symbols."""

    def __call__(self, graph: GraphProto, bounds: Bounds, inputs: BodyInputs) -> Body: ...


Results = str | Sequence[str]


@dataclass(frozen=True)
class Call(Conversion):
    """An ONNX node: operator, attributes, operand values; and emission of graph nodes.

    ``wanted`` says for each output whether it is read.
    """

    op_type: str
    opset: int
    attrs: Attributes
    wanted: tuple[bool, ...]
    inline: Inline
    find: Callable[[str], str | None]
    body: MakeBody

    def with_inputs(self, inputs: tuple[str, ...]) -> Call:
        """The same node with other operands."""
        return replace(self, inputs=inputs)

    def want(self, i: int) -> bool:
        """Whether output ``i`` is read."""
        return i < len(self.wanted) and self.wanted[i]

    def axis(self, default: int | None = None, rank: int | None = None, name: str = "axis") -> int:
        """Attribute ``axis``, normalised to be non-negative."""
        return self.normal(self.attrs.integer(name, default), self.rank() if rank is None else rank)

    def axes(
        self, operand: int, since: int, rank: int | None = None, repeated: bool = False
    ) -> tuple[int, ...] | None:
        """Axes, an attribute before opset ``since`` and an operand from then on; None: absent.

        They are unique, which the model's need not be if ``repeated``.
        """
        count = self.rank() if rank is None else rank
        if self.opset < since:
            if not self.attrs.has("axes"):
                return None
            values = self.attrs.integers("axes")
        elif self.has(operand):
            values = self.integers(operand, "axes")
        else:
            return None
        axes = tuple(self.normal(a, count) for a in values)
        if len(set(axes)) < len(axes) and not repeated:
            self.fail(f"axes {list(values)} name an axis twice")
        return tuple(dict.fromkeys(axes))

    def option(self, name: str, options: tuple[Option, ...], default: str | None = None) -> Option:
        """The string attribute ``name`` as one of ``options``."""
        return self.choice(self.attrs.text(name, default), options, name)


Handler = Callable[[Call], Results]
Handlers = Mapping[str, Handler]


def table(**handlers: Handler) -> Handlers:
    """Handlers by the names of their operators."""
    return MappingProxyType(handlers)


def simple(op: type[Op], **defaults: Any) -> Handler:
    """A handler of an operator whose attributes are those of ``op``, with these defaults.

    An attribute has the type of its default; operands are passed on unchanged.
    """

    def handler(call: Call) -> Results:
        attributes = {name: _read(call.attrs, name, value) for name, value in defaults.items()}
        return call.add(op(**attributes), *call.inputs)

    return handler


def _read(attrs: Attributes, name: str, default: Any) -> Any:
    match default:
        case bool():
            return attrs.flag(name, default)
        case int():
            return attrs.integer(name, default)
        case float():
            return attrs.number(name, default)
        case str():
            return attrs.text(name, default)
        case _:
            return attrs.integers(name, default)
