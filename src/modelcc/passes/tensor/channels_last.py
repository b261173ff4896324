"""Images with their channels innermost: convolutions read them contiguously."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from modelcc.ir.index import Index, Sym, coefficient, substitute, symbols
from modelcc.ir.scalar_tree import reads, transform
from modelcc.ir.tensor import Axis, Item, Kernel, Read, Scalar, Stage, TensorProgram, item_tensors
from modelcc.ir.types import TensorType

RANKS = 3, 4
"""Ranks of images: batch, channels, and one or two spatial axes."""


@dataclass(frozen=True)
class ChannelsLast:
    """For inputs of windows, and all tensors connected to them by elementwise stages; inputs and
    outputs of the program keep their layout.

    before::

        program @main(%x: i8[1, 8, 8, 4], %w: i8[6, 4, 3, 3]) -> (%y) {
          kernel @Transpose(%x: i8[1, 8, 8, 4]) -> (%t: i8[1, 4, 8, 8]) {
            %t: i8[1, 4, 8, 8] = [n < 1, c < 4, h < 8, w < 8] %x[n, h, w, c]
          }
          kernel @Conv(%t: i8[1, 4, 8, 8], %w: i8[6, 4, 3, 3]) -> (%y: i32[1, 6, 6, 6]) {
            %y: i32[1, 6, 6, 6] = [n < 1, o < 6, p < 6, q < 6] sum[c < 4, a < 3, b < 3] i32(%t[n, c, p + a, q + b]) * i32(%w[o, c, a, b])
          }
        }

    after::

        program @main(%x: i8[1, 8, 8, 4], %w: i8[6, 4, 3, 3]) -> (%y) {
          kernel @Transpose(%x: i8[1, 8, 8, 4]) -> (%t: i8[1, 8, 8, 4]) {
            %t: i8[1, 8, 8, 4] = [n < 1, h < 8, w < 8, c < 4] %x[n, h, w, c]
          }
          kernel @Conv(%t: i8[1, 8, 8, 4], %w: i8[6, 4, 3, 3]) -> (%y: i32[1, 6, 6, 6]) {
            %y: i32[1, 6, 6, 6] = [n < 1, o < 6, p < 6, q < 6] sum[c < 4, a < 3, b < 3] i32(%t[n, p + a, q + b, c]) * i32(%w[o, c, a, b])
          }
        }
    """  # noqa: E501

    def __call__(self, program: TensorProgram) -> TensorProgram:
        turned = _turned(program)
        items = (_item(item, turned) for item in program.items)
        types = {n: _type(t) if n in turned else t for n, t in program.types.items()}
        return replace(program, items=tuple[Item, ...](items), types=types)


def _turned(program: TensorProgram) -> frozenset[str]:
    """Tensors whose channels become innermost."""
    fixed = {*program.inputs, *program.outputs, *program.constants}
    fixed |= {n for i in program.items if not isinstance(i, Kernel) for n in item_tensors(i)}
    kernels = [item for item in program.items if isinstance(item, Kernel)]
    stages = [stage for kernel in kernels for stage in kernel.stages]
    several = Counter(name for s in stages for name in {s.output, *_read(s)})
    parents = {name: name for name in several}

    def root(name: str) -> str:
        while parents[name] != name:
            name = parents[name]
        return name

    windows: set[str] = set()
    for stage in stages:
        for read in reads(stage.body):
            if is_window(read, stage):
                windows |= {read.tensor, stage.output}
            if _same_place(read, stage):
                parents[root(read.tensor)] = root(stage.output)
    known = {root(name) for name in windows}
    ranks = {s.output: len(s.write) for s in stages}
    ranks |= {r.tensor: len(r.indices) for s in stages for r in reads(s.body)}
    found = (name for name in parents if root(name) in known and ranks[name] in RANKS)
    return frozenset(found) - fixed


def _same_place(read: Read, stage: Stage) -> bool:
    """Whether each point reads at the indices that it writes."""
    ones: dict[str, Index] = {a.name: 0 for a in stage.axes if a.extent == 1}
    if len(read.indices) != len(stage.write):
        return False
    pairs = zip(read.indices, stage.write, strict=True)
    return all(substitute(a, ones) == substitute(b, ones) for a, b in pairs)


def _read(stage: Stage) -> Iterator[str]:
    return (read.tensor for read in reads(stage.body))


def is_window(read: Read, stage: Stage) -> bool:
    """Whether a reduction slides over an image's positions: of all its channels, or of one."""
    summed = {axis.name for axis in stage.reduce}
    if len(read.indices) not in RANKS or len(stage.write) != len(read.indices):
        return False
    if not summed or symbols(read.indices[0]) & summed:
        return False
    return all(symbols(i) - summed for i in read.indices[2:] if symbols(i)) and any(
        _moves(i, summed) for i in read.indices[1:]
    )


def _moves(index: Index, summed: set[str]) -> bool:
    return any(coefficient(index, name) for name in symbols(index) & summed)


def _item(item: Item, turned: frozenset[str]) -> Item:
    if isinstance(item, Kernel):
        return replace(item, stages=tuple(_stage(s, turned) for s in item.stages))
    return item


def _stage(stage: Stage, turned: frozenset[str]) -> Stage:
    def visit(node: Scalar) -> Scalar:
        if isinstance(node, Read) and node.tensor in turned:
            return replace(node, indices=_last(node.indices))
        return node

    body = transform(stage.body, visit)
    write = _last(stage.write) if stage.output in turned else stage.write
    return replace(stage, axes=_in_order(stage.axes, write), write=write, body=body)


def _last(parts: tuple[Index, ...]) -> tuple[Index, ...]:
    return (parts[0], *parts[2:], parts[1])


def _in_order(axes: tuple[Axis, ...], write: tuple[Index, ...]) -> tuple[Axis, ...]:
    """Axes in the order of the output's dimensions, if each indexes one of them."""
    places: Mapping[str, int] = {
        a.name: write.index(Sym(a.name)) for a in axes if Sym(a.name) in write
    }
    if len(places) < len(axes):
        return axes
    return tuple(sorted(axes, key=lambda axis: places[axis.name]))


def _type(type_: TensorType) -> TensorType:
    return replace(type_, shape=_last(type_.shape))
