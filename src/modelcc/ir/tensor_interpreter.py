"""Reference interpreter of the tensor level: semantics of stages, in NumPy.

Every scalar expression is evaluated at once for a block of the iteration space: parallel axes
first, then reduction axes, each an index array that broadcasts.  Nothing here is optimized.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from math import prod
from typing import Any

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Bounds, FloorDiv, FloorMod, Index, IndexMax, IndexMin, Sym, evaluate
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.library import meaning_of
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.scalar import COMBINE_FUNCTION, FUNCTIONS, Combine, identity
from modelcc.ir.scalar_tree import outer_binds
from modelcc.ir.tensor import (
    Algorithm,
    Apply,
    Axis,
    Bind,
    Bitcast,
    Cast,
    Comparison,
    Condition,
    Guard,
    IndexValue,
    Item,
    Kernel,
    Linear,
    Number,
    Read,
    ReadSize,
    Scalar,
    Scatter,
    Select,
    Stage,
    TensorProgram,
    View,
    size_conditions,
)
from modelcc.ir.types import Array, TensorType, dtype_of

POINTS = 1 << 21
"""Points of the iteration space evaluated at once; bounds memory, never the result."""


def run_program(
    program: TensorProgram, inputs: Mapping[str, Array], env: Mapping[str, int]
) -> dict[str, Array]:
    """The outputs of ``program`` by name; ``env`` gives its named dimensions."""
    tensors = {name: constant.data for name, constant in program.constants.items()} | dict(inputs)
    _run_items(program, program.items, tensors, dict(env))
    return {name: tensors[name] for name in program.outputs}


def _run_items(
    program: TensorProgram, items: Sequence[Item], tensors: dict[str, Array], env: dict[str, int]
) -> None:
    """Run items in the order of the text; sizes that they read are added to ``env``."""
    for item in items:
        match item:
            case Kernel():
                names = dict.fromkeys(stage.output for stage in item.stages)
                fresh = {n: program.types[n] for n in names if n not in tensors}
                tensors |= allocate(fresh, env)  # several kernels may write parts of one tensor
                evaluate_stages(item.stages, tensors, env, program.types)
            case Scatter():
                _scatter(item, tensors, env, program.types)
            case View():
                shape = [evaluate(e, env) for e in program.types[item.output].shape]
                tensors[item.output] = tensors[item.input].reshape(shape)
            case Algorithm():
                tensors |= allocate({n: program.types[n] for n in item.outputs}, env)
                arrays = [np.ascontiguousarray(tensors[n]) for n in (*item.inputs, *item.outputs)]
                tensors |= zip((*item.inputs, *item.outputs), arrays, strict=True)
                interpret_loops(
                    meaning_of(item.function), arrays, [evaluate(e, env) for e in item.sizes]
                )
            case ReadSize():
                env |= zip(item.symbols, tensors[item.tensor].reshape(-1).tolist(), strict=True)
                check_conditions(item, program.dims, env)
            case Branch():
                taken = item.then if tensors[item.condition].reshape(())[()] else item.other
                inner = dict(tensors)
                _run_items(program, taken, inner, dict(env))
                tensors |= {name: inner[name] for name in item.outputs}
            case Repeat():
                _run_loop(program, item, tensors, env)


def _run_loop(
    program: TensorProgram, loop: Repeat[Item], tensors: dict[str, Array], env: Mapping[str, int]
) -> None:
    fresh = {name: program.types[name] for name in loop.filled if name not in tensors}
    tensors |= allocate(fresh, env)
    trips = None if loop.trips is None else evaluate(loop.trips, env)
    states = {c.state: tensors[c.initial] for c in loop.carries}
    for number in count() if trips is None else range(trips):
        if loop.condition is not None and not states[loop.condition].reshape(())[()]:
            break
        inner = {**tensors, **states}
        _run_items(program, loop.body, inner, {**env, loop.counter: number})
        states = {c.state: inner[c.next] for c in loop.carries}
    tensors |= {c.last: states[c.state] for c in loop.carries}


def check_conditions(item: ReadSize, dims: Bounds, env: Mapping[str, int]) -> None:
    """:class:`ModelError` unless the sizes that ``item`` has read satisfy its conditions."""
    for condition in size_conditions(item, dims):
        if not condition.holds(env):
            given = ", ".join(f"{name} = {env[name]}" for name in item.symbols)
            raise ModelError(f"{condition} does not hold: {given}", item.source)


def allocate(types: Mapping[str, TensorType], env: Mapping[str, int]) -> dict[str, Array]:
    """A zeroed array for every type."""
    return {
        name: np.zeros([evaluate(e, env) for e in t.shape], t.dtype.numpy)
        for name, t in types.items()
    }


def evaluate_stages(
    stages: Sequence[Stage | Scatter],
    tensors: dict[str, Array],
    env: Mapping[str, int],
    types: Mapping[str, TensorType] | None = None,
) -> None:
    """Runs ``stages`` in order, filling the arrays of their outputs in ``tensors``.

    ``env`` gives the named dimensions.  ``types`` is needed only for tensors whose zero border
    (halo) is read.  ``IndexError`` if a read or write leaves its tensor.
    """
    with np.errstate(all="ignore"):
        for stage in stages:
            if isinstance(stage, Scatter):
                _scatter(stage, tensors, env, types or {})
                continue
            for ranges in _blocks(stage, env):
                _evaluate_block(stage, ranges, tensors, env, types or {})


def _scatter(
    item: Scatter,
    tensors: dict[str, Array],
    env: Mapping[str, int],
    types: Mapping[str, TensorType],
) -> None:
    """Defines the output of ``item``; all indices are checked before anything is written."""
    stage = item.stage
    target = np.array(tensors[item.initial])
    binds, value = outer_binds(stage.body)
    for ranges in _blocks(stage, env):
        point = _Point(stage.output, tensors, types, {**env, **_lines(stage.axes, ranges)})
        for bind in binds:
            point = point.bound(bind)
        space = tuple(map(len, ranges))
        places = np.zeros(space, np.int64)
        for w, extent in zip(stage.write, target.shape, strict=True):
            places = places * extent + _index(w, point.env)
        values = np.broadcast_to(point.scalar(value), space)
        _update(target.reshape(-1), places.ravel(), values.ravel(), stage.combine)
    tensors[stage.output] = target


def _update(target: Array, places: Array, values: Array, combine: Combine | None) -> None:
    """Applies updates in order; of several replacements of one element the last one wins."""
    if combine is None:
        last = dict(zip(places.tolist(), range(places.size), strict=True))
        target[list(last)] = values[list(last.values())]
        return
    ufunc = FUNCTIONS[COMBINE_FUNCTION[combine]].numpy
    for place, value in zip(places.tolist(), values, strict=True):
        target[place] = ufunc(target[place], value)


def _blocks(stage: Stage, env: Mapping[str, int]) -> Iterator[list[range]]:
    """Ranges of the parallel axes that cover the space in blocks of at most POINTS points."""
    extents = [evaluate(a.extent, env) for a in stage.axes]
    inner = max(1, prod(evaluate(a.extent, env) for a in stage.reduce))
    steps: list[int] = []
    for extent in reversed(extents):
        steps.insert(0, max(1, min(extent, POINTS // inner)))
        inner *= max(1, extent)
    yield from _covered(extents, steps)


def _covered(extents: Sequence[int], steps: Sequence[int]) -> Iterator[list[range]]:
    if not extents:
        yield []
        return
    for start in range(0, extents[0], steps[0]):
        for rest in _covered(extents[1:], steps[1:]):
            yield [range(start, min(extents[0], start + steps[0])), *rest]


def _evaluate_block(
    stage: Stage,
    ranges: Sequence[range],
    tensors: dict[str, Array],
    env: Mapping[str, int],
    types: Mapping[str, TensorType],
) -> None:
    spans = [*ranges, *(range(evaluate(a.extent, env)) for a in stage.reduce)]
    lines = _lines((*stage.axes, *stage.reduce), spans)
    space = tuple(len(s) for s in spans)
    point = _Point(stage.output, tensors, types, {**env, **lines})
    values = np.broadcast_to(point.scalar(stage.body), space)
    if stage.reduce and stage.combine is not None:
        values = _combined(values, stage.combine, tuple(range(len(ranges), len(spans))))
    where = [np.asarray(_index(w, {**env, **_lines(stage.axes, ranges)})) for w in stage.write]
    target = tensors[stage.output]
    for w, extent in zip(where, target.shape, strict=True):
        if w.size and (w.min() < 0 or w.max() >= extent):
            raise IndexError(f"stage {stage.output} writes outside its shape {target.shape}")
    target[tuple(where)] = values


def _lines(axes: Sequence[Axis], spans: Sequence[range]) -> dict[str, Array]:
    """An index array per axis, along its own dimension of the block."""
    rank = len(axes)
    return {
        axis.name: np.arange(span.start, span.stop).reshape(
            [-1 if k == position else 1 for k in range(rank)]
        )
        for position, (axis, span) in enumerate(zip(axes, spans, strict=True))
    }


def _combined(values: Array, combine: Combine, axes: tuple[int, ...]) -> Array:
    ufunc: Any = FUNCTIONS[COMBINE_FUNCTION[combine]].numpy
    start = identity(combine, dtype_of(values))
    if values.size == 0:
        kept = [e for a, e in enumerate(values.shape) if a not in axes]
        return np.full(kept, start, values.dtype)
    for axis in reversed(axes):
        values = np.asarray(ufunc.reduce(values, axis=axis, dtype=values.dtype))
    return values


@dataclass(frozen=True, eq=False)
class _Point:
    """A block of points at which scalars are evaluated.

    ``active`` masks points where a guard does not hold: nothing is read there.
    """

    stage: str
    tensors: Mapping[str, Array]
    types: Mapping[str, TensorType]
    env: Mapping[str, int | Array]
    active: Array = field(default_factory=lambda: np.array(True))

    def scalar(self, s: Scalar) -> Array:
        """The values of ``s``, in a shape that broadcasts to the block."""
        match s:
            case Number(value, dtype):
                return np.asarray(value, dtype.numpy)
            case IndexValue(index, dtype):
                return np.asarray(_index(index, self.env)).astype(dtype.numpy)
            case Read():
                return self._read(s)
            case Apply(function, args, dtype):
                result = FUNCTIONS[function].numpy(*map(self.scalar, args))
                return np.asarray(result).astype(dtype.numpy, copy=False)
            case Linear():
                return self._linear(s)
            case Select(condition, then, other, _):
                return np.where(self.scalar(condition), self.scalar(then), self.scalar(other))
            case Cast(value, dtype):
                return self.scalar(value).astype(dtype.numpy, copy=False)
            case Bitcast(value, dtype):
                return self.scalar(value).view(dtype.numpy)
            case Guard():
                return self._guard(s)
            case Bind():
                return self.bound(s).scalar(s.body)

    def _linear(self, s: Linear) -> Array:
        """Each row of the matrix where it is selected; elsewhere its operands are not read."""
        number = np.asarray(_index(s.row, self.env))
        result = np.zeros((), s.dtype.numpy)
        for row in np.unique(number).tolist():
            chosen = number == row
            here = replace(self, active=self.active & chosen)
            value = here._row(s, len(s.factors), row)
            result = np.where(chosen, value, result)
        return result

    def _row(self, s: Linear, level: int, row: int) -> Array:
        """Element ``row`` of the product with the first ``level`` factors."""
        if level == 0:
            return self.scalar(s.args[row])
        total: Array | None = None
        for place, coefficient in enumerate(s.factors[level - 1][row]):
            if coefficient != 0:
                factor = np.asarray(coefficient, s.dtype.numpy)
                term = np.multiply(factor, self._row(s, level - 1, place))
                total = term if total is None else np.add(total, term)
        return np.zeros((), s.dtype.numpy) if total is None else total

    def bound(self, s: Bind) -> _Point:
        """The point with the symbol of ``s`` bound to its value, which is checked."""
        place = self.scalar(s.value).astype(np.int64)
        if s.bound is not None:
            place = self._checked(place, s.bound)
        return replace(self, env={**self.env, s.symbol: place})

    def _checked(self, place: Array, bound: IndexBound) -> Array:
        """``place`` if it is in ``bound`` at active points, 0 elsewhere."""
        extent = np.asarray(_index(bound.extent, self.env))
        outside = self.active & ((place < 0) | (place >= extent))
        if outside.any():
            sizes = {name: int(v) for name, v in self.env.items() if np.ndim(v) == 0}
            first = int(np.broadcast_to(place, outside.shape)[outside][0])
            raise ModelError(bound.fault(first, sizes), bound.source)
        return np.where(self.active, place, 0)

    def _guard(self, s: Guard) -> Array:
        mask = np.array(True)
        for condition in s.conditions:
            mask = mask & _holds(condition, self.env)
        inside = replace(self, active=self.active & mask).scalar(s.inside)
        return np.where(mask, inside, self.scalar(s.outside))

    def _read(self, s: Read) -> Array:
        source = self.tensors[s.tensor]
        if len(s.indices) != source.ndim:
            raise IndexError(f"stage {self.stage} reads {s.tensor} with {len(s.indices)} indices")
        layout = self.types[s.tensor].physical if s.tensor in self.types else None
        halo, fill = (layout.halo, layout.fill) if layout else (None, 0)
        places: list[Array] = []
        present = self.active
        for axis, index in enumerate(s.indices):
            place, extent = np.asarray(_index(index, self.env)), source.shape[axis]
            before, after = halo[axis] if halo else (0, 0)
            outside = (place < -before) | (place >= extent + after)
            if np.any(outside & self.active):
                raise IndexError(
                    f"stage {self.stage} reads {s.tensor} of shape {source.shape} at {index} "
                    f"in dimension {axis}, which leaves it"
                )
            present = present & (place >= 0) & (place < extent)
            places.append(place)
        if source.size == 0:
            return np.zeros(present.shape, source.dtype)
        safe = tuple(np.where(present, place, 0) for place in places)
        values = source[safe] if present.all() else np.where(present, source[safe], fill)
        return np.asarray(values, source.dtype)


def _holds(condition: Condition, env: Mapping[str, int | Array]) -> Array:
    left, right = _index(condition.left, env), _index(condition.right, env)
    return np.asarray(_COMPARE[condition.comparison](left, right))


_COMPARE: Mapping[Comparison, np.ufunc] = {
    "<": np.less,
    "<=": np.less_equal,
    "==": np.equal,
    "!=": np.not_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def _index(e: Index, env: Mapping[str, int | Array]) -> int | Array:
    """The values of an index expression where symbols may be arrays."""
    if isinstance(e, int):
        return e
    match e:
        case Sym(name):
            return env[name]
        case FloorDiv(dividend, divisor):
            return np.floor_divide(_index(dividend, env), _index(divisor, env))
        case FloorMod(dividend, divisor):
            return np.mod(_index(dividend, env), _index(divisor, env))
        case IndexMin(args) | IndexMax(args):
            pick = np.minimum if isinstance(e, IndexMin) else np.maximum
            values = [_index(arg, env) for arg in args]
            result = values[0]
            for value in values[1:]:
                result = pick(result, value)
            return result
        case _:
            total: int | Array = e.const
            for coeff, factors in e.terms.values():
                value: int | Array = coeff
                for factor in factors:
                    value = value * _index(factor, env)
                total = total + value
            return total
