"""Gated products (SwiGLU, GEGLU): two products of one operand, combined element by element, as one
kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from modelcc.ir.naming import Names
from modelcc.ir.tensor import Item, Kernel, Stage, TensorProgram
from modelcc.ir.types import TensorType
from modelcc.passes.tensor.fused_kernel import fused_kernel
from modelcc.passes.tensor.makers import Makers
from modelcc.passes.tensor.product_halves import Half, product_halves, stages_of_halves
from modelcc.passes.tensor.twin_products import twin_stages
from modelcc.targets.gpu.expected_time import kernel_seconds
from modelcc.targets.gpu.machine import GpuModel


@dataclass(frozen=True)
class FuseGatedProducts:
    """A product whose result is read by one other kernel only, which begins with a product of the
    same operand, becomes part of this, if that is expected to take no longer on ``machine``.

    One group then has both sums of a result, reads the common operand once, and keeps intermediate
    results in its memory.  So does a single product whose result is read by one element-wise kernel
    only, two of its columns for each element: both halves become products of their own.

    before::

        program @main(%x: f32[64, 32], %g: f32[32, 64], %u: f32[32, 64]) -> (%y) dims() {
          kernel @MatMul(%x: f32[64, 32], %g: f32[32, 64]) -> (%a: f32[64, 64]) {
            %p: f32[64, 64] = [i < 64, j < 64] sum[k < 32] %x[i, k] * %g[k, j]
            %a: f32[64, 64] = [i < 64, j < 64] max(%p[i, j], 0.0)
          }
          kernel @MatMul_Mul(%x: f32[64, 32], %u: f32[32, 64], %a: f32[64, 64])
            -> (%y: f32[64, 64]) {
            %q: f32[64, 64] = [m < 64, n < 64] sum[k < 32] %x[m, k] * %u[k, n]
            %y: f32[64, 64] = [m < 64, n < 64] %q[m, n] * %a[m, n]
          }
        }

    after::

        program @main(%x: f32[64, 32], %g: f32[32, 64], %u: f32[32, 64]) -> (%y) dims() {
          kernel @MatMul_MatMul_Mul(%x: f32[64, 32], %g: f32[32, 64], %u: f32[32, 64])
            -> (%y: f32[64, 64]) {
            %p: f32[64, 64] = [i < 64, j < 64] sum[k < 32] %x[i, k] * %g[k, j]
            %q: f32[64, 64] = [m < 64, n < 64] sum[k < 32] %x[m, k] * %u[k, n]
            %a: f32[64, 64] = [i < 64, j < 64] max(%p[i, j], 0.0)
            %y: f32[64, 64] = [m < 64, n < 64] %q[m, n] * %a[m, n]
          }
        }
    """

    machine: GpuModel

    def __call__(self, program: TensorProgram) -> TensorProgram:
        makers, joined = Makers.of(program), dict[int, Kernel]()
        gone, types = set[int](), dict(program.types)
        for item in program.items:
            if not isinstance(item, Kernel):
                continue
            for one in _joined(item, makers, replace(program, types=types)):
                apart = {id(kernel) for kernel in one.apart}
                if gone.isdisjoint(apart) and self._pays(one, program):
                    joined[id(item)] = one.kernel
                    gone |= apart
                    types |= one.types
                    break
        items: list[Item] = [
            joined.get(id(item), item) if isinstance(item, Kernel) else item
            for item in program.items
            if id(item) in joined or id(item) not in gone
        ]
        return replace(program, types=types).with_items(tuple(items)) if joined else program

    def _pays(self, joined: _GatedProducts, program: TensorProgram) -> bool:
        """Whether the kernel is expected to take no longer than its parts; if its threads share
        terms (few rows), only where those of one of the parts do."""
        made = replace(program, types={**program.types, **joined.types})
        together = kernel_seconds(joined.kernel, made, self.machine)
        apart = [kernel_seconds(kernel, program, self.machine) for kernel in joined.apart]
        known = [time for time in apart if time is not None]
        if together is None or len(known) < len(apart):
            return False
        return together <= sum(known) if together else 0.0 in known


@dataclass(frozen=True)
class _GatedProducts:
    """A kernel that replaces those ``apart``, and types of tensors that only it has."""

    kernel: Kernel
    apart: tuple[Kernel, ...]
    types: dict[str, TensorType]


def _joined(kernel: Kernel, makers: Makers, program: TensorProgram) -> Iterator[_GatedProducts]:
    """``kernel`` and one whose result only it reads, if together they are twin products."""
    for tensor in kernel.inputs:
        pair = makers.with_maker(tensor, (kernel,))
        if pair is None:
            continue
        maker = pair[0]
        types, halves = dict[str, TensorType](), product_halves(maker.stages, kernel.stages)
        stages = _in_turn(maker.stages, kernel.stages)
        if halves is not None and len(maker.outputs) == 1:
            stages, types = _of_halves(maker.stages, kernel.stages, halves, program)
        if twin_stages(stages) is not None:
            yield _GatedProducts(fused_kernel(pair, stages, kernel.outputs), pair, types)


def _in_turn(one: tuple[Stage, ...], other: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """The common prefix of both, and then the rest of each."""
    (first, *more), (second, *later) = one, other
    return (first, second, *more, *later)


def _of_halves(
    product: tuple[Stage, ...],
    later: tuple[Stage, ...],
    halves: tuple[Half, Half],
    program: TensorProgram,
) -> tuple[tuple[Stage, ...], dict[str, TensorType]]:
    """Stages of both halves of a product and of its epilogue, and the types of new tensors."""
    names, types = Names(program.types), dict[str, TensorType]()
    each = [{s.output: names.fresh(f"{s.output}.half") for s in product} for _ in halves]
    for half, own in zip(halves, each, strict=True):
        for old, new in own.items():
            shape = list(program.types[old].shape)
            shape[half.dim] = half.extent
            types[new] = TensorType(tuple(shape), program.types[old].dtype)
    return stages_of_halves(product, later, halves, each) or (), types
