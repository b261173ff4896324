"""Recognises 3×3 convolutions of stride 1 that Winograd's algorithm can compute."""

from __future__ import annotations

from dataclasses import dataclass, replace

from modelcc.ir.index import Index, Sym, coefficient, substitute, symbols
from modelcc.ir.scalar_tree import substitute_indices
from modelcc.ir.tensor import Apply, Axis, Guard, Kernel, Number, Read, Scalar, Stage, TensorProgram
from modelcc.ir.types import F32
from modelcc.passes.tensor.shared_axes import shared_axes


@dataclass(frozen=True)
class Convolution:
    """A kernel that convolves ``x`` with ``w``, then applies ``epilogue`` stages.

    ``axes`` are the parallel axes n, co, oh, ow; all stages share them.  ``window`` is the read of
    ``x``, 0 beyond its borders where it is guarded; dimensions ``places`` of ``x`` are images,
    channels, rows and columns.  Window position 0 of output 0 is at input row ``-pads[0]``, column
    ``-pads[1]``. ``extents`` are those of the axes except the number of ``images``, which may be
    symbolic.  Filters are ``constant``, or come at run time; :meth:`tap` reads their elements,
    :meth:`pixel` those of ``x``.
    """

    kernel: Kernel
    x: str
    window: Read | Guard
    places: tuple[int, int, int, int]
    w: Read
    constant: bool
    taps: tuple[_Tap, _Tap]
    axes: tuple[Axis, Axis, Axis, Axis]
    images: Index
    extents: tuple[int, int, int]
    inputs: int
    product: Stage
    epilogue: tuple[Stage, ...]

    @property
    def pads(self) -> tuple[int, int]:
        """Padding rows and columns of the first window, before the image."""
        down, across = self.taps
        return down.pad, across.pad

    def pixel(self, image: Index, channel: Index, row: Index, column: Index) -> Read | Guard:
        """The element of ``x`` at position 0 of the window of output ``row``, ``column``, under the
        window's conditions there."""
        n, _, oh, ow = (a.name for a in self.axes)
        values = {n: image, self.product.reduce[0].name: channel, oh: row, ow: column}
        values |= {tap.name: 2 if tap.turned else 0 for tap in self.taps}
        moved = substitute_indices(self.window, values)
        assert isinstance(moved, Read | Guard)
        return moved

    def tap(self, output: Index, channel: Index, row: Index, column: Index) -> Read:
        """The weight of an input channel at a position of the window."""
        _, co, *_ = self.axes
        values = {co.name: output, self.product.reduce[0].name: channel}
        places = zip(self.taps, (row, column), strict=True)
        values |= {tap.name: 2 - place if tap.turned else place for tap, place in places}
        moved = tuple(substitute(index, values) for index in self.w.indices)
        return replace(self.w, indices=moved)


@dataclass(frozen=True)
class _Tap:
    """An axis of a window, which may run backwards (``turned``), as in transposed convolutions, and
    the ``pad`` before it."""

    name: str
    pad: int
    turned: bool


def match_convolution(kernel: Kernel, program: TensorProgram) -> Convolution | None:
    """The convolution that ``kernel`` starts with; None if it is of another kind."""
    stages = shared_axes(kernel.stages)
    if stages is None:
        return None
    product, *epilogue = stages
    operands = _operands(product)
    if operands is None or any(s.reduce for s in epilogue) or product.output in kernel.outputs[1:]:
        return None
    window, x, w = operands
    ci, kh, kw = product.reduce
    places, constant = _places(x, ci), w.tensor in program.constants
    if places is None or (kh.extent, kw.extent) != (3, 3):
        return None
    image, row, column = (x.indices[places[n]] for n in (0, 2, 3))
    axes = _axes(product, w, (row, column), constant)
    if axes is None:
        return None
    n, _, oh, ow = axes
    if image not in (Sym(n.name), 0) or (image == 0 and n.extent != 1):
        return None
    down, across = _tap(row, oh, kh), _tap(column, ow, kw)
    if down is None or across is None or (constant and (down.turned or across.turned)):
        return None
    extents = tuple(a.extent for a in axes[1:] if isinstance(a.extent, int))
    if len(extents) != 3 or not isinstance(ci.extent, int):
        return None
    shape = (extents[0], extents[1], extents[2])
    where = kernel, x.tensor, window, places, w, constant, (down, across), axes
    return Convolution(*where, n.extent, shape, ci.extent, product, tuple(epilogue))


def _operands(stage: Stage) -> tuple[Read | Guard, Read, Read] | None:
    """The window, what it reads and the filter, in f32, of a sum over channels and window."""
    if stage.combine != "sum" or len(stage.reduce) != 3:
        return None
    match stage.body:
        case Apply(function="mul", args=(Read() | Guard() as left, Read() as w)):
            x = _unguarded(left)
            if x is None or len(x.indices) != 4 or len(w.indices) != 4:
                return None
            return (left, x, w) if x.dtype == w.dtype == F32 else None
        case _:
            return None


def _unguarded(scalar: Scalar) -> Read | None:
    """The read of ``scalar``, whose guard is zero outside the tensor (as its border is)."""
    match scalar:
        case Read():
            return scalar
        case Guard(inside=Read() as read, outside=Number(value=0)):
            return read
        case _:
            return None


def _places(x: Read, channel: Axis) -> tuple[int, int, int, int] | None:
    """Dimensions of images, channels, rows and columns: channels second or last."""
    for places in ((0, 1, 2, 3), (0, 3, 1, 2)):
        if x.indices[places[1]] == Sym(channel.name):
            return places
    return None


def _axes(
    product: Stage, w: Read, moving: tuple[Index, Index], constant: bool
) -> tuple[Axis, Axis, Axis, Axis] | None:
    """Axes of images, outputs, and of the rows and columns that windows are ``moving`` along; None
    if filters or results have another layout."""
    ci, kh, kw = (Sym(a.name) for a in product.reduce)
    known = {a.name: a for a in product.axes}
    outputs, inputs = w.indices[:2]
    if outputs == ci and not constant:
        outputs, inputs = inputs, outputs
    if (inputs, *w.indices[2:]) != (ci, kh, kw) or not isinstance(outputs, Sym):
        return None
    own = [[a for a in product.axes if a.name in symbols(index)] for index in moving]
    if len(known) != 4 or outputs.name not in known or any(len(axes) != 1 for axes in own):
        return None
    co, oh, ow = known[outputs.name], own[0][0], own[1][0]
    rest = [a for a in product.axes if a not in (co, oh, ow)]
    plain = set(product.write) == {Sym(name) for name in known} and len(product.write) == 4
    return (rest[0], co, oh, ow) if len(rest) == 1 and plain else None


def _tap(index: Index, position: Axis, tap: Axis) -> _Tap | None:
    """The window of ``position + tap - pad``, or ``position - tap + 2 - pad``; None for another
    index or a negative pad."""
    slope = coefficient(index, tap.name)
    if coefficient(index, position.name) != 1 or slope not in (1, -1):
        return None
    rest = substitute(index, {position.name: 0, tap.name: 0})
    pad = 2 - rest if slope == -1 else -rest
    return _Tap(tap.name, pad, slope == -1) if isinstance(pad, int) and pad >= 0 else None
