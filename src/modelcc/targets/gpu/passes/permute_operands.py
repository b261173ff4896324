"""Reorders a call's images and filters to the layouts in which products read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace

from modelcc.ir.index import Index, Sym
from modelcc.ir.scalar_tree import reads, transform
from modelcc.ir.tensor import Axis, Item, Kernel, Read, Scalar, Stage, TensorProgram
from modelcc.ir.types import TensorType
from modelcc.passes.tensor.channels_last import is_window
from modelcc.passes.tensor.fused_kernel import kernel_of, with_stages
from modelcc.targets.gpu.products.weights import filter_order, moves_windows

Order = tuple[int, ...]
"""Dimensions of a tensor, from the outermost to the innermost one."""


@dataclass(frozen=True)
class PermuteOperands:
    """Operands of convolutions: images that a call takes or returns, of at least ``channels``
    channels, are copied to channels last; filters that a call takes or computes are reordered like
    constants. Copies of a call's inputs come before all else.

    before::

        program @main(%x: f16[1, 8, 9, 9], %w: f16[16, 8, 2, 2]) -> (%y) dims() {
          kernel @Conv(%x: f16[1, 8, 9, 9], %w: f16[16, 8, 2, 2]) -> (%y: f32[1, 8, 8, 16]) {
            %y: f32[1, 8, 8, 16] = [n < 1, p < 8, q < 8, o < 16] sum[c < 8, a < 2, b < 2]
              f32(%x[n, c, p + a, q + b]) * f32(%w[o, c, a, b])
          }
        }

    after::

        program @main(%x: f16[1, 8, 9, 9], %w: f16[16, 8, 2, 2]) -> (%y) dims() {
          kernel @turn(%x: f16[1, 8, 9, 9]) -> (%x.turned: f16[1, 9, 9, 8]) {
            %x.turned: f16[1, 9, 9, 8] = [i0 < 1, i2 < 9, i3 < 9, i1 < 8] %x[i0, i1, i2, i3]
          }
          kernel @turn(%w: f16[16, 8, 2, 2]) -> (%w.turned: f16[2, 2, 8, 16]) {
            %w.turned: f16[2, 2, 8, 16] = [i2 < 2, i3 < 2, i1 < 8, i0 < 16] %w[i0, i1, i2, i3]
          }
          kernel @Conv(%x.turned: f16[1, 9, 9, 8], %w.turned: f16[2, 2, 8, 16])
            -> (%y: f32[1, 8, 8, 16]) {
            %y: f32[1, 8, 8, 16] = [n < 1, p < 8, q < 8, o < 16] sum[c < 8, a < 2, b < 2]
              f32(%x.turned[n, p + a, q + b, c]) * f32(%w.turned[a, b, c, o])
          }
        }
    """

    channels: int = 8

    def __call__(self, program: TensorProgram) -> TensorProgram:
        first: list[Item] = []
        items: list[Item] = []
        types = dict(program.types)
        made: dict[tuple[str, Order], str] = {}

        def turned(kernel: Kernel, name: str, order: Order) -> Kernel:
            if (name, order) not in made:
                copy = _copy(name, types, order, kernel.source)
                made[name, order] = copy.outputs[0]
                types[copy.outputs[0]] = _permuted(types[name], order)
                (first if name in program.inputs else items).append(copy)
            return _reading(kernel, name, made[name, order], order)

        for item in program.items:
            if isinstance(item, Kernel):
                for name, order in self._images(item, program):
                    item = turned(item, name, order)
                for name, order in _filters(item, program, types):
                    item = turned(item, name, order)
            items.append(item)
        return replace(program, items=(*first, *items), types=types)

    def _images(self, kernel: Kernel, program: TensorProgram) -> Iterator[tuple[str, Order]]:
        """Images of the caller that windows read repeatedly, and whose channels are not last."""
        stage = kernel.stages[0]
        found, summed = set(reads(stage.body)), {Sym(axis.name) for axis in stage.reduce}
        ends = {*program.inputs, *program.outputs}.intersection(kernel.inputs)
        if stage.combine != "sum" or len(found) != 2 or len({r.tensor for r in found}) != 2:
            return
        for image in found:
            if image.tensor not in ends or not moves_windows(image, stage):
                continue
            if is_window(image, stage) and image.indices[1] in summed:
                channels = program.types[image.tensor].shape[1]
                if not isinstance(channels, int) or channels >= self.channels:
                    yield image.tensor, (0, *range(2, len(image.indices)), 1)


def _filters(
    kernel: Kernel, program: TensorProgram, types: dict[str, TensorType]
) -> Iterator[tuple[str, Order]]:
    """The filter of its windows, if it has another order."""
    for name in dict.fromkeys(read.tensor for read in reads(kernel.stages[0].body)):
        if name in program.constants or name not in kernel.inputs:
            continue
        order = filter_order(kernel.stages[0], name, types)
        if order is not None and len(order) == len(types[name].shape):
            yield name, order
            return


def _permuted(type_: TensorType, order: Order) -> TensorType:
    return replace(type_, shape=tuple(type_.shape[d] for d in order))


def _copy(name: str, types: dict[str, TensorType], order: Order, source: Sequence[str]) -> Kernel:
    turned, type_ = _free(f"{name}.turned", types.keys()), types[name]
    axes = [Axis(f"i{d}", extent) for d, extent in enumerate(type_.shape)]
    places: tuple[Index, ...] = tuple(Sym(axis.name) for axis in axes)
    body, own = Read(name, places, type_.dtype), tuple(axes[d] for d in order)
    stage = Stage(turned, own, tuple(Sym(axis.name) for axis in own), body)
    return kernel_of("turn", (stage,), (turned,), source)


def _free(name: str, taken: Set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _reading(kernel: Kernel, name: str, turned: str, order: Order) -> Kernel:
    """``kernel`` whose first stage reads the copy ``turned`` instead of ``name``."""

    def instead(value: Scalar) -> Scalar:
        if not isinstance(value, Read) or value.tensor != name:
            return value
        return replace(value, tensor=turned, indices=tuple(value.indices[d] for d in order))

    first, *others = kernel.stages
    return with_stages(kernel, [replace(first, body=transform(first.body, instead)), *others])
