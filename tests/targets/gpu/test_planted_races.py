"""Races planted in kernels that no other test breaks are found: a barrier that is missing, and
places that two threads, or two groups, write to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
from fused_kernels import SIZES, feeds_of, program_of
from group_kernels import BY_NAME
from group_products import without
from kernel_runs import interpreted, run_scheduled
from op_kernels import graph_of

from modelcc.ir.capacity import Capacity, GroupCapacity
from modelcc.ir.index import substitute
from modelcc.ir.loop import Barrier, BindIndex, For, Function, IndexOf, Stmt, Store
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_traversal import map_blocks, statements
from modelcc.ir.op import Op, Sample
from modelcc.ir.program import Program
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.types import Array
from modelcc.ops.cumulative import CumSum
from modelcc.ops.linear_algebra import Cholesky
from modelcc.ops.samples import arrays, sizes
from modelcc.ops.top_k import TopK
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.schedule.group_schedule import GroupScatter, Pointwise
from modelcc.schedule.schedule import Schedule
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.schedule import schedule_program
from modelcc.targets.gpu.machine import PROCESSOR
from modelcc.targets.gpu.schedule import GroupLowering

CAPACITY = Capacity(1, 1, 1, GroupCapacity(threads=4, shared_bytes=700))
NUMBERS = np.random.default_rng(1).integers(0, 9, 150)
SPLIT = """program @p(%a: f32[8, 16], %b: f32[16, 8]) -> (%y) dims() {
  kernel @part(%a: f32[8, 16], %b: f32[16, 8]) -> (%s: f32[2, 8, 8]) {
    %s: f32[2, 8, 8] = [p < 2, i < 8, j < 8] sum[k < 8] %a[i, k + 8*p] * %b[k + 8*p, j] }
  kernel @sum(%s: f32[2, 8, 8]) -> (%y: f32[8, 8]) {
    %y: f32[8, 8] = [i < 8, j < 8] sum[p < 2] %s[p, i, j] } }"""


@dataclass(frozen=True)
class Run:
    """A program by groups of threads, what it is fed, and its sizes."""

    program: Program
    feeds: Mapping[str, Array]
    env: Mapping[str, int]

    def __call__(self, *changed: Function) -> None:
        """Run it, with functions in place of those of their names."""
        functions = {c.name: c for c in (*self.program.callees, *changed)}
        program = replace(self.program, callees=tuple(functions.values()))
        run_scheduled(program, interpreted(program), self.feeds, self.env)


def run_of(
    program: TensorProgram,
    feeds: Mapping[str, Array],
    env: Mapping[str, int],
    wanted: Schedule | None = None,
) -> Run:
    lower = GroupLowering(PROCESSOR, wanted)
    scheduled = schedule_program(program, CpuModel(), lower=lower, scatter=lower.scatter)
    return Run(scheduled, feeds, env)


def run_of_op(op: Op, sample: Sample, wanted: Schedule | None = None) -> Run:
    data = arrays(op, sample)
    program = FuseKernels()(lower_graph(graph_of(op, sample, data, False), CAPACITY))
    feeds = {f"x{i}": a for i, a in enumerate(data) if a is not None}
    return run_of(program, feeds, sizes(op, sample), wanted)


def lines(op: Op, dtype: type[np.generic], *shape: int) -> Run:
    return run_of_op(op, Sample((NUMBERS.astype(dtype).reshape(shape),), {}))


SORTS: Mapping[str, tuple[Callable[[], Run], int, int]] = {
    "sorted by many groups": (lambda: lines(TopK(150, 0, False), np.uint8, 150, 1), 30, 26),
    "best": (lambda: lines(TopK(5, 1), np.float32, 1, 150), 4, 4),
    "least": (lambda: lines(TopK(1, 1), np.float32, 3, 50), 3, 2),
    "running totals": (lambda: lines(CumSum(1), np.float32, 3, 50), 4, 4),
}
"""How many barriers there are, and how many are needed: the last of what algorithms share is not
where another one follows before anybody reads."""


@pytest.mark.parametrize("kind", SORTS)
def test_barriers_of_algorithms_are_needed(kind: str) -> None:
    make, count, needed = SORTS[kind]
    run, found, raced = make(), 0, 0
    for function in run.program.functions:
        barriers = [s for s in statements(function.body) if isinstance(s, Barrier)]
        for number in range(len(barriers)):
            found += 1
            try:
                run(without(function, (Barrier,), number))
            except (RaceError, IndexError):  # read before it was written
                raced += 1
    assert (found, raced) == (count, needed)


def points() -> Run:
    program = program_of("points")
    return run_of(program, feeds_of(program), {"m": SIZES["m"]}, Pointwise(4))


def updates() -> Run:
    op, sample = BY_NAME["ScatterElements-0"].values
    assert isinstance(op, Op)
    assert isinstance(sample, Sample)
    return run_of_op(op, sample, GroupScatter(3, 3))


def split_sums() -> Run:
    program = parse_tensor_program(SPLIT, {})
    types = (program.types[name].static_shape() for name in program.inputs)
    feeds = dict(zip(program.inputs, (np.ones(t, np.float32) for t in types), strict=True))
    return run_of(program, feeds, {})


def line_each() -> Run:
    matrices = np.tile(np.eye(3, dtype=np.float32), (9, 1, 1))
    return run_of_op(Cholesky(), Sample((matrices,), {}))


def together(function: Function, counter: str) -> Function:
    """``function`` whose results go where those of the first ``counter`` do."""
    results, first = {p.buffer.name for p in function.parameters if p.mutable}, {counter: 0}

    def moved(s: Stmt) -> Stmt:
        match s:
            case Store(buffer, offset) if buffer in results:
                return replace(s, offset=substitute(offset, first))
            case BindIndex(value=IndexOf(index) as value):
                return replace(s, value=replace(value, index=substitute(index, first)))
            case _:
                return s

    def rewrite(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map_blocks(moved(s), rewrite) for s in body)

    return replace(function, body=rewrite(function.body))


@pytest.mark.parametrize("make", [points, updates, split_sums, line_each])
def test_results_in_one_place_race(make: Callable[[], Run]) -> None:
    """Of threads, and of groups where there are several."""
    run = make()
    run()
    for function in run.program.functions:
        loops = (s for s in statements(function.body) if isinstance(s, For))
        several = [s for s in loops if s.kind in ("grid", "thread") and s.stop != 1]
        assert several
        for one in several:
            with pytest.raises(RaceError):
                run(together(function, one.variable))
