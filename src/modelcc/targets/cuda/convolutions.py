"""Convolutions of images by cuDNN instead of by our kernels, where a user prefers it.

The call's arguments are those of :mod:`modelcc.runtime.streams.cudnn`: how it multiplies, whether
relu follows, the order of dimensions, sizes of the image (samples, channels, rows, columns), of the
weights (results, channels, rows, columns) and of the result (rows, columns), padding before the
image, strides and dilation along both, and groups; then the offsets of image, weights, result and
workspace, bytes of that, and the offsets of the bias and the addend.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from modelcc.artifact.manifest import LibrarySpec
from modelcc.ir.condition import Condition
from modelcc.ir.index import Index, Sym, compare, floordiv, split_affine
from modelcc.ir.library import Address, ExternalCall
from modelcc.ir.loop import IndexOf
from modelcc.ir.tensor import Apply, Axis, Cast, Guard, Number, Read, Scalar, Stage
from modelcc.ir.types import BF16, F16, F32, I64, Layout, Part
from modelcc.runtime.streams.cudnn import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    PLAIN,
    SIGNATURES,
    TENSOR_CORES,
    TENSOR_CORES_TF32,
)
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.nest import normal_form
from modelcc.targets.cuda.product_tail import Tail, product_and_tail
from modelcc.targets.gpu.library_call import DeviceCall, workspace

CUDNN = LibrarySpec(
    "cudnn",
    ("nvidia/cudnn/lib/libcudnn.so.9", "libcudnn.so.9"),
    symbols=tuple(SIGNATURES),
    package="nvidia-cudnn-cu12",
)

_ORDERS = {CHANNELS_LAST: (0, 3, 1, 2), CHANNELS_FIRST: (0, 1, 2, 3)}
"""Which dimensions of images are samples, channels, rows and columns."""


@dataclass(frozen=True)
class _Side:
    """Rows or columns: sizes of the image and the result, taps of the window, padding before the
    image, stride and dilation."""

    size: int
    points: int
    taps: int
    before: int
    stride: int
    dilation: int


@dataclass(frozen=True)
class _CalledConvolution:
    image: Read
    weights: Read
    order: int
    samples: Index
    channels: int
    outputs: int
    taken: int
    rows: _Side
    columns: _Side


def convolution_call(kernel: CanonicalKernel, tf32: bool, most: int) -> DeviceCall | None:
    """The call that computes ``kernel``, or None; with ``tf32`` it rounds f32 operands.  Its
    workspace has at most ``most`` bytes."""
    if len(dict(kernel.types)[kernel.outputs[0]].shape) != 4:
        return None
    for order, places in _ORDERS.items():
        split = product_and_tail(kernel, places[1])
        if split is None:
            continue
        product, tail = split
        found = _convolution(product, order)
        if found is not None and _takes(kernel, found, tail):
            tensors = [found.image.tensor, found.weights.tensor, product.outputs[0]]
            behind = [Address(name) for name in (tail.bias, tail.added) if name]
            given = *map(Address, tensors), *workspace(kernel, most), *behind
            numbers = _numbers(found, tail.activation == "relu", tf32)
            call = ExternalCall(CUDNN.name, "cudnnConvolutionForward", (*numbers, *given))
            return DeviceCall(call, _layouts(found))
    return None


def _takes(kernel: CanonicalKernel, found: _CalledConvolution, tail: Tail) -> bool:
    """Whether all have one type and the library's layouts, and the epilogue is one of its own: relu
    and the addend need a bias."""
    types, dtype = dict(kernel.types), found.image.dtype
    weights = types[found.weights.tensor]
    named = [name for name in (tail.bias, tail.added) if name]
    plain = [types[name] for name in (found.image.tensor, kernel.outputs[0], *named)]
    return (
        dtype in (F32, F16, BF16)
        and all(type_.dtype == dtype for type_ in (*plain, weights))
        and all(type_.physical.is_row_major for type_ in plain)
        and weights.layout is None
        and (found.order == CHANNELS_FIRST or found.weights.tensor in kernel.constants)
        and tail.activation != "gelu"
        and (bool(tail.bias) or tail == Tail())
    )


def _layouts(found: _CalledConvolution) -> dict[str, Layout]:
    """Channels of weights have the position of the image's."""
    if found.order == CHANNELS_FIRST:
        return {}
    parts = tuple(Part(n) for n in (0, 2, 3, 1))
    return {found.weights.tensor: Layout(parts, ((0, 0),) * len(parts))}


def _numbers(found: _CalledConvolution, relu: bool, tf32: bool) -> Iterator[IndexOf]:
    rounding = TENSOR_CORES_TF32 if tf32 else PLAIN
    sides = found.rows, found.columns
    numbers = (
        rounding if found.image.dtype == F32 else TENSOR_CORES,
        int(relu),
        found.order,
        *(found.samples, found.channels, *(side.size for side in sides)),
        *(found.outputs, found.taken, *(side.taps for side in sides)),
        *(side.points for side in sides),
        *(side.before for side in sides),
        *(side.stride for side in sides),
        *(side.dilation for side in sides),
        found.channels // found.taken,
    )
    return (IndexOf(n, I64) for n in numbers)


