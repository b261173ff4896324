"""One operator of a user's model under conversion: its operands, and emission of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn, TypeVar

import numpy as np

from modelcc.frontends.kit.emit import ANYTHING, Emitter, require_index
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.groups import GroupValue, OptionalValue, SequenceValue
from modelcc.frontends.kit.shapes import Contents, is_symbolic
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Bounds, Index, Range
from modelcc.ir.op import Op
from modelcc.ir.types import I64, Array, DType, TensorType
from modelcc.ops.arithmetic import Value
from modelcc.ops.elementwise import Cast
from modelcc.ops.slicing import Slice

Option = TypeVar("Option")


@dataclass(frozen=True)
class Conversion:
    """What the handler of any framework's operator receives.

    ``inputs`` are value names, ``""`` where absent; ``labels`` are the user's names of them;
    ``source`` is the location of the operator in the user's model, outermost first.
    """

    inputs: tuple[str, ...]
    labels: tuple[str, ...]
    source: tuple[str, ...]
    emitter: Emitter

    @property
    def bounds(self) -> Bounds:
        """Bounds of the named dimensions."""
        return self.emitter.bounds

    def located(self, source: Sequence[str]) -> Conversion:
        """The same operator with location ``source``."""
        return replace(self, source=tuple(source))

    def emit(self, op: Op, *inputs: str) -> str:
        """The single result of ``op``."""
        return self.emitter.emit(op, *inputs, source=self.source)

    def add(self, op: Op, *inputs: str) -> tuple[str, ...]:
        """The results of ``op``."""
        return self.emitter.add(op, *inputs, source=self.source)

    def constant(self, value: Array | float, dtype: DType | None = None) -> str:
        """A value with these contents."""
        return self.emitter.constant(value, dtype)

    def note(self, elements: Sequence[Index], dtype: DType) -> str:
        """A vector of known elements, possibly symbolic."""
        return self.emitter.note_indices(elements, dtype)

    def group(self, group: GroupValue) -> str:
        """A value that is not a tensor."""
        return self.emitter.group(group)

    def find_group(self, i: int) -> GroupValue | None:
        """Operand ``i`` as a group; None if it is a tensor."""
        return self.emitter.find_group(self.inputs[i])

    def elements(self, i: int) -> tuple[str, ...]:
        """The elements of operand ``i``, a sequence."""
        found = self.find_group(i)
        if isinstance(found, OptionalValue):
            found = self.emitter.find_group(found.value)
        if not isinstance(found, SequenceValue):
            self.fail(f"operand {i} ({self.labels[i]!r}) must be a sequence")
        return found.elements

    def has(self, i: int) -> bool:
        """Whether operand ``i`` is present."""
        return i < len(self.inputs) and self.inputs[i] != ""

    def input(self, i: int) -> str:
        """Operand ``i``, ``""`` if absent."""
        return self.inputs[i] if i < len(self.inputs) else ""

    def value(self, i: int) -> Value:
        """Operand ``i``, with overloaded arithmetic."""
        return Value(self, self.input(i))

    def given(self, i: int) -> Value | None:
        """Operand ``i``, with overloaded arithmetic, if present."""
        return self.value(i) if self.has(i) else None

    def made(self, op: Op) -> Value:
        """The single result of an ``op`` without operands, with overloaded arithmetic."""
        return Value(self, self.emit(op))

    def literal(self, value: Array | float, dtype: DType | None = None) -> Value:
        """A value with these contents, with overloaded arithmetic."""
        return Value(self, self.constant(value, dtype))

    def type_of(self, name: str) -> TensorType:
        return self.emitter.type_of(name)

    def type(self, i: int = 0) -> TensorType:
        """Type of operand ``i``."""
        return self.emitter.type_of(self.inputs[i])

    def shape(self, i: int = 0) -> tuple[Index, ...]:
        return self.type(i).shape

    def dtype(self, i: int = 0) -> DType:
        return self.type(i).dtype

    def rank(self, i: int = 0) -> int:
        return self.type(i).rank

    def known(self, i: int) -> Contents | None:
        """Contents of operand ``i`` if known, as for empty tensors always."""
        if not self.has(i):
            return None
        contents = self.emitter.contents(self.inputs[i])
        return self._nothing(i) if contents is None else contents

    def _nothing(self, i: int) -> Contents | None:
        if self.emitter.find_group(self.inputs[i]) is not None:
            return None
        type = self.type(i)
        fixed = tuple(extent for extent in type.shape if isinstance(extent, int))
        nothing = 0 in fixed and len(fixed) == type.rank
        return np.empty(fixed, type.dtype.numpy) if nothing else None

    def contents(self, i: int, what: str) -> Contents:
        """Contents of operand ``i``; not supported if they are computed at run time."""
        found = self.known(i)
        if found is None:
            unsupported(f"its {what} ({self.labels[i]!r}) is computed at run time from data")
        return found

    def indices(
        self, i: int, what: str, known: Range | Sequence[Range] = ANYTHING
    ) -> tuple[Index, ...]:
        """Operand ``i`` as a flat tuple of indices.

        If it is computed at run time these are symbols, with bounds ``known``; its number of
        elements must be known.
        """
        contents = self.known(i)
        if contents is not None:
            elements = contents.reshape(-1).tolist()
            return tuple(require_index(e, f"its {what} ({self.labels[i]!r})") for e in elements)
        value = self.inputs[i]
        if not self.dtype(i).is_integer:
            unsupported(f"its {what} ({self.labels[i]!r}) is no integer and computed at run time")
        if self.dtype(i) != I64:
            value = self.emit(Cast(I64), value)
        return self.emitter.read_sizes(value, self.labels[i] or what, known, (), self.source)

    def index(self, i: int, what: str, known: Range = ANYTHING) -> Index:
        """Operand ``i`` as a single index."""
        values = self.indices(i, what, known)
        if len(values) != 1:
            self.fail(f"{what} must be a single number but has {len(values)} elements")
        return values[0]

    def integers(self, i: int, what: str) -> tuple[int, ...]:
        """Operand ``i`` as a flat tuple of numbers, which must be constant."""
        elements = self.contents(i, what).reshape(-1).tolist()
        values = [require_index(e, f"its {what} ({self.labels[i]!r})") for e in elements]
        if any(not isinstance(v, int) for v in values):
            unsupported(f"its {what} ({self.labels[i]!r}) depends on a named dimension")
        return tuple(v for v in values if isinstance(v, int))

    def array(self, i: int, what: str) -> Array:
        """Operand ``i`` as a concrete array."""
        found = self.contents(i, what)
        if is_symbolic(found):
            unsupported(f"its {what} ({self.labels[i]!r}) depends on a named dimension")
        return found

    def normal(self, axis: int, rank: int) -> int:
        """``axis`` counted from the front; :class:`ModelError` if there is no such axis."""
        if not -rank <= axis < rank:
            self.fail(f"axis {axis} does not exist in a tensor of rank {rank}")
        return axis % rank

    def sized(self, value: str, axis: int, extent: int) -> str:
        """``value`` with the constant ``extent`` along ``axis``, checked in every run."""
        shape = self.type_of(value).shape
        if shape[axis] == extent:
            return value
        self.emitter.require([(shape[axis], "==", extent)], self.source, always=True)
        extents = (*shape[:axis], extent, *shape[axis + 1 :])
        return self.emit(Slice((0,) * len(shape), extents, (1,) * len(shape)), value)

    def fail(self, message: str) -> NoReturn:
        """Refuse the model because of this node."""
        raise ModelError(message, self.source, "the model is invalid here; export it again")

    def choice(self, value: str, options: tuple[Option, ...], what: str) -> Option:
        """``value`` as one of ``options``; not supported otherwise."""
        for option in options:
            if option == value:
                return option
        unsupported(f"{what} {value!r} (known: {', '.join(map(str, options))})")
