"""Sliding windows: pooling, cumulative sums, and any other region tap by tap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as cartesian

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.stablehlo.call import HloCall, table
from modelcc.frontends.stablehlo.module import HloBlock
from modelcc.frontends.stablehlo.reduction import is_neutral
from modelcc.frontends.stablehlo.regions import single, spelled
from modelcc.frontends.stablehlo.structure import converted, padded, reshaped, transposed
from modelcc.ir.index import Index, product
from modelcc.ir.types import BOOL, F32
from modelcc.ops import elementwise as ew
from modelcc.ops.broadcast import Expand
from modelcc.ops.cumulative import CumProd, CumSum
from modelcc.ops.pool import AveragePool, MaxPool, MaxPoolGrad
from modelcc.ops.slicing import Slice
from modelcc.ops.window import Window


@dataclass(frozen=True)
class WindowGeometry:
    """A window over all axes of an operand."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    dilations: tuple[int, ...]

    def moves(self, axis: int) -> bool:
        """Whether the window does more along an axis than visit each element once."""
        own = self.kernel[axis], self.strides[axis], self.low[axis], self.high[axis]
        return own != (1, 1, 0, 0)

    def spatial(self, rank: int) -> tuple[int, ...]:
        """The axes to slide along, at least one."""
        return tuple(a for a in range(rank) if self.moves(a)) or (rank - 1,)

    def along(self, axes: Sequence[int]) -> WindowGeometry:
        """The window restricted to some of the axes."""
        fields = (self.kernel, self.strides, self.low, self.high, self.dilations)
        return WindowGeometry(*(tuple(f[a] for a in axes) for f in fields))


def _geometry(call: HloCall, rank: int) -> WindowGeometry:
    ones = (1,) * rank
    pads = call.pairs("padding", rank)
    return WindowGeometry(
        call.integers("window_dimensions"),
        call.integers("window_strides", ones),
        tuple(low for low, _ in pads),
        tuple(high for _, high in pads),
        call.integers("window_dilations", ones),
    )


def reduce_window(call: HloCall) -> Sequence[str]:
    rank = call.rank()
    spread = call.integers("base_dilations", (1,) * rank)
    return _reduced(call, call.op.regions[0], _geometry(call, rank), spread)


def dynamic_reduce_window(call: HloCall) -> Sequence[str]:
    """jax's custom call: the window is given by operands.  One of a symbolic size is a cumulative
    sum."""
    (callee,) = call.attribute("called_computations")
    region = call.functions[callee].body
    kernel, strides, spread, dilations, pads = (call.indices(n, "window") for n in range(2, 7))
    settings = (kernel, strides, pads[::2], pads[1::2], dilations)
    numbers = [tuple(e for e in field if isinstance(e, int)) for field in (*settings, spread)]
    call, rank = call.with_inputs(*call.inputs[:2]), call.rank()
    if all(len(field) == rank for field in numbers):
        return _reduced(call, region, WindowGeometry(*numbers[:5]), numbers[5])
    plain = {*strides, *dilations, *spread} == {1}
    axes = [a for a in range(rank) if kernel[a] != 1]
    if len(axes) == 1 and plain and is_neutral(call.known(1), single(region), call.dtype()):
        (axis,) = axes
        total = _total(
            call, single(region), axis, kernel[axis], (pads[2 * axis], pads[2 * axis + 1])
        )
        if total is not None:
            return [total]
    unsupported("a window of a named size that gives no running sums or products")


def _reduced(
    call: HloCall, region: HloBlock, window: WindowGeometry, spread: Sequence[int]
) -> Sequence[str]:
    count, none = len(call.inputs) // 2, (0,) * call.rank()
    values, firsts = list(call.inputs[:count]), call.inputs[count:]
    if any(d != 1 for d in spread):
        between = [d - 1 for d in spread]
        values = [
            padded(call, v, f, none, none, between) for v, f in zip(values, firsts, strict=True)
        ]
    call = call.with_inputs(*values, *firsts)
    known = _as_op(call, single(region), window) if count == 1 else None
    return known if known is not None else _by_taps(call, region, window)


def _as_op(call: HloCall, name: str, window: WindowGeometry) -> Sequence[str] | None:
    if not is_neutral(call.known(1), name, call.dtype()) or 0 in call.shape():
        return None
    running = _running(call, name, window)
    if running is not None:
        return [running]
    if name == "maximum" and call.dtype() != BOOL and call.dtype().bits >= 8:
        return [_pooled(call, call.input(0), window)]
    if name == "minimum" and call.dtype().is_float:
        turned = call.emit(ew.Neg(), call.input(0))
        return [call.emit(ew.Neg(), _pooled(call, turned, window))]
    if name == "add" and call.dtype().is_float:
        return [_summed(call, window)]
    return None


def _running(call: HloCall, name: str, window: WindowGeometry) -> str | None:
    """Cumulative reduction along the only axis that a window slides along."""
    (axis, *more) = window.spatial(call.rank())
    if more or window.strides[axis] != 1:
        return None
    return _total(call, name, axis, window.kernel[axis], (window.low[axis], window.high[axis]))