def _convolution(kernel: CanonicalKernel, order: int) -> _CalledConvolution | None:
    """The convolution that is the only stage of ``kernel``, with images in this order."""
    (stage,) = kernel.stages
    body = stage.body
    if stage.combine != "sum" or not isinstance(body, Apply) or body.function != "mul":
        return None
    factors = [_read(factor) for factor in body.args]
    for (conditions, image), (others, weights) in (factors, factors[::-1]):
        if image is None or weights is None or others:
            continue
        if len(image.indices) == len(weights.indices) == 4:
            found = _Matching(kernel, stage, image, weights, order).found()
            if found is not None and _inside(conditions, image, kernel):
                return found
    return None


@dataclass(frozen=True)
class _Matching:
    """Whether ``stage`` convolves ``image`` by ``weights``."""

    kernel: CanonicalKernel
    stage: Stage
    image: Read
    weights: Read
    order: int

    def found(self) -> _CalledConvolution | None:
        """The convolution, if it is one."""
        types, places = dict(self.kernel.types), _ORDERS[self.order]
        size = [types[self.image.tensor].shape[p] for p in places]
        made = [types[self.stage.output].shape[p] for p in places]
        taps = types[self.weights.tensor].shape
        if not all(isinstance(n, int) and n > 0 for n in (*size[1:], *taps, *made[1:])):
            return None
        sample, channel, *at = (self.image.indices[p] for p in places)
        to_sample, output, *points = (self.stage.write[p] for p in places)
        alike = (sample, size[0], output) == (to_sample, made[0], self.weights.indices[0])
        if not alike or not self._is_axis(sample, size[0]) or not self._is_axis(output, made[1]):
            return None
        if not compare(size[0], ">=", 1, dict(self.kernel.dims)):
            return None
        channels, outputs, taken = (int(str(n)) for n in (size[1], *taps[:2]))
        if channels % taken or outputs % (channels // taken):
            return None
        own = self.weights.indices[1]
        group = floordiv(output, outputs // (channels // taken)) * taken
        expected = own if channels == taken else own + group
        if channel != expected or not self._is_term(own, taken):
            return None
        rows, columns = (
            self._side(at[n], points[n], self.weights.indices[2 + n],
                       [int(str(s[2 + n])) for s in (size, made, taps)])
            for n in range(2)
        )  # fmt: skip
        if rows is None or columns is None:
            return None
        own_sizes = size[0], channels, outputs, taken
        return _CalledConvolution(self.image, self.weights, self.order, *own_sizes, rows, columns)

    def _side(self, at: Index, point: Index, tap: Index, sizes: Sequence[int]) -> _Side | None:
        """The side of an image, a result and a window of these ``sizes``; None unless padding is
        equal on both sides, as in the library."""
        size, points, taps = sizes
        moving = {index.name: index for index in (point, tap) if isinstance(index, Sym)}
        affine = split_affine(at, tuple(moving))
        if affine is None or not self._is_axis(point, points) or not self._is_term(tap, taps):
            return None
        factors, first = affine
        steps = [factors[i.name] if isinstance(i, Sym) else 1 for i in (point, tap)]
        if not all(isinstance(n, int) for n in (*steps, first)):
            return None
        stride, dilation, before = int(str(steps[0])), int(str(steps[1])), -int(str(first))
        free = size + 2 * before - dilation * (taps - 1) - 1
        if stride < 1 or dilation < 1 or before < 0 or free < 0 or free // stride + 1 != points:
            return None
        return _Side(size, points, taps, before, stride, dilation)

    def _is_axis(self, index: Index, extent: Index) -> bool:
        return _is_along(index, extent, self.stage.axes)

    def _is_term(self, index: Index, extent: Index) -> bool:
        return _is_along(index, extent, self.stage.reduce)


def _is_along(index: Index, extent: Index, axes: Sequence[Axis]) -> bool:
    """Whether it is one of ``axes``, with this extent; one of length 1 may be left out."""
    if isinstance(index, Sym):
        return any(a.name == index.name and a.extent == extent for a in axes)
    return index == 0 and extent == 1


def _read(factor: Scalar) -> tuple[tuple[Condition, ...], Read | None]:
    """The read, if it is used unchanged, and the conditions outside of which it is 0."""
    match factor:
        case Guard(conditions, inside, Number(value=0)):
            others, read = _read(inside)
            return (*conditions, *others), read
        case Cast(Read() as read) if read.dtype != F32:
            return (), read
        case Read():
            return (), factor
        case _:
            return (), None


def _inside(conditions: Sequence[Condition], image: Read, kernel: CanonicalKernel) -> bool:
    """Whether they say no more than that the read is inside the image."""
    shape = dict(kernel.types)[image.tensor].shape
    known = [
        Condition(end, ">=", 0)
        for index, size in zip(image.indices, shape, strict=True)
        for end in (index, size - 1 - index)
    ]
    return all(one in known for condition in conditions for one in normal_form(condition))
