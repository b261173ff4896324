"""Windows that move over images with channels last, as kernel libraries describe them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from modelcc.ir.condition import Condition
from modelcc.ir.index import Index, Sym, split_affine, substitute, symbols
from modelcc.ir.tensor import Read, Stage
from modelcc.ir.types import TensorType
from modelcc.schedule.nest import normal_form


@dataclass(frozen=True)
class Side:
    """Rows or columns: extents of the image, the result and the window, whose taps run along the
    axis ``tap`` if there are several; stride and dilation; and padding before the image."""

    size: int = 1
    points: int = 1
    taps: int = 1
    tap: str = ""
    stride: int = 1
    dilation: int = 1
    before: int = 0


@dataclass(frozen=True)
class ImageWindow:
    """The window by which a stage reads an image and writes a result, both of one sample with
    channels last.

    ``channel`` is the axis of the image's channels, which are reduced or are those of the result
    (empty: there is one), ``row`` that of the result's.
    """

    rows: Side
    columns: Side
    channels: int
    channel: str
    summed: bool
    row: str
    outputs: int

    @property
    def taps(self) -> int:
        """Taps of a whole window."""
        return self.rows.taps * self.columns.taps


def find_window(
    stage: Stage, read: Read, conditions: Sequence[Condition], types: Mapping[str, TensorType]
) -> ImageWindow | None:
    """The window by which ``stage`` reads an image; None if it is no such window, or if
    ``conditions`` are other than bounds of the image."""
    extents = {a.name: a.extent for a in (*stage.axes, *stage.reduce)}
    numbers = {name: extent for name, extent in extents.items() if isinstance(extent, int)}
    image, result = types[read.tensor], types[stage.output]
    if len(numbers) != len(extents) or not _is_plain(image) or not _is_whole(stage, result):
        return None
    ones: dict[str, Index] = {name: 0 for name, extent in numbers.items() if extent == 1}
    shape = [int(str(extent)) for extent in image.shape]
    moved = [(substitute(i, ones), n) for i, n in zip(read.indices, shape, strict=True)]
    moved = [(index, size) for index, size in moved if size != 1 or index != 0]
    outer = [a.name for a in stage.axes if a.name not in ones]
    summed = {a.name for a in stage.reduce if a.name not in ones}
    outer.sort(key=lambda name: stage.write.index(Sym(name)))
    channel, channels = _channel(moved, numbers, (*summed, *outer[-1:]))
    if channel:
        del moved[-1]
    places = {name for index, _ in moved for name in symbols(index)}
    row = outer[-1] if outer and outer[-1] not in {*places, channel} else ""
    sides = [_side(index, size, outer, summed, numbers) for index, size in moved]
    found = [side for side in sides if side is not None]
    named = [name for index, _ in moved for name in outer if name in symbols(index)]
    if (
        len(found) != len(sides)
        or len(found) > 2
        or named != [n for n in outer if n not in (row, channel)]
    ):
        return None
    used = [side.tap for side in found if side.tap] + ([channel] if channel in summed else [])
    if sorted(used) != sorted(summed) or not _inside(conditions, ones, moved):
        return None
    # A single row is a single column for the library, whose functions for rows need equal padding.
    rows, columns = (*found, Side(), Side())[:2]
    outputs = numbers[row] if row else 1
    return ImageWindow(
        rows, columns, channels, channel, channel in summed or not channel, row, outputs
    )


def _is_plain(type_: TensorType) -> bool:
    return type_.is_static and type_.physical.is_row_major


def _is_whole(stage: Stage, type_: TensorType) -> bool:
    """Whether all of a result is written, each dimension along an axis."""
    extents = {Sym(a.name): a.extent for a in stage.axes}
    whole = all(
        extents.get(index) == extent if isinstance(index, Sym) else index == 0 and extent == 1
        for index, extent in zip(stage.write, type_.shape, strict=True)
    )
    return whole and _is_plain(type_) and len(set(stage.write) & extents.keys()) == len(extents)


def _channel(
    moved: Sequence[tuple[Index, int]], numbers: Mapping[str, int], known: Sequence[str]
) -> tuple[str, int]:
    """The only axis along the whole last dimension, and its extent."""
    index, size = moved[-1] if moved else (0, 1)
    if isinstance(index, Sym) and index.name in known and numbers[index.name] == size:
        return index.name, size
    return "", 1


def _side(
    index: Index, size: int, outer: Sequence[str], summed: set[str], numbers: Mapping[str, int]
) -> Side | None:
    names = tuple(sorted(symbols(index)))
    affine = split_affine(index, names)
    points, taps = [n for n in names if n in outer], [n for n in names if n in summed]
    if affine is None or len(points) > 1 or len(taps) > 1:
        return None
    factors, start = affine
    steps = [factors[name] for name in (*points, *taps)]
    if not all(isinstance(n, int) and n > 0 for n in steps) or not isinstance(start, int):
        return None
    stride = next((int(str(factors[n])) for n in points), 1)
    dilation = next((int(str(factors[n])) for n in taps), 1)
    several = (prod(numbers[n] for n in points), prod(numbers[n] for n in taps))
    return Side(size, *several, "".join(taps), stride, dilation, -start) if start <= 0 else None


def _inside(
    conditions: Sequence[Condition], ones: Mapping[str, Index], moved: Sequence[tuple[Index, int]]
) -> bool:
    known = [Condition(e, ">=", 0) for i, size in moved for e in (i, size - 1 - i)]
    found = (normal_form(replace(c, left=substitute(c.left, ones))) for c in conditions)
    return all(one in known for forms in found for one in forms)
