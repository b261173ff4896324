"""Matches stages that a library's function computes: its arguments, with constants in its layouts.

Results are those of the stages themselves, with these constants replacing the original ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from modelcc.ir.constant import Constant
from modelcc.ir.index import Index, Sym, substitute, symbols
from modelcc.ir.scalar_tree import reads, transform
from modelcc.ir.tensor import Apply, Cast, Guard, Number, Read, Scalar, Select, Stage
from modelcc.ir.types import I8, I32, Array, TensorType
from modelcc.targets.mcu.libraries.cmsis_nn import CmsisNN, Limits, Scaling, ScratchCall
from modelcc.targets.mcu.libraries.quantised import (
    Clamped,
    QuantisedOperand,
    Scaled,
    clamped,
    operand_of,
    scaled,
)
from modelcc.targets.mcu.libraries.windows import ImageWindow, find_window

Constants: TypeAlias = Mapping[str, Constant]
Types: TypeAlias = Mapping[str, TensorType]


@dataclass(frozen=True)
class Matched:
    """``call`` computes ``stages``, which read ``inputs`` and ``constants`` of these contents, by
    their names in the stages."""

    call: ScratchCall
    stages: tuple[Stage, ...]
    inputs: tuple[str, ...]
    constants: Mapping[str, Array]
    in_place: bool = False


def match_sum(
    first: Stage, last: Stage, types: Types, constants: Constants, library: CmsisNN
) -> Matched | None:
    """A sum of products or of an image, with its requantization to bytes."""
    limits = clamped(last.body)
    if limits is None or first.combine != "sum" or not _follows(first, last):
        return None
    match first.body:
        case Apply("mul", (left, right), _):
            for one, other in ((left, right), (right, left)):
                found = _product(first, last, limits, one, other, types, constants)
                if found is not None:
                    return found.matched(library)
            return None
        case _:
            return _average(first, last, limits, types, library)


def match_stage(stage: Stage, types: Types, library: CmsisNN) -> Matched | None:
    """Sums or products of two tensors of bytes, or maxima of windows."""
    if stage.combine == "max":
        return _greatest(stage, types, library)
    limits = clamped(stage.body)
    found = None if limits is None or stage.reduce else scaled(limits.value)
    if limits is None or found is None or not _is_flat(stage, types):
        return None
    match found.value:
        case Apply("add", (one, other), _):
            return _added(stage, limits, found, one, other, types, library)
        case Apply("mul", (one, other), _):
            return _multiplied(stage, limits, found, one, other, types, library)
        case _:
            return None


def _follows(first: Stage, last: Stage) -> bool:
    """Whether each point reads the sum at its own index, and no other computed value."""
    extents = {a.name: a.extent for a in last.axes}
    own = [0 if isinstance(i, Sym) and extents.get(i.name) == 1 else i for i in last.write]
    for read in reads(last.body):
        at = [0 if isinstance(i, Sym) and extents.get(i.name) == 1 else i for i in read.indices]
        if read.tensor == first.output and at != own:
            return False
    return not last.reduce


@dataclass(frozen=True)
class _Product:
    """A sum of products of bytes with weights: ``biases`` and factors are per row."""

    first: Stage
    last: Stage
    window: ImageWindow
    operand: QuantisedOperand
    weights: Read
    rows: Array
    biases: Array
    multipliers: Array
    shifts: Array
    limits: Clamped

    def matched(self, library: CmsisNN) -> Matched | None:
        """Matches the library's function for this window."""
        window, zero, into = self.window, self.operand.zero, _range(self.limits)
        if not window.summed:
            return self._by_rows(library.depthwise(window, zero, into))
        one = window.taps == window.rows.points == window.columns.points == 1
        if one and _alike(self.multipliers) and _alike(self.shifts):
            scale = Scaling(int(self.multipliers[0]), -int(self.shifts[0]))
            call = library.fully_connected(window, zero, scale, into)
            if call is not None:
                return self._made(call, {}, (self.multipliers[0], self.shifts[0]))
        return self._by_rows(library.convolve(window, zero, into))

    def _by_rows(self, call: ScratchCall) -> Matched:
        names = {"multipliers": self.multipliers, "shifts": -self.shifts}
        return self._made(call, names, None)

    def _made(
        self, call: ScratchCall, more: Mapping[str, Array], scale: tuple[int, int] | None
    ) -> Matched:
        data = {"weights": self.rows, "biases": self.biases, **more}
        row = self._row
        named = {name: _name(self.first, name) for name in data}

        def of_row(name: str) -> Scalar:
            return Read(named[name], (row,), I32)

        total = Read(self.first.output, self.last.write, I32)
        value = Apply("add", (total, of_row("biases")), I32)
        if scale is None:
            shift = Apply("sub", (Number(0, I32), of_row("shifts")), I32)
            factor: Scalar = of_row("multipliers")
        else:
            factor, shift = (Number(int(n), I32) for n in scale)
        high = Apply("rounding_high_mul", (value, factor), I32)
        made: Scalar = Apply("rounding_shr", (high, shift), I32)
        limits = self.limits
        if limits.zero:
            made = Apply("add", (made, Number(limits.zero, I32)), I32)
        made = Apply("max", (made, Number(limits.low, I32)), I32)
        made = Cast(Apply("min", (made, Number(limits.high, I32)), I32), I8)
        new = Read(named["weights"], self._place, I8)
        body = transform(self.first.body, lambda node: new if node == self.weights else node)
        stages = replace(self.first, body=body), replace(self.last, body=made)
        contents = {named[name]: array for name, array in data.items()}
        return Matched(call, stages, (self.operand.read.tensor, *contents), contents)

    @property
    def _row(self) -> Index:
        """The row in the last stage."""
        own = self.first.write.index(Sym(self._row_axis)) if self._row_axis else -1
        return self.last.write[own] if own >= 0 else 0

    @property
    def _row_axis(self) -> str:
        window = self.window
        return window.row if window.summed else window.channel

    @property
    def _place(self) -> tuple[Index, ...]:
        """Indices of a weight: its row, the row and the column of the window, and the channel."""
        window = self.window
        axes = (window.rows.tap, window.columns.tap, window.channel)
        names = (window.row, *axes) if window.summed else axes
        return tuple(Sym(name) if name else 0 for name in names)


