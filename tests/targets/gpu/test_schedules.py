"""Groups of threads compute what ops mean, whoever comes first: the interpreter watches them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from group_kernels import BY_NAME, FIRST, POINTWISE, REDUCTIONS, SHOWN, TILES, grouped
from kernel_runs import interpreted
from op_kernels import check

from modelcc.ir.errors import ModelError
from modelcc.ir.loop import Alloc, Barrier, For, Function, Stmt
from modelcc.ir.loop_group_verifier import GroupLimits
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_traversal import map_blocks, statements
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.op import Op, Sample
from modelcc.ops.samples import arrays, sizes
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.lower import PointwiseGroups
from modelcc.targets.gpu.reduction import ReducingGroups
from modelcc.targets.gpu.schedule import GroupSchedule
from modelcc.targets.gpu.tiles import SharedTiles


def named(name: str) -> tuple[Op, Sample]:
    """A case of the matrix."""
    op, sample = BY_NAME[name].values
    assert isinstance(op, Op)
    assert isinstance(sample, Sample)
    return op, sample


def compare(op: Op, sample: Sample, wanted: GroupSchedule | None = None) -> None:
    program = grouped(op, sample, wanted)
    check(op, program, interpreted(program), arrays(op, sample), sizes(op, sample))


@pytest.mark.parametrize(("op", "sample"), SHOWN)
def test_groups_agree_with_the_reference(op: Op, sample: Sample) -> None:
    """Without a race."""
    compare(op, sample)


@pytest.mark.share(6, "op")
@pytest.mark.parametrize(("op", "sample"), FIRST)
def test_every_op_runs_as_groups_or_is_refused(op: Op, sample: Sample) -> None:
    try:
        grouped(op, sample)
    except ModelError as error:
        assert "have no schedule for Scatter" in str(error)
        return
    compare(op, sample)


def kinds(name: str) -> set[int]:
    """How many dimensions grids have, by function."""
    functions = grouped(*named(name)).functions
    return {sum(_is_grid(s) for s in statements(f.body)) for f in functions}


def _is_grid(s: Stmt) -> bool:
    return isinstance(s, For) and s.kind == "grid"


def test_each_schedule_is_shown() -> None:
    assert all(3 in kinds(name) for name in TILES)
    assert not any(barriers(name) for name in POINTWISE)
    assert all(barriers(name) for name in REDUCTIONS)


def barriers(name: str) -> int:
    functions = grouped(*named(name)).functions
    return sum(isinstance(s, Barrier) for f in functions for s in statements(f.body))


@pytest.mark.parametrize("wanted", [PointwiseGroups(3), SharedTiles(3), SharedTiles(4)], ids=repr)
@pytest.mark.parametrize("name", ["MatMul-0", "Einsum-0"])
def test_a_schedule_does_not_change_the_meaning(name: str, wanted: GroupSchedule) -> None:
    compare(*named(name), wanted)


@pytest.mark.parametrize("threads", [1, 2, 16])
def test_any_number_of_threads_reduces(threads: int) -> None:
    compare(*named("ReduceSum-0"), ReducingGroups(threads))


@pytest.mark.parametrize(
    ("name", "wanted", "message"),
    [
        ("ReduceSum-0", ReducingGroups(3), "a power of two of threads"),
        ("Add-0", ReducingGroups(), "a power of two of threads share reductions"),
        ("ReduceSum-0", SharedTiles(), "for products of matrices"),
    ],
)
def test_schedules_that_do_not_fit_are_refused(
    name: str, wanted: GroupSchedule, message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        grouped(*named(name), wanted)


def without_barrier(function: Function, number: int) -> Function:
    """``function`` without one of its barriers."""
    found = 0

    def rewrite(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        nonlocal found
        kept: list[Stmt] = []
        for s in body:
            if isinstance(s, Barrier):
                found += 1
            if not isinstance(s, Barrier) or found - 1 != number:
                kept.append(map_blocks(s, rewrite))
        return tuple(kept)

    return replace(function, body=rewrite(function.body))


@pytest.mark.parametrize(
    ("name", "wanted", "count"),
    [("MatMul-0", SharedTiles(2), 2), ("ReduceSum-0", ReducingGroups(), 6)],
)
def test_each_barrier_is_needed(name: str, wanted: GroupSchedule, count: int) -> None:
    """A kernel with one of its barriers missing is found to race."""
    op, sample = named(name)
    (function,) = grouped(op, sample, wanted).functions
    values = sizes(op, sample)
    operands = [a for a in arrays(op, sample) if a is not None]
    with np.errstate(all="ignore"):
        result = op.substitute(values).reference(*operands)
    assert not isinstance(result, tuple)
    numbers = [values[n] for n in function.sizes]
    interpret_loops(function, [*operands, np.zeros_like(result)], numbers)
    assert sum(isinstance(s, Barrier) for s in statements(function.body)) == count
    for number in range(count):
        broken = without_barrier(function, number)
        verify_function(broken)
        with pytest.raises(RaceError):
            interpret_loops(broken, [*operands, np.zeros_like(result)], numbers)


def test_tiles_have_to_fit_the_shared_memory() -> None:
    (function,) = grouped(*named("MatMul-0"), SharedTiles(16)).functions
    shared = [s.buffer for s in statements(function.body) if isinstance(s, Alloc)]
    used = sum(b.size * b.dtype.bytes for b in shared if isinstance(b.size, int))
    verify_function(function, GroupLimits(shared_bytes=used, threads=256))
    with pytest.raises(ModelError, match=f"shares {used} bytes, of which the target has 1024"):
        verify_function(function, GroupLimits(shared_bytes=1024))
