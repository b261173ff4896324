"""Products of few rows that stages before them make (norms, softmax): one kernel, in which each
group makes all rows for itself.

grid g; threads of all results
  vectors of weights, as many as a thread reads ahead
  the rows as in :mod:`modelcc.targets.gpu.rows.rows`, by teams of the same threads; row[…] = that
  barrier
  sums of row[…] and weights as in :mod:`modelcc.targets.gpu.rows.reduction`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from modelcc.ir.loop import Alloc, Barrier, Buffer, Function, Stmt
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Stage
from modelcc.ir.types import DType, TensorType
from modelcc.passes.tensor.row_product import match_row_product, written_type
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.group_schedule import GroupRowProduct
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.evaluation import Evaluation, GroupKernel, Launching, extent_of
from modelcc.targets.gpu.rows.reduction import MadeFirst, reduction_body
from modelcc.targets.gpu.rows.rows import RowStages, RowThreads, find_rows, verify_rows
from modelcc.targets.gpu.rows.team import Team


@dataclass(frozen=True)
class RowProductParts:
    """The kernel of ``rows``, ``count`` of them, which share ``stages``, and the one of the
    ``product`` that reads what they come to: ``size`` elements of ``operand``."""

    rows: GroupKernel
    stages: RowStages
    product: GroupKernel
    operand: str
    dtype: DType
    size: int
    count: int


def find_row_product(kernel: GroupKernel) -> RowProductParts:
    """The parts of a kernel; :class:`ScheduleError` if it is no product of rows that it makes, a
    known number of them and of elements."""
    whole = kernel.kernel
    found = match_row_product(whole.stages)
    type_ = None if found is None else written_type(found.rows[-1])
    if found is None or type_ is None or kernel.checks:
        raise ScheduleError("stages are no product of rows that others of them make")
    if {stage.output for stage in found.rows}.intersection(whole.outputs):
        raise ScheduleError("rows of a product are results, too")
    size = prod(n for n in type_.shape if isinstance(n, int))
    if not size or not all(isinstance(n, int) for n in type_.shape):
        raise ScheduleError("products of rows have a known number of them: none, or a named one")
    types = (*whole.types, (found.operand, type_))
    rows = kernel.part(_of_stages(whole, found.rows, types, (found.operand,)))
    product = kernel.part(_of_stages(whole, found.product, types, whole.outputs))
    stages = find_rows(rows)
    count = extent_of(stages.outer)
    assert isinstance(count, int)
    return RowProductParts(rows, stages, product, found.operand, type_.dtype, size, count)


def _of_stages(
    whole: CanonicalKernel,
    stages: tuple[Stage, ...],
    types: Sequence[tuple[str, TensorType]],
    outputs: tuple[str, ...],
) -> CanonicalKernel:
    """Some ``stages`` of a kernel, as a kernel."""
    read = {r.tensor for stage in stages for r in reads(stage.body)}
    read -= {stage.output for stage in stages}
    inputs = tuple(name for name, _ in types if name in read)
    own = tuple((name, type_) for name, type_ in types if name in {*inputs, *outputs})
    constants = whole.constants & frozenset(inputs)
    return replace(
        whole, stages=stages, inputs=inputs, outputs=outputs, types=own, constants=constants
    )


def lower_row_product(kernel: GroupKernel, schedule: GroupRowProduct) -> Function:
    """The function of a kernel; :class:`ScheduleError` if it is no such product, or threads cannot
    have its rows and its results so."""
    parts = find_row_product(kernel)
    verify_rows(parts.rows, schedule.rows, parts.stages)
    if parts.count > schedule.rows.rows:
        raise ScheduleError("threads have all rows of a product that they make: rows")

    def make(outer: Evaluation, team: Team, launch: Launching) -> Sequence[Stmt]:
        own = team.regrouped(schedule.rows)
        at = outer.beside()
        threads = RowThreads(parts.rows, schedule.rows, parts.stages, own, launch, at, own.row)
        shared = threads.walk()
        outer.statements.append(Barrier())
        return (Alloc(Buffer(parts.operand, parts.dtype, parts.size, "shared")), *shared)

    first = MadeFirst(parts.operand, make)
    return kernel.function(reduction_body(parts.product, schedule.product, first))
