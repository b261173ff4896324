"""Gates: products of one operand of which a kernel combines two point by point, as one kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from modelcc.ir.tensor import Item, Kernel, TensorProgram
from modelcc.passes.tensor.fused_kernel import fused_kernel
from modelcc.passes.tensor.makers import Makers
from modelcc.passes.tensor.twin_products import twin_stages
from modelcc.schedule.canonical import CanonicalKernel, canonical
from modelcc.schedule.group_schedule import (
    GroupProduct,
    GroupReduction,
    GroupSchedule,
    TensorProduct,
)
from modelcc.schedule.schedule import NoScheduleError
from modelcc.targets.gpu.choice import UNIT_PRODUCTS, cost_after, product_time
from modelcc.targets.gpu.contraction import group_contraction
from modelcc.targets.gpu.evaluation import GroupKernel
from modelcc.targets.gpu.lower import default_schedule
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.tensor_choice import tensor_time
from modelcc.targets.gpu.tensor_product import matrix_type
from modelcc.targets.gpu.weights import weight_layouts, with_weights


@dataclass(frozen=True)
class JoinTwins:
    """A product whose result is read by one other kernel only, which begins with a product of the
    same operand, becomes part of this, if that is expected to take no longer on ``machine``.

    Both sums of a result are then with one group, that reads the common operand once, and what was
    handed on stays in its memory.

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
        gone = set[int]()
        for item in program.items:
            if not isinstance(item, Kernel) or len(item.stages) < 2:
                continue
            found = (j for j in _joined(item, makers) if gone.isdisjoint(map(id, j[:2])))
            best = next((j for j in found if self._pays(*j, program)), None)
            if best is not None:
                joined[id(item)] = best[2]
                gone.update(map(id, best[:2]))
        first = gone - joined.keys()
        items: list[Item] = [
            joined.get(id(i), i) if isinstance(i, Kernel) else i
            for i in program.items
            if id(i) not in first
        ]
        return program.with_items(tuple(items)) if joined else program

    def _pays(self, one: Kernel, other: Kernel, both: Kernel, program: TensorProgram) -> bool:
        """Whether ``both`` in one take no longer than by themselves."""

        def found(kernel: Kernel) -> CanonicalKernel:
            return canonical(kernel, program.types, frozenset(program.constants), program.dims)[0]

        times = [expected_cycles(found(kernel), self.machine) for kernel in (one, other, both)]
        apart, together = times[:2], times[2]
        known = [time for time in apart if time is not None]
        return together is not None and len(known) == 2 and together <= sum(known)


def _joined(kernel: Kernel, makers: Makers) -> Iterator[tuple[Kernel, Kernel, Kernel]]:
    """A kernel that makes something for ``kernel`` alone, this one, and both in one, where they
    begin with products of a common factor."""
    for tensor in kernel.inputs:
        pair = makers.with_maker(tensor, (kernel,))
        if pair is None:
            continue
        maker = pair[0]
        (first, *more), (second, *later) = maker.stages, kernel.stages
        stages = (first, second, *more, *later)
        if twin_stages(stages) is not None:
            yield maker, kernel, fused_kernel(pair, stages, kernel.outputs)


def expected_cycles(kernel: CanonicalKernel, machine: GpuModel) -> float | None:
    """That a product is expected to take by default, by what its schedule was chosen by; 0 if it
    takes the time of reading what it reads, None if it has no tiles."""
    grouped = GroupKernel(with_weights(kernel, weight_layouts(kernel)), "kernel")
    try:
        schedule = default_schedule(grouped.kernel, machine)
    except NoScheduleError:
        return None
    return 0.0 if isinstance(schedule, GroupReduction) else _cycles(grouped, schedule, machine)


def _cycles(kernel: GroupKernel, schedule: GroupSchedule, machine: GpuModel) -> float | None:
    if not isinstance(schedule, GroupProduct | TensorProduct):
        return None
    anchor, found = kernel.group.anchor, group_contraction(kernel.group)
    if anchor is None or found is None:
        return None
    if isinstance(schedule, GroupProduct):
        time = product_time(schedule, found, machine, cost_after(kernel.group))
        return None if time is None else time / UNIT_PRODUCTS
    dtype = matrix_type(anchor, found)
    return None if dtype is None else tensor_time(schedule, found, dtype, machine)
