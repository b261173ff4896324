"""Value ranges of the integers of a tensor program, for all inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from modelcc.ir.index import Bounds, Index, Range, Sym, bounds_of, compare, loop_range, symbols
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.scalar_tree import walk
from modelcc.ir.tensor import (
    Algorithm,
    Apply,
    Bind,
    Cast,
    Guard,
    IndexValue,
    Item,
    Kernel,
    Number,
    Read,
    Scalar,
    Scatter,
    Select,
    Stage,
    TensorProgram,
    View,
    leaf_items,
)
from modelcc.ir.types import I64, DType

DEPTH = 32
"""Maximum number of tensors along a chain of ranges."""


@dataclass(frozen=True)
class ValueRange:
    """Lower and upper bounds of an integer, some of which may be symbolic; all of them hold."""

    lows: tuple[Index, ...]
    highs: tuple[Index, ...]


def dtype_range(dtype: DType) -> ValueRange:
    """All values of an integer or bool dtype."""
    if not dtype.is_integer:
        return ValueRange((0,), (1,)) if dtype.kind == "bool" else ValueRange((), ())
    if dtype.kind == "uint":
        return ValueRange((0,), ((1 << dtype.bits) - 1,))
    half = 1 << (dtype.bits - 1)
    return ValueRange((-half,), (half - 1,))


class ValueRanges:
    """Ranges of the tensors of one program, computed on demand."""

    def __init__(self, program: TensorProgram) -> None:
        self._program = program
        self._known: dict[str, ValueRange] = {}
        self._stages: dict[str, list[Stage]] = {}
        self._views: dict[str, str] = {}
        self._unknown = frozenset((*_filled(program.items), *_by_algorithms(program.items)))
        self._counters: dict[str, Range] = {}
        for name, counter in _counters(program.items):
            same = self._counters.get(name, counter) == counter
            self._counters[name] = counter if same else Range(0, None)
        for item in leaf_items(program.items):
            if isinstance(item, View):
                self._views[item.output] = item.input
            if isinstance(item, Kernel):
                for stage in item.stages:
                    self._stages.setdefault(stage.output, []).append(stage)

    def bounds(self, stage: Stage) -> Bounds:
        """Ranges of the sizes, counters, axes and bound indices in the body of ``stage``."""
        axes = {a.name: loop_range(a.extent) for a in (*stage.axes, *stage.reduce)}
        bound = {
            s.symbol: Range(0, s.bound.extent - 1) if s.bound else Range(None, None)
            for s in walk(stage.body)
            if isinstance(s, Bind)
        }
        return {**self._program.dims, **self._counters, **axes, **bound}

    def tensor(self, name: str, depth: int = DEPTH) -> ValueRange:
        """Range of all elements of a tensor."""
        values = self._known.get(name)
        if values is None:
            whole = dtype_range(self._program.types[name].dtype)
            self._known[name] = whole  # in a loop it may depend on itself
            values = self._known[name] = self._found(name, whole, depth) if depth else whole
        return values

    def _found(self, name: str, whole: ValueRange, depth: int) -> ValueRange:
        constant = self._program.constants.get(name)
        if constant is not None and constant.data.size and whole.lows:
            low, high = int(np.min(constant.data)), int(np.max(constant.data))
            return ValueRange((low,), (high,))
        if name in self._unknown:
            return whole
        if name in self._views:
            return self.tensor(self._views[name], depth - 1)
        parts = [self._written(stage, whole, depth) for stage in self._stages.get(name, [])]
        return _union(parts, self._program.dims) if parts else whole

    def _written(self, stage: Stage, whole: ValueRange, depth: int) -> ValueRange:
        if not whole.lows or stage.combine not in (None, "max", "min"):
            return whole
        bounds = self.bounds(stage)
        if not all(compare(a.extent, ">=", 1, self._program.dims) for a in stage.reduce):
            return whole
        values = self.scalar(stage.body, bounds, depth)
        sizes = frozenset(self._program.dims)
        lows = (_outside(i, bounds, sizes, False) for i in values.lows)
        highs = (_outside(i, bounds, sizes, True) for i in values.highs)
        return ValueRange(
            tuple(i for i in lows if i is not None), tuple(i for i in highs if i is not None)
        )

    def scalar(self, s: Scalar, bounds: Bounds, depth: int = DEPTH) -> ValueRange:
        """Range of an integer expression whose index symbols lie in ``bounds``."""
        whole = dtype_range(s.dtype)
        if not whole.lows:
            return whole
        match s:
            case Number(value):
                return ValueRange((int(value),), (int(value),))
            case IndexValue(index) if s.dtype == I64:
                return ValueRange((index,), (index,))
            case IndexValue(index):
                return _kept(ValueRange((index,), (index,)), whole, bounds)
            case Read(tensor):
                return self.tensor(tensor, depth - 1) if depth else whole
            case Cast(value, _):
                return _kept(self.scalar(value, bounds, depth), whole, bounds)
            case Select():
                return self._select(s, bounds, depth)
            case Guard(_, inside, outside):
                parts = [self.scalar(part, bounds, depth) for part in (inside, outside)]
                return _union(parts, bounds)
            case Bind(body=body):
                return self.scalar(body, bounds, depth)
            case Apply(function, (a, b)):
                return self._apply(s, function, a, b, bounds, depth)
            case _:
                return whole

    def _select(self, s: Select, bounds: Bounds, depth: int) -> ValueRange:
        value = wrapped_value(s)
        if value is None:
            parts = [self.scalar(part, bounds, depth) for part in (s.then, s.other)]
            return _union(parts, bounds)
        raw, extent = value
        given = self.scalar(raw, bounds, depth)
        if any(compare(low, ">=", 0, bounds) for low in given.lows):
            return given
        enough = any(compare(low, ">=", -1 * extent, bounds) for low in given.lows)
        highs = tuple(h for h in given.highs if compare(h, ">=", extent - 1, bounds))
        under = any(compare(h, "<", extent, bounds) for h in given.highs)
        whole = dtype_range(s.dtype)
        return ValueRange((0,) if enough else whole.lows, (extent - 1,) if under else highs)

    def _apply(
        self, s: Apply, function: str, a: Scalar, b: Scalar, bounds: Bounds, depth: int
    ) -> ValueRange:
        whole = dtype_range(s.dtype)
        if function not in ("min", "max", "add", "sub", "mod", "floordiv"):
            return whole
        one, other = self.scalar(a, bounds, depth), self.scalar(b, bounds, depth)
        match function:
            case "min":
                lows = _union((one, other), bounds).lows
                return ValueRange(lows, (*one.highs, *other.highs))
            case "max":
                highs = _union((one, other), bounds).highs
                return ValueRange((*one.lows, *other.lows), highs)
            case "mod" if any(compare(low, ">=", 1, bounds) for low in other.lows):
                return ValueRange((0,), tuple(h - 1 for h in other.highs))
            case "add":
                sums = [
                    tuple(x + y for x in p for y in q)
                    for p, q in ((one.lows, other.lows), (one.highs, other.highs))
                ]
                return _kept(ValueRange(*sums), whole, bounds)
            case "sub":
                sums = [
                    tuple(x - y for x in p for y in q)
                    for p, q in ((one.lows, other.highs), (one.highs, other.lows))
                ]
                return _kept(ValueRange(*sums), whole, bounds)
            case _:
                return whole


def wrapped_value(s: Scalar) -> tuple[Scalar, Index] | None:
    """The index and the extent if ``s`` is an index to which the extent is added below 0."""
    match s:
        case Select(
            Apply("lt", (value, Number(0))), Apply("add", (one, IndexValue(extent))), other
        ) if value == one == other:
            return value, extent
        case _:
            return None


def _kept(values: ValueRange, whole: ValueRange, bounds: Bounds) -> ValueRange:
    """``values`` if within ``whole``, otherwise ``whole``: values outside wrap around."""
    (least,), (greatest,) = whole.lows, whole.highs
    assert isinstance(least, int) and isinstance(greatest, int)
    above = any(compare(low, ">=", least, bounds) for low in values.lows)
    below = any(compare(high, "<=", greatest, bounds) for high in values.highs)
    return values if above and below else whole


def _filled(items: Iterable[Item]) -> Iterator[str]:
    """Tensors that loops fill, possibly in part if they end early."""
    for item in items:
        match item:
            case Branch():
                yield from _filled((*item.then, *item.other))
            case Repeat():
                yield from item.filled
                yield from _filled(item.body)
            case _:
                pass


def _by_algorithms(items: Iterable[Item]) -> Iterator[str]:
    """Tensors that algorithms and scatters write, perhaps only in one side of a branch."""
    for item in leaf_items(tuple(items)):
        if isinstance(item, Algorithm | Scatter):
            yield from item.outputs


def _counters(items: Iterable[Item]) -> Iterator[tuple[str, Range]]:
    """Ranges of the counters of all loops."""
    for item in items:
        match item:
            case Branch():
                yield from _counters((*item.then, *item.other))
            case Repeat():
                yield from item.inside({}).items()
                yield from _counters(item.body)
            case _:
                pass


def _union(parts: Iterable[ValueRange], bounds: Bounds) -> ValueRange:
    """A range that contains each of ``parts``."""
    first, *others = parts
    lows, highs = first.lows, first.highs
    for other in others:
        lows = _common(lows, other.lows, bounds, False)
        highs = _common(highs, other.highs, bounds, True)
    return ValueRange(lows, highs)


def _common(
    one: tuple[Index, ...], other: tuple[Index, ...], bounds: Bounds, upper: bool
) -> tuple[Index, ...]:
    sign = "<=" if upper else ">="
    common = [a for a in one if any(compare(b, sign, a, bounds) for b in other)]
    common += [b for b in other if any(compare(a, sign, b, bounds) for a in one)]
    return tuple(dict.fromkeys(common))


def _outside(
    index: Index, bounds: Mapping[str, Range], sizes: frozenset[str], upper: bool
) -> Index | None:
    """A bound in terms of ``sizes`` alone, from one that uses axes and counters."""
    if symbols(index) <= sizes:
        return index
    if isinstance(index, int):
        return index
    if isinstance(index, Sym):
        limits = bounds[index.name]
        side = limits.hi if upper else limits.lo
        return side if side is not None and symbols(side) <= sizes else None
    known_range = bounds_of(index, bounds)
    return known_range.hi if upper else known_range.lo