def _product(
    first: Stage, last: Stage, limits: Clamped, one: Scalar, other: Scalar, types: Types,
    constants: Constants,
) -> _Product | None:  # fmt: skip
    operand, found = operand_of(one), scaled(limits.value)
    match other:
        case Cast(Read(dtype=dtype) as weights, _) if dtype == I8 and weights.tensor in constants:
            pass
        case _:
            return None
    if operand is None or found is None:
        return None
    window = find_window(first, operand.read, operand.conditions, types)
    total, bias = _biased(found.value, first.output)
    if window is None or not total:
        return None
    axis = window.row if window.summed else window.channel
    count = window.outputs if window.summed else window.channels
    if not window.summed and window.row:
        return None
    place = first.write.index(Sym(axis)) if axis else None
    row = 0 if place is None else last.write[place]
    weight = _rows_of(weights, first, window, constants[weights.tensor].data)
    parameters = [_by_row(s, row, count, constants) for s in (bias, found.multiplier, found.shift)]
    if weight is None or any(p is None for p in parameters):
        return None
    biases, multipliers, shifts = (p for p in parameters if p is not None)
    if shifts.min() < 0 or shifts.max() > 31 or multipliers.min() < 0:
        return None
    return _Product(
        first, last, window, operand, weights, weight, biases, multipliers, shifts, limits
    )


def _biased(value: Scalar, total: str) -> tuple[bool, Scalar]:
    """Whether ``value`` is the sum ``total``, and the bias added to it."""
    match value:
        case Read(tensor=name) if name == total:
            return True, Number(0, I32)
        case Apply("add", (Read(tensor=name), bias), _) if name == total:
            return True, bias
        case Apply("add", (bias, Read(tensor=name)), _) if name == total:
            return True, bias
        case _:
            return False, value


def _by_row(scalar: Scalar, row: Index, count: int, constants: Constants) -> Array | None:
    """The values of ``scalar`` for ``count`` rows."""
    match scalar:
        case Number(value):
            return np.full(count, int(value), np.int32)
        case Read(tensor=name, indices=indices, dtype=dtype) if name in constants and dtype == I32:
            data = constants[name].data
        case _:
            return None
    moved = [i for i, n in zip(indices, data.shape, strict=True) if n != 1]
    if moved != [row] * (count != 1) or data.size != count:
        return None
    return np.ascontiguousarray(data.reshape(-1))


def _rows_of(read: Read, stage: Stage, window: ImageWindow, data: Array) -> Array | None:
    """Weights by row, row and column of the window, and channel; without rows if depthwise."""
    ones = {a.name: 0 for a in (*stage.axes, *stage.reduce) if a.extent == 1}
    order = [window.rows.tap, window.columns.tap, window.channel]
    order = [window.row, *order] if window.summed else order
    extents = {a.name: a.extent for a in (*stage.axes, *stage.reduce)}
    shape = [int(str(extents[name])) if name else 1 for name in order]
    places: dict[str, int] = {}
    for dim, index in enumerate(substitute(i, ones) for i in read.indices):
        if isinstance(index, Sym) and extents[index.name] == data.shape[dim]:
            places[index.name] = dim
        elif index != 0 or data.shape[dim] != 1:
            return None
    named = [name for name in order if name]
    if sorted(named) != sorted(places):
        return None
    rest = [d for d in range(data.ndim) if d not in places.values()]
    turned = np.transpose(data, (*rest, *(places[name] for name in named)))
    return np.ascontiguousarray(turned.reshape(shape))


def _average(
    first: Stage, last: Stage, limits: Clamped, types: Types, library: CmsisNN
) -> Matched | None:
    operand = operand_of(first.body)
    if operand is None or operand.zero or limits.zero or operand.conditions:
        return None
    window = find_window(first, operand.read, (), types)
    if window is None or window.summed or window.row or not window.channel:
        return None
    if not _is_mean(limits.value, first.output, window.taps):
        return None
    call = library.average(window, _range(limits))
    return Matched(call, (first, last), (operand.read.tensor,), {})


