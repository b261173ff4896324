"""Builder of StableHLO operations as text, in dynamic form for symbolic extents."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Generator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import numpy as np

from modelcc.exporters.stablehlo.text import carrier, constant_text, identifier, type_text
from modelcc.ir.builder import as_array
from modelcc.ir.index import Index
from modelcc.ir.naming import Names
from modelcc.ir.types import BOOL, I32, I64, Array, DType, TensorType, dtype_of

Attributes = Mapping[str, str]
"""Attribute names and their textual values."""


@dataclass(frozen=True)
class Hlo:
    """A value: its name, with ``%``, and its type."""

    name: str
    type: TensorType

    @property
    def shape(self) -> tuple[Index, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype


@dataclass
class HloLine:
    """``left = right``; ``values`` are its results."""

    left: str
    right: str
    values: tuple[Hlo, ...]


class HloBuilder:
    """Appends operations, deduplicated by operation and operands.

    ``symbols`` are the values of named dimensions, i64 scalars.
    """

    def __init__(self) -> None:
        self.lines: list[HloLine] = []
        self.symbols: dict[str, Hlo] = {}
        self._known: MutableMapping[str, HloLine] = {}
        self._names = Names()
        self._numbers = count()

    # --- lines

    def argument(self, name: str, type: TensorType) -> Hlo:
        """An argument of a function or a region."""
        return Hlo(f"%{self._names.fresh(identifier(name))}", type)

    def statement(self, right: str, *types: TensorType) -> tuple[Hlo, ...]:
        """The results of an operation with the text ``right``."""
        known = self._known.get(right)
        if known is not None:
            return known.values
        number = next(self._numbers)
        several = len(types) > 1
        names = [f"%{number}#{n}" for n in range(len(types))] if several else [f"%{number}"]
        values = tuple(map(Hlo, names, types))
        left = f"%{number}:{len(types)}" if several else names[0]
        self._add(HloLine(left, right, values))
        return values

    def emit(self, right: str, type: TensorType) -> Hlo:
        """The single result of an operation."""
        (value,) = self.statement(right, type)
        return value

    def _add(self, line: HloLine) -> None:
        self.lines.append(line)
        self._known[line.right] = line

    def rename(self, value: Hlo, name: str, since: int) -> Hlo:
        """``value`` under ``name`` if a line from ``since`` on defines it and its name is a
        number."""
        made = next((n for n in self.lines[since:] if n.values == (value,)), None)
        if made is None or not re.fullmatch(r"%\d+", value.name):
            return value
        named = self.argument(name, value.type)
        made.left, made.values = named.name, (named,)
        mention = re.compile(rf"{value.name}(?!\w)")
        for line in self.lines[since:]:
            if value.name in line.right:
                line.right = mention.sub(lambda _: named.name, line.right)
        return named

    @contextmanager
    def region(self) -> Generator[list[HloLine]]:
        """Collects the lines added inside, which may capture outer values."""
        outer = self.lines, self._known
        self.lines, self._known = [], ChainMap({}, self._known)
        try:
            yield self.lines
        finally:
            self.lines, self._known = outer

    def block(
        self,
        types: Sequence[TensorType],
        body: Callable[[tuple[Hlo, ...]], Sequence[Hlo]],
        name: str = "a",
    ) -> str:
        """A region of one block; ``body`` maps its arguments to its results."""
        with self.region() as lines:
            arguments = tuple(self.argument(name, t) for t in types)
            results = body(arguments)
        given = ", ".join(f"{a.name}: {type_text(a.type)}" for a in arguments)
        head = [f"^bb0({given}):"] if arguments else []
        names = ", ".join(r.name for r in results)
        last = f"stablehlo.return {names} : {', '.join(type_text(r.type) for r in results)}"
        inside = [*(f"{line.left} = {line.right}" for line in lines), last]
        text = "\n".join((*head, *(f"  {line}".replace("\n", "\n  ") for line in inside)))
        return "{\n" + text + "\n}"

    # --- general forms

    def elementwise(self, operation: str, *operands: Hlo) -> Hlo:
        """An operation whose result has the type of its operands."""
        type = operands[0].type
        names = ", ".join(o.name for o in operands)
        arrow = f" -> {type_text(type)}" if operation.startswith("chlo.") else ""
        full = operation if "." in operation else f"stablehlo.{operation}"
        return self.emit(f"{full} {names} : {type_text(type)}{arrow}", type)

    def convert_by(self, spelling: str, result: TensorType, *operands: Hlo) -> Hlo:
        """An operation written with its operands, followed by their types and the result's."""
        types = ", ".join(type_text(o.type) for o in operands)
        return self.emit(f"stablehlo.{spelling} : ({types}) -> {type_text(result)}", result)

    def generic(
        self,
        operation: str,
        operands: Sequence[Hlo],
        results: Sequence[TensorType],
        attributes: Attributes,
        *regions: str,
    ) -> tuple[Hlo, ...]:
        """An operation in MLIR's generic form."""
        listed = ", ".join(f"{name} = {value}" for name, value in attributes.items())
        settings = f" {{{listed}}}" if listed else ""
        bodies = f" ({', '.join(regions)})" if regions else ""
        types = ", ".join(type_text(o.type) for o in operands)
        made = ", ".join(map(type_text, results))
        right = (
            f'"stablehlo.{operation}"({", ".join(o.name for o in operands)}){bodies}{settings}'
            f" : ({types}) -> {made if len(results) == 1 else f'({made})'}"
        )
        return self.statement(right, *results)

    # --- constants and sizes

    def constant(self, value: Array | float, dtype: DType | None = None) -> Hlo:
        """A constant."""
        array = as_array(value, dtype)
        type = TensorType(array.shape, dtype or dtype_of(array))
        spelled = carrier(type.dtype)
        if spelled == type.dtype or array.ndim == 0:
            return self.emit(f"stablehlo.constant {constant_text(array, type)}", type)
        wide = self.constant(array.astype(spelled.numpy))
        return self.convert(wide, type.dtype)

    def scalar(self, value: float, dtype: DType) -> Hlo:
        """A scalar."""
        return self.constant(value, dtype)

    def size(self, x: Hlo, axis: int) -> Hlo:
        """An extent, as i64."""
        small = TensorType((), I32)
        found = self.convert_by(f"get_dimension_size {x.name}, dim = {axis}", small, x)
        return self.convert(found, I64)

    def extents(self, values: Sequence[int | Hlo]) -> Hlo:
        """Integers as a one-dimensional tensor."""
        numbers = [v for v in values if isinstance(v, int)]
        if len(numbers) == len(values):
            return self.constant(np.array(numbers, np.int64), I64)
        one = TensorType((1,), I64)
        parts = [
            self.constant(np.array([v]), I64) if isinstance(v, int) else self.reshape_by(v, one)
            for v in values
        ]
        return self.concatenate(parts, 0, TensorType((len(parts),), I64))

    # --- elementwise

    def convert(self, x: Hlo, dtype: DType) -> Hlo:
        """Converts the element type; reals are truncated."""
        if x.dtype == dtype:
            return x
        return self.convert_by(f"convert {x.name}", TensorType(x.shape, dtype), x)

    def compare(self, direction: str, x: Hlo, y: Hlo) -> Hlo:
        """Bools by ``EQ``, ``NE``, ``LT``, ``LE``, ``GT`` or ``GE``."""
        result = TensorType(x.shape, BOOL)
        return self.convert_by(f"compare {direction}, {x.name}, {y.name}", result, x, y)

    def select(self, condition: Hlo, then: Hlo, other: Hlo) -> Hlo:
        """``then`` where ``condition``, possibly a single bool, holds, else ``other``."""
        types = f"{type_text(condition.type)}, {type_text(then.type)}"
        names = f"{condition.name}, {then.name}, {other.name}"
        return self.emit(f"stablehlo.select {names} : {types}", then.type)

    # --- forms without arithmetic

    def reshape_by(self, x: Hlo, type: TensorType) -> Hlo:
        """A reshape to a static shape."""
        return x if x.type == type else self.convert_by(f"reshape {x.name}", type, x)

    def transpose(self, x: Hlo, perm: Sequence[int]) -> Hlo:
        """Axis ``k`` of the result is axis ``perm[k]``."""
        if tuple(perm) == tuple(range(len(perm))):
            return x
        type = TensorType(tuple(x.shape[p] for p in perm), x.dtype)
        return self.convert_by(f"transpose {x.name}, dims = {list(perm)}", type, x)

    def concatenate(self, parts: Sequence[Hlo], axis: int, type: TensorType) -> Hlo:
        """Concatenation."""
        if len(parts) == 1:
            return parts[0]
        names = ", ".join(p.name for p in parts)
        return self.convert_by(f"concatenate {names}, dim = {axis}", type, *parts)
