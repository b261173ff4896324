"""Boxes of images: what ops that pool them have in common.

What is known of a box (where its bins lie, which pixels they see) is the same for all channels,
which are then read as vectors: of images that have their channels last, where there are boxes
enough to turn them so, else of the images as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from modelcc.ir.algorithm import (
    AlgorithmBuilder,
    call,
    convert,
    index_number,
    integer,
    number,
    predicate,
)
from modelcc.ir.compute import Element, Operand, StageBuilder, index_value
from modelcc.ir.index import Index, Sym, maximum, minimum
from modelcc.ir.loop import Const, Expr, Select, Var
from modelcc.ir.op import Meeting, Op, require, same_dtype
from modelcc.ir.types import I64, Array, TensorType
from modelcc.ops.accumulate import Point, require_float
from modelcc.ops.bilinear import pixel_bound
from modelcc.ops.runtime_index import bound_along, require_integer
from modelcc.ops.samples import sample, tensor

Part = TypeVar("Part")

CHAINS = 4
"""Vectors of channels that are pooled at once: none waits for another."""

PIXELS = 24
"""Pixels that a bin sees, roughly: images are turned for boxes that see as many as there are."""


@dataclass(frozen=True)
class ImageNumbers(Op):
    """``numbers`` i64[k] of images of x [n, c, h, w], each of which x has, with pixels."""

    differentiable = False
    samples = (sample(np.array([0, 2, 1, 1], np.int32), tensor(3, 2, 4, 5)),)

    def infer(self, numbers: TensorType, x: TensorType) -> tuple[TensorType]:
        require_integer(numbers, "ImageNumbers")
        require(x.rank == 4 and numbers.rank == 1, f"{numbers} are not numbers of images of {x}")
        return (TensorType(numbers.shape, I64),)

    def compute(self, at: StageBuilder, numbers: Operand, x: Operand) -> Operand:
        def body(o: Point) -> Element:
            image = bound_along(x, 0, wrapped=False)
            found = at.gather(numbers[o].cast(I64), lambda i: index_value(i, I64), image)
            for extent in x.shape[2:]:
                found = _where(at, found, extent)
            return found

        return at.stage(numbers.shape, body)

    def reference(self, numbers: Array, x: Array) -> Array:
        if numbers.size and (numbers.min() < 0 or 0 in x.shape[2:]):
            raise IndexError(f"{numbers.tolist()} are not images of {x.shape}")
        return np.take(np.arange(len(x)), numbers.astype(np.int64))


def _where(at: StageBuilder, value: Element, extent: Index) -> Element:
    """``value``; the run ends if an axis of the image has no pixels."""
    return at.gather(index_value(0, I64), lambda _: value, pixel_bound(extent))


@dataclass(frozen=True)
class BoxPool(Op):
    """Boxes (x1, y1, x2, y2) [k, 4] of images ``numbers`` [k], each pooled to ``height * width``
    bins: [k, c, height, width].

    The images are x [n, c, h, w], ``turned`` [n, h, w, c], or both: then x is read where
    ``turned`` has no rows.
    """

    height: int
    width: int

    def infer(
        self, boxes: TensorType, numbers: TensorType, *images: TensorType | None
    ) -> tuple[TensorType]:
        name, (x, turned) = type(self).__name__, images
        given = [t for t in images if t is not None]
        require_integer(numbers, name)
        fits = given and boxes.rank == 2 and numbers.rank == 1 and all(t.rank == 4 for t in given)
        require(
            bool(fits),
            f"{name} needs boxes [k, 4], the numbers of their images [k], and images [n, c, h, w] "
            f"or [n, h, w, c], not {boxes}, {numbers}, {x} and {turned}",
        )
        require_float(boxes.dtype, name)
        same_dtype(boxes, *given)
        self.require_meetings(boxes, numbers, *images)
        channels = extents_of(x, turned)[1]
        return (TensorType((boxes.shape[0], channels, self.height, self.width), boxes.dtype),)

    def meetings(
        self, boxes: TensorType, numbers: TensorType, *images: TensorType | None
    ) -> Iterator[Meeting]:
        x, turned = images
        yield boxes.shape[1], 4, f"a box of {boxes} has four corners"
        yield boxes.shape[0], numbers.shape[0], "boxes and numbers of images differ"
        if x is not None and turned is not None:
            for axis, other in ((0, 0), (1, 3), (3, 2)):
                yield x.shape[axis], turned.shape[other], f"{turned} is not {x}, turned"

    def each_bin(
        self,
        at: AlgorithmBuilder,
        y: Operand,
        box: Index,
        rows: Callable[[Index], Part],
        columns: Callable[[Index], Part],
    ) -> Iterator[tuple[Channels, Part, Part, Index]]:
        """The bins of a box, for each block of channels: what ``rows`` and ``columns`` say of
        them, and where in y their channel 0 lies."""
        for block in self.blocks(at, y.shape[1]):
            with at.loop(0, self.height) as i:
                row = rows(i)
                with at.loop(0, self.width) as j:
                    yield block, row, columns(j), first_of(y, box, i, j)

    def blocks(self, at: AlgorithmBuilder, channels: Index) -> Iterator[Channels]:
        """All channels, those at a time that are pooled together, within loops over them."""
        return channel_blocks(at, channels)


def first_of(y: Operand, box: Index, row: Index, column: Index) -> Index:
    """Where channel 0 of a bin of a box lies in y [k, c, height, width]."""
    _, channels, height, width = y.shape
    return (box * channels * height + row) * width + column


@contextmanager
def each_box(at: AlgorithmBuilder, boxes: Index) -> Generator[tuple[Sym, Sym]]:
    """Loops over boxes; the variables of the shares, runs of neighbouring boxes that threads take
    and that have scratch memory of their own, and of the boxes."""
    shares = at.capacity.shares
    with (
        at.loop(0, shares, "parallel") as share,
        at.loop(share * boxes // shares, (share + 1) * boxes // shares) as box,
    ):
        yield share, box


def extents_of(
    x: TensorType | Operand | None, turned: TensorType | Operand | None
) -> tuple[Index, Index, Index, Index]:
    """How many images, channels, rows and columns there are."""
    if x is not None:
        images, channels, height, width = x.shape
    else:
        assert turned is not None
        images, height, width, channels = turned.shape
    return images, channels, height, width


def channels_first(x: Array | None, turned: Array | None) -> Array:
    """The images [n, c, h, w]."""
    if turned is not None and (x is None or turned.shape[1]):
        return np.moveaxis(turned, -1, 1)
    assert x is not None
    return x


def worth_turning(x: TensorType, boxes: Index, bins: int) -> Index:
    """1 if boxes see so many pixels that images x [n, c, h, w] had better be turned, else 0."""
    images, _, height, width = x.shape
    seen = boxes * (bins * PIXELS)
    return minimum(maximum(seen - images * height * width + 1, 0), 1)


def image_of(at: AlgorithmBuilder, numbers: Operand, box: Index, images: Index) -> Index:
    """The number of the image of a box."""
    last = index_number(images - 1)
    # ImageNumbers has checked it; whatever comes instead does no harm.
    return at.index(call("max", call("min", at.load(numbers, box), last), integer(0)))


@dataclass(frozen=True)
class Images:
    """Images in memory: how far images, rows, pixels of a row and channels are apart."""

    elements: Operand
    image: Index
    row: Index
    pixel: Index
    channel: Index


def layouts(at: AlgorithmBuilder, x: Operand | None, turned: Operand | None) -> Iterator[Images]:
    """The images to read, within branches where that is decided by sizes of a run."""
    _, channels, height, width = extents_of(x, turned)
    each = height * width * channels
    given = [] if x is None else [Images(x, each, width, 1, height * width)]
    if turned is not None:
        given.append(Images(turned, each, width * channels, channels, 1))
    if turned is None or x is None:
        yield from given
        return
    with at.when(predicate(turned.shape[1], "==", 0)):
        yield given[0]
    with at.otherwise():
        yield given[1]


@dataclass(frozen=True)
class Channels:
    """``vectors`` of ``lanes`` neighbouring channels from ``first`` on, ``active`` of each."""

    first: Index
    vectors: int
    lanes: int
    active: Index | None = None

    def registers(self, at: AlgorithmBuilder, value: Const) -> list[Var]:
        """A register with this value in each lane for each of the vectors."""
        wide = Const(value.value, value.dtype, self.lanes)
        return [at.register(wide) for _ in range(self.vectors)]

    def load(self, at: AlgorithmBuilder, images: Images, pixel: Index, vector: int) -> Expr:
        """The channels of one vector at a pixel whose channel 0 is at ``pixel``."""
        place = pixel + (self.first + vector * self.lanes) * images.channel
        return at.load(images.elements, place, self.lanes, images.channel, self.active)

    def store(
        self, at: AlgorithmBuilder, y: Operand, start: Index, vector: int, value: Expr
    ) -> None:
        """One vector into y [k, c, h, w], whose channel 0 is at ``start``."""
        stride = y.shape[2] * y.shape[3]
        place = start + (self.first + vector * self.lanes) * stride
        at.store(y, place, convert(value, y.dtype), stride, self.active)


def channel_blocks(at: AlgorithmBuilder, channels: Index) -> Iterator[Channels]:
    """All channels by vectors, within loops over them; what the caller does is written for each."""
    lanes = at.lanes
    whole = channels // (lanes * CHAINS)
    if whole != 0:
        with at.loop(0, whole) as block:
            yield Channels(block * (lanes * CHAINS), CHAINS, lanes)
    done = whole * (lanes * CHAINS)
    rest = channels - done
    if not isinstance(rest, int):
        with at.loop(0, (rest + lanes - 1) // lanes) as block:
            yield Channels(done + block * lanes, 1, lanes, rest - block * lanes)
        return
    if rest >= lanes:
        yield Channels(done, rest // lanes, lanes)
    if left := rest % lanes:
        few = 1 << (left - 1).bit_length()
        yield Channels(channels - left, 1, few, left if left != few else None)


def whole_between(at: AlgorithmBuilder, value: Expr, most: Expr) -> Var:
    """A float as an integer from 0 to ``most`` (i64); 0 for NaN."""
    value, limit, zero = at.let(value), convert(most, value.dtype), number(0.0, value.dtype)
    below = Select(call("lt", value, limit), value, limit)
    positive = at.let(Select(call("gt", value, zero), below, zero))
    # A large bound may be rounded up as a float.
    return at.let(call("min", convert(positive, I64), most))


OPS: tuple[type[Op], ...] = (ImageNumbers,)
"""Ops of this file."""