def _is_mean(value: Scalar, total: str, count: int) -> bool:
    """Whether ``value`` is the sum divided by ``count``, rounded to nearest, halves away from
    zero."""
    match value:
        case Apply(
            "div",
            (
                Apply("add", (Read(tensor=added), Select(condition, Number(up), Number(down)))),
                Number(by),
            ),
        ):
            pass
        case _:
            return False
    match condition:
        case Apply("gt", (Read(tensor=asked), Number(0))):
            pass
        case _:
            return False
    return added == asked == total and (by, up, down) == (count, count // 2, -(count // 2))


def _greatest(stage: Stage, types: Types, library: CmsisNN) -> Matched | None:
    match stage.body:
        case Guard(conditions, Read() as read, Number(-128)):
            pass
        case Read() as read:
            conditions = ()
        case _:
            return None
    if read.dtype != I8:
        return None
    window = find_window(stage, read, conditions, types)
    if window is None or window.summed or window.row or not window.channel:
        return None
    return Matched(library.greatest(window), (stage,), (read.tensor,), {})


def _added(
    stage: Stage, limits: Clamped, out: Scaled, one: Scalar, other: Scalar, types: Types,
    library: CmsisNN,
) -> Matched | None:  # fmt: skip
    found = [scaled(part) for part in (one, other)]
    parts = [None if s is None else _shifted(s.value) for s in found]
    scales = [None if s is None else _scaling(s) for s in (*found, out)]
    if None in parts or None in scales:
        return None
    (first, left), (second, right) = (p for p in parts if p is not None)
    own, others, last = (s for s in scales if s is not None)
    operands = _pair(stage, (first, second), types)
    # Below sixteen, functions for DSP instructions would lose the sign.
    if left != right or not 16 <= left <= 20 or operands is None:
        return None
    zeros = first.zero, second.zero
    call = library.add(zeros, (own, others), left, last, _range(limits), _count(stage, types))
    return Matched(call, (stage,), operands, {}, in_place=True)


def _multiplied(
    stage: Stage, limits: Clamped, out: Scaled, one: Scalar, other: Scalar, types: Types,
    library: CmsisNN,
) -> Matched | None:  # fmt: skip
    first, second, scale = operand_of(one), operand_of(other), _scaling(out)
    if first is None or second is None or scale is None:
        return None
    operands = _pair(stage, (first, second), types)
    if operands is None:
        return None
    zeros = first.zero, second.zero
    call = library.multiply(zeros, scale, _range(limits), _count(stage, types))
    return Matched(call, (stage,), operands, {}, in_place=True)


def _shifted(value: Scalar) -> tuple[QuantisedOperand, int] | None:
    """Bytes less a zero point, shifted left."""
    match value:
        case Apply("mul", (inner, Number(factor))) if int(factor) > 0:
            operand, left = operand_of(inner), int(factor).bit_length() - 1
        case Apply("shl", (inner, Number(left))):
            operand, factor = operand_of(inner), 1 << int(left)
        case _:
            return None
    return None if operand is None or int(factor) != 1 << int(left) else (operand, int(left))


def _scaling(found: Scaled) -> Scaling | None:
    match found:
        case Scaled(_, Number(multiplier), Number(shift)):
            return Scaling(int(multiplier), -int(shift))
        case _:
            return None


def _pair(
    stage: Stage, operands: Sequence[QuantisedOperand], types: Types
) -> tuple[str, str] | None:
    """Two different tensors that are read at the index of the result."""
    names = [o.read.tensor for o in operands]
    same = all(
        types[o.read.tensor].shape == types[stage.output].shape and _at_own_place(o.read, stage)
        for o in operands
    )
    rows = all(types[name].physical.is_row_major for name in names)
    plain = same and rows and not any(o.conditions for o in operands)
    return (names[0], names[1]) if plain and names[0] != names[1] else None


def _at_own_place(read: Read, stage: Stage) -> bool:
    ones = {a.name: 0 for a in stage.axes if a.extent == 1}
    return all(
        substitute(i, ones) == substitute(own, ones)
        for i, own in zip(read.indices, stage.write, strict=True)
    )


def _is_flat(stage: Stage, types: Types) -> bool:
    """Whether all of a static result is written, in row-major order."""
    result = types[stage.output]
    whole = all(
        symbols(index) <= {a.name for a in stage.axes} and isinstance(index, Sym)
        for index in stage.write
    )
    return whole and result.is_static and result.physical.is_row_major


def _count(stage: Stage, types: Types) -> int:
    return int(str(types[stage.output].elements))


def _range(limits: Clamped) -> Limits:
    return Limits(limits.zero, limits.low, limits.high)


def _alike(numbers: Array) -> bool:
    return bool((numbers == numbers[0]).all())


def _name(stage: Stage, what: str) -> str:
    return f"{stage.output}.{what}"
