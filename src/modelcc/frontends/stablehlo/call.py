"""One StableHLO operation under conversion, as its handler receives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

import numpy as np

from modelcc.frontends.kit.body import Body, BodyInputs
from modelcc.frontends.kit.conversion import Conversion
from modelcc.frontends.kit.emit import Emitter
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.stablehlo.module import Attribute, HloBlock, HloFunction, Operation
from modelcc.ir.index import Bounds, Index
from modelcc.ir.op import Op
from modelcc.ir.types import DType, TensorType
from modelcc.ops.arithmetic import Value


class InlineBlock(Protocol):
    """Converts a block inline, with values for its arguments; returns its results.

    ``lifted`` operands are tensors although the block is written for single elements.
    """

    def __call__(
        self, block: HloBlock, operands: Sequence[str], lifted: bool = False
    ) -> tuple[str, ...]: ...


class MakeBlockBody(Protocol):
    """Converts a block into its own graph; ``bounds`` are those of its symbols."""

    def __call__(self, block: HloBlock, bounds: Bounds, inputs: BodyInputs) -> Body: ...


Results = str | Sequence[str]


@dataclass(frozen=True)
class HloCall(Conversion):
    """An operation, and conversion of its regions and the functions that it calls.

    ``defining`` finds the operation that defines a value, ``find`` the converted value.
    """

    op: Operation
    inline: InlineBlock
    body: MakeBlockBody
    call: Callable[[str, Sequence[str]], tuple[str, ...]]
    functions: Mapping[str, HloFunction]
    defining: Callable[[int], Operation | None]
    find: Callable[[int], str | None]

    def with_inputs(self, *inputs: str) -> HloCall:
        """The same operation with other operands."""
        return replace(self, inputs=inputs, labels=inputs)

    def attribute(self, name: str, default: Attribute = None) -> Attribute:
        """Attribute ``name``; ``default`` if the operation has none."""
        return self.op.attributes.get(name, default)

    def integer(self, name: str, default: int = 0) -> int:
        return int(self.attribute(name, default))

    def integers(self, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
        """A list of integers; of an array in row-major order."""
        found = np.asarray(self.attribute(name, default), np.int64)
        return tuple(found.reshape(-1).tolist())

    def pairs(self, name: str, count: int) -> tuple[tuple[int, int], ...]:
        """A list of ``count`` pairs, zeros by default."""
        flat = self.integers(name, (0,) * (2 * count))
        return tuple(zip(flat[::2], flat[1::2], strict=True))

    def numbering(self, name: str) -> Mapping[str, Attribute]:
        """Dimension numbers."""
        return self.attribute(name)

    @property
    def result_dtype(self) -> DType:
        """Element type of the first result."""
        found = self.op.types[0].dtype
        if found is None:
            unsupported(f"there is no element type for {self.op.types[0]}")
        return found

    def result_shape(self, computed: Sequence[Index]) -> tuple[Index, ...]:
        """Extents of the first result: ``computed`` ones, where the module has no static extent."""
        written = self.op.types[0].shape
        return tuple(c if w is None else w for w, c in zip(written, computed, strict=True))

    def static_shape(self, number: int = 0) -> tuple[int, ...]:
        """The shape of a result, which must be static."""
        shape = self.op.types[number].shape
        if None in shape:
            unsupported("the shape of its result is not written down")
        return tuple(extent for extent in shape if extent is not None)

    def as_value(self, name: str) -> Value:
        """A value, with overloaded arithmetic."""
        return Value(self, name)

    def types(self) -> list[TensorType]:
        """Types of the operands."""
        return [self.type_of(name) for name in self.inputs]


def index_scalar(emitter: Emitter, index: Index, dtype: DType) -> str:
    """A scalar of a known index, possibly symbolic."""
    contents = np.empty((), object)
    contents[()] = index
    fixed = isinstance(index, int)
    return emitter.note(contents.astype(dtype.numpy) if fixed else contents, dtype)


Handler = Callable[[HloCall], Results]
Handlers = Mapping[str, Handler]


def table(dialect: str = "stablehlo", **handlers: Handler) -> Handlers:
    """Handlers by the full names of their operations."""
    return MappingProxyType({f"{dialect}.{name.strip('_')}": h for name, h in handlers.items()})


def plain(op: Op) -> Handler:
    """A handler of an operation that is ``op`` on the same operands."""
    return lambda call: call.emit(op, *call.inputs)
