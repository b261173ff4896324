"""Which kernels are 3×3 convolutions of stride 1 that Winograd's algorithms can compute."""

from __future__ import annotations

from dataclasses import dataclass, replace

from modelcc.ir.index import Index, Sym, coefficient, substitute
from modelcc.ir.tensor import Apply, Axis, Guard, Kernel, Number, Read, Scalar, Stage, TensorProgram
from modelcc.ir.types import F32, TensorType, blocked
from modelcc.passes.tensor.shared_axes import shared_axes


@dataclass(frozen=True)
class Convolution:
    """A kernel that convolves ``x`` with ``w``, then applies ``epilogue`` stages.

    ``axes`` are the parallel axes n, co, oh, ow; all stages share them.  Window position 0 of
    output 0 is at input row ``-pads[0]``, column ``-pads[1]``.  ``extents`` are those of the axes
    but for the number of ``images``, which may be symbolic.  Filters are ``constant``, or come at
    run time; :meth:`tap` tells where each of their elements is.
    """

    kernel: Kernel
    x: str
    w: Read
    constant: bool
    taps: tuple[_Tap, _Tap]
    axes: tuple[Axis, Axis, Axis, Axis]
    images: Index
    extents: tuple[int, int, int]
    inputs: int
    pads: tuple[int, int]
    product: Stage
    epilogue: tuple[Stage, ...]

    def tap(self, output: Index, channel: Index, row: Index, column: Index) -> Read:
        """The weight of an input channel at a place of the window."""
        _, co, *_ = self.axes
        values = {co.name: output, self.product.reduce[0].name: channel}
        places = zip(self.taps, (row, column), strict=True)
        values |= {tap.name: 2 - place if tap.turned else place for tap, place in places}
        moved = tuple(substitute(index, values) for index in self.w.indices)
        return replace(self.w, indices=moved)


@dataclass(frozen=True)
class _Tap:
    """An axis of a window, which may be walked backwards (``turned``), as transposed convolutions
    do, and the ``pad`` before it."""

    name: str
    pad: int
    turned: bool


def match_convolution(kernel: Kernel, program: TensorProgram, block: int) -> Convolution | None:
    """The convolution that ``kernel`` starts with; None if it is of another kind."""
    stages = shared_axes(kernel.stages)
    if stages is None:
        return None
    product, *epilogue = stages
    operands = _operands(product)
    if operands is None or any(s.reduce for s in epilogue) or product.output in kernel.outputs[1:]:
        return None
    x, w = operands
    reduction = tuple(a.extent for a in product.reduce)
    extents = tuple(a.extent for a in product.axes[1:] if isinstance(a.extent, int))
    constant = w.tensor in program.constants
    if len(extents) != 3 or len(product.axes) != 4:
        return None
    inputs = reduction[0]
    if reduction[1:] != (3, 3) or not isinstance(inputs, int) or inputs % block:
        return None
    n, co, oh, ow = product.axes
    ci, kh, kw = product.reduce
    plain = product.write == tuple(Sym(a.name) for a in product.axes)
    orders = ((co, ci, kh, kw),) if constant else ((co, ci, kh, kw), (ci, co, kh, kw))
    filters = w.indices in [tuple(Sym(a.name) for a in order) for order in orders]
    if not plain or not filters or x.indices[1] != Sym(ci.name) or extents[0] % block:
        return None
    if x.indices[0] not in (Sym(n.name), 0) or (x.indices[0] == 0 and n.extent != 1):
        return None
    down, across = _tap(x.indices[2], oh, kh), _tap(x.indices[3], ow, kw)
    if down is None or across is None or not _blocked(program.types[x.tensor], block):
        return None
    if constant and (down.turned or across.turned):
        return None
    shape = (extents[0], extents[1], extents[2])
    axes, pads = (n, co, oh, ow), (down.pad, across.pad)
    operands = x.tensor, w, constant, (down, across)
    return Convolution(
        kernel, *operands, axes, n.extent, shape, inputs, pads, product, tuple(epilogue)
    )


def _operands(stage: Stage) -> tuple[Read, Read] | None:
    """The window's and the filter's reads, both f32, of a sum over channels and window."""
    if stage.combine != "sum" or len(stage.reduce) != 3:
        return None
    match stage.body:
        case Apply(function="mul", args=(left, Read() as w)) if w.dtype == F32:
            x = _unguarded(left)
            ranks = x is not None and len(x.indices) == len(w.indices) == 4
            return (x, w) if x is not None and ranks and x.dtype == F32 else None
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


def _tap(index: Index, position: Axis, tap: Axis) -> _Tap | None:
    """The window of ``position + tap - pad``, or ``position - tap + 2 - pad``; None for another
    index or a negative pad."""
    slope = coefficient(index, tap.name)
    if coefficient(index, position.name) != 1 or slope not in (1, -1):
        return None
    rest = substitute(index, {position.name: 0, tap.name: 0})
    pad = 2 - rest if slope == -1 else -rest
    return _Tap(tap.name, pad, slope == -1) if isinstance(pad, int) and pad >= 0 else None


def _blocked(type_: TensorType, block: int) -> bool:
    """Whether channels are blocked, innermost: then a border can be had for the asking."""
    layout = type_.layout
    fixed = all(isinstance(extent, int) for extent in type_.shape[1:])
    return layout is not None and fixed and layout.parts == blocked(4, 1, block).parts