def _total(
    call: HloCall, name: str, axis: int, kernel: Index, pads: tuple[Index, Index]
) -> str | None:
    """Prefix or suffix sums or products."""
    reach, op = kernel - 1, {"add": CumSum, "multiply": CumProd}.get(name)
    if call.shape()[axis] != kernel or op is None or pads not in ((reach, 0), (0, reach)):
        return None
    if not (call.dtype().is_float or call.dtype().is_integer):
        return None
    return call.emit(op(axis, False, pads[0] == 0 and reach != 0), call.input(0))


def _pooled(call: HloCall, x: str, window: WindowGeometry) -> str:
    images = _Images(call, window, call.shape())
    own = window.along(images.spatial)
    op = MaxPool(own.kernel, own.strides, own.low, own.high, own.dilations, keep_nan=True)
    narrow = call.dtype().is_float and call.dtype().bits < 16
    x = converted(call, x, F32) if narrow else x
    result = images.restored(call.emit(op, images.ordered(x)))
    return converted(call, result, call.dtype())


def _summed(call: HloCall, window: WindowGeometry) -> str:
    """A sum as the window size times the mean, padding included."""
    images = _Images(call, window, call.shape())
    own = window.along(images.spatial)
    op = AveragePool(
        own.kernel, own.strides, own.low, own.high, own.dilations, count_include_pad=True
    )
    x = converted(call, call.input(0), F32) if call.dtype().bits <= 16 else call.input(0)
    mean = call.as_value(call.emit(op, images.ordered(x)))
    total = images.restored((mean * float(np.prod(own.kernel))).name)
    return converted(call, total, call.dtype())


class _Images:
    """Operands with the axes that a window slides along last, after a batch and channels."""

    def __init__(self, call: HloCall, window: WindowGeometry, shape: Sequence[Index]) -> None:
        self._call = call
        rank = len(shape)
        self.spatial = window.spatial(rank)
        self._others = tuple(a for a in range(rank) if a not in self.spatial)
        self._order = (*self._others, *self.spatial)
        self._kept = tuple(shape[a] for a in self._others)

    def ordered(self, x: str) -> str:
        """``[batch, channels, *spatial]``."""
        turned = transposed(self._call, x, self._order)
        places = self._call.type_of(turned).shape[len(self._others) :]
        batch, channels = (1, 1) if not self._kept else (product(self._kept[:-1]), self._kept[-1])
        return reshaped(self._call, turned, (batch, channels, *places))

    def restored(self, x: str) -> str:
        """The axes in the operand's order."""
        places = self._call.type_of(x).shape[2:]
        apart = reshaped(self._call, x, (*self._kept, *places))
        back = sorted(range(len(self._order)), key=self._order.__getitem__)
        return transposed(self._call, apart, back)


def _by_taps(call: HloCall, region: HloBlock, window: WindowGeometry) -> Sequence[str]:
    """Each tap of all windows is a slice; slices are combined in order."""
    count = len(call.inputs) // 2
    rank = call.rank()
    if np.prod(window.kernel) > MOST_TAPS:
        unsupported(f"windows of {np.prod(window.kernel)} elements that a region combines")
    whole = [
        padded(call, v, f, window.low, window.high, (0,) * rank)
        for v, f in zip(call.inputs[:count], call.inputs[count:], strict=True)
    ]
    spatial = Window(window.kernel, window.strides, window.low, window.high, window.dilations)
    extents = spatial.extents(call.shape())
    results: Sequence[str] = [call.emit(Expand(extents), f) for f in call.inputs[count:]]
    for tap in cartesian(*map(range, window.kernel)):
        starts = tuple(t * d for t, d in zip(tap, window.dilations, strict=True))
        op = Slice(starts, extents, window.strides)
        seen = [call.emit(op, x) for x in whole]
        results = call.inline(region, [*results, *seen], lifted=True)
    return results


MOST_TAPS = 256
"""Maximum taps of windows combined one after the other."""


def select_and_scatter(call: HloCall) -> str:
    """Each element of the second operand is added at the selected element of its window."""
    select, scatter = call.op.regions
    if spelled(select) not in (("GE(a0,a1)",), ("LE(a0,a1)",)) or single(scatter) != "add":
        unsupported("regions other than the greatest or least element, and a sum")
    window = _geometry(call, call.rank())
    images = _Images(call, window, call.shape())
    own = window.along(images.spatial)
    x = call.input(0)
    if spelled(select) == ("LE(a0,a1)",):
        x = call.emit(ew.Neg(), x)
    op = MaxPoolGrad(own.kernel, own.strides, own.low, own.high, own.dilations)
    result = images.restored(call.emit(op, images.ordered(x), images.ordered(call.input(1))))
    if is_neutral(call.known(2), "add", call.dtype()):
        return result
    return call.emit(ew.Add(), result, call.input(2))


WINDOWS = table(reduce_window=reduce_window, select_and_scatter=select_and_scatter)
