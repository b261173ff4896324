"""Products computed in the order of dimensions in which they are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Index, Sym
from modelcc.ir.scalar_tree import reads, transform
from modelcc.ir.tensor import Item, Kernel, Read, Scalar, Stage, TensorProgram, item_inputs
from modelcc.ir.types import TensorType

Order = tuple[int, ...]
"""Dimensions of a tensor, in the order in which its reader writes them."""


@dataclass(frozen=True)
class PermuteProducts:
    """A product that is only read transposed becomes the transposed product.

    It is then vectorised along its reader's contiguous dimension, so that the two can be one
    kernel; another pass packs the operand that is now strided.  Results with fewer than ``least``
    contiguous elements are not permuted.

    before::

        program @main(%a: f32[32, 8], %b: f32[8, 24], %x: f32[24, 32]) -> (%y) {
          kernel @MatMul(%a: f32[32, 8], %b: f32[8, 24]) -> (%c: f32[32, 24]) {
            %c: f32[32, 24] = [m < 32, n < 24] sum[k < 8] %a[m, k] * %b[k, n]
          }
          kernel @Add(%c: f32[32, 24], %x: f32[24, 32]) -> (%y: f32[24, 32]) {
            %y: f32[24, 32] = [n < 24, m < 32] %c[m, n] + %x[n, m]
          }
        }

    after::

        program @main(%a: f32[32, 8], %b: f32[8, 24], %x: f32[24, 32]) -> (%y) {
          kernel @MatMul(%a: f32[32, 8], %b: f32[8, 24]) -> (%c: f32[24, 32]) {
            %c: f32[24, 32] = [n < 24, m < 32] sum[k < 8] %a[m, k] * %b[k, n]
          }
          kernel @Add(%c: f32[24, 32], %x: f32[24, 32]) -> (%y: f32[24, 32]) {
            %y: f32[24, 32] = [n < 24, m < 32] %c[n, m] + %x[n, m]
          }
        }
    """

    least: int = 16

    def __call__(self, program: TensorProgram) -> TensorProgram:
        orders = self._orders(program)
        if not orders:
            return program
        types = {**program.types, **{t: _permuted(program.types[t], o) for t, o in orders.items()}}
        items = tuple(_rewritten(item, orders) for item in program.items)
        return replace(program, items=items, types=types)

    def _orders(self, program: TensorProgram) -> dict[str, Order]:
        """The new order of every product that is permuted."""
        kernels = [item for item in program.items if isinstance(item, Kernel)]
        others = [item for item in program.items if not isinstance(item, Kernel)]
        written = Counter(s.output for k in kernels for s in k.stages)
        kept = {t for item in others for t in item_inputs(item)} | set(program.outputs)
        wanted = _orders_read(kernels, program.types)
        orders: dict[str, Order] = {}
        for kernel in kernels:
            name = kernel.outputs[0]
            order = wanted.get(name)
            alone = name not in kept and written[name] == 1
            if order and alone and self._is_product(kernel) and self._is_long(program, name, order):
                orders[name] = order
        return orders

    def _is_product(self, kernel: Kernel) -> bool:
        if len(kernel.stages) != 1:
            return False
        stage = kernel.stages[0]
        body = stage.body
        return (
            stage.combine == "sum"
            and getattr(body, "function", "") == "mul"
            and all(isinstance(a, Read) for a in getattr(body, "args", ()))
        )

    def _is_long(self, program: TensorProgram, name: str, order: Order) -> bool:
        """Whether another dimension becomes the last, long enough for vectors."""
        type_ = program.types[name]
        extent = type_.shape[order[-1]]
        plain = type_.layout is None and order[-1] != type_.rank - 1
        return plain and (not isinstance(extent, int) or extent >= self.least)


def _orders_read(kernels: Sequence[Kernel], types: Mapping[str, TensorType]) -> dict[str, Order]:
    """Tensor → the one order in which all its readers write what they read of it."""
    by_tensor: dict[str, set[Order | None]] = {}
    for kernel in kernels:
        for stage in kernel.stages:
            for read in reads(stage.body):
                by_tensor.setdefault(read.tensor, set()).add(_order(read, stage, types))
    single = {name: next(iter(orders)) for name, orders in by_tensor.items() if len(orders) == 1}
    return {name: order for name, order in single.items() if order is not None}


def _order(read: Read, stage: Stage, types: Mapping[str, TensorType]) -> Order | None:
    """Dimensions of the tensor read, sorted by where the stage writes them; None if it does not
    traverse all of it exactly once in row-major order."""
    places: dict[Index, int] = {index: d for d, index in enumerate(stage.write)}
    if stage.reduce or types[stage.output].layout is not None:
        return None
    extents: dict[Index, Index] = {Sym(a.name): a.extent for a in stage.axes}
    positions: list[int] = []
    for index, extent in zip(read.indices, types[read.tensor].shape, strict=True):
        if index == 0 and extent == 1:
            positions.append(-1)
        elif index in places and extents.get(index) == extent:
            positions.append(places[index])
        else:
            return None
    return tuple(sorted(range(len(positions)), key=lambda d: positions[d]))


def _permuted(type_: TensorType, order: Order) -> TensorType:
    return replace(type_, shape=tuple(type_.shape[d] for d in order))


def _rewritten(item: Item, orders: Mapping[str, Order]) -> Item:
    if not isinstance(item, Kernel):
        return item

    def visit(node: Scalar) -> Scalar:
        order = orders.get(node.tensor) if isinstance(node, Read) else None
        if order is None or not isinstance(node, Read):
            return node
        return replace(node, indices=tuple(node.indices[d] for d in order))

    def stage(s: Stage) -> Stage:
        body = transform(s.body, visit)
        order = orders.get(s.output)
        if order is None:
            return replace(s, body=body)
        write = tuple(s.write[d] for d in order)
        places: dict[Index, int] = {index: d for d, index in enumerate(write)}
        axes = sorted(s.axes, key=lambda a: places.get(Sym(a.name), -1))
        return replace(s, axes=tuple(axes), write=write, body=body)

    return replace(item, stages=tuple(stage(s) for s in item.stages))
