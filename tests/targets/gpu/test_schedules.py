"""Groups of threads compute what ops mean, whoever comes first: the interpreter watches them."""

from __future__ import annotations

import pytest
from group_kernels import BY_NAME, FIRST, POINTWISE, SHOWN, grouped
from kernel_runs import interpreted
from op_kernels import check

from modelcc.ir.errors import ModelError
from modelcc.ir.loop import Alloc, Barrier, Function
from modelcc.ir.loop_group_verifier import GroupLimits
from modelcc.ir.loop_traversal import statements
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.op import Op, Sample
from modelcc.ops.samples import arrays, sizes
from modelcc.schedule.group_schedule import (
    GroupProduct,
    GroupReduction,
    GroupRows,
    GroupScatter,
    Pointwise,
)
from modelcc.schedule.schedule import Schedule, ScheduleError
from modelcc.targets.gpu.machine import H100, PROCESSOR, GpuModel


def named(name: str) -> tuple[Op, Sample]:
    """A case of the matrix."""
    op, sample = BY_NAME[name].values
    assert isinstance(op, Op)
    assert isinstance(sample, Sample)
    return op, sample


def compare(
    op: Op, sample: Sample, wanted: Schedule | None = None, machine: GpuModel = PROCESSOR
) -> None:
    program = grouped(op, sample, wanted, machine)
    check(op, program, interpreted(program), arrays(op, sample), sizes(op, sample))


@pytest.mark.parametrize(("op", "sample"), SHOWN)
def test_groups_agree_with_the_reference(op: Op, sample: Sample) -> None:
    """Without a race, in vectors."""
    compare(op, sample, machine=H100)


@pytest.mark.share(6, "op")
@pytest.mark.parametrize(("op", "sample"), FIRST)
def test_every_op_runs_as_groups(op: Op, sample: Sample) -> None:
    compare(op, sample)


PRODUCT = GroupProduct(8, 4, 2, 4, 2)
CHOSEN: list[tuple[str, Schedule]] = [
    ("MatMul-0", Pointwise(3)),
    ("MatMul-0", PRODUCT),
    ("MatMul-9", GroupProduct(4, 4, 4, 1, 2, buffers=2)),
    ("Einsum-0", GroupProduct(4, 4, 3, 2, 2)),
    ("Gemm-1", PRODUCT),
    ("MatMulInteger-0", PRODUCT),
    ("Conv-0", GroupProduct(4, 8, 4, 2, 2, buffers=2)),
    ("MatMul-0", GroupProduct(8, 4, 2, 4, 2, buffers=3)),
    ("MatMul-9", GroupProduct(4, 4, 4, 1, 2, buffers=4)),
    ("Einsum-0", GroupProduct(4, 4, 3, 2, 2, buffers=3)),
    ("Gemm-1", GroupProduct(8, 4, 2, 4, 2, buffers=4)),
    ("MatMulInteger-0", GroupProduct(8, 4, 2, 4, 2, buffers=4)),
    ("Conv-0", GroupProduct(4, 8, 4, 2, 2, buffers=4)),
    ("MatMul-9", GroupProduct(8, 16, 4, 2, 2, buffers=4, interleaved=True)),
    ("Conv-0", GroupProduct(8, 32, 4, 1, 2, buffers=2, interleaved=True)),
    ("MatMul-0", GroupProduct(16, 32, 4, 2, 2, lanes=2, interleaved=True)),
    ("MatMul-9", GroupProduct(4, 4, 4, 1, 2, blocked=True)),
    ("Einsum-0", GroupProduct(4, 4, 3, 2, 2, buffers=2, blocked=True)),
    ("Conv-0", GroupProduct(4, 8, 4, 2, 2, buffers=4, blocked=True)),
    ("ReduceSum-0", GroupReduction(1)),
    ("ReduceSum-0", GroupReduction(2, 3)),
    ("ReduceSum-0", GroupReduction(4, 2, across=True)),
    ("Softmax-0", GroupRows(4, 2)),
    ("Softmax-0", GroupRows(2, 3, kept=8)),
    ("LayerNorm-0", GroupRows(4, 1, kept=4)),
    ("GatherSum-1", GroupScatter(4, 2)),
    ("ScatterElements-0", GroupScatter(3, 3)),
    ("ScatterND-0", GroupScatter(2, 2)),
]


@pytest.mark.parametrize(("name", "wanted"), CHOSEN, ids=str)
def test_a_schedule_does_not_change_the_meaning(name: str, wanted: Schedule) -> None:
    compare(*named(name), wanted)


@pytest.mark.parametrize(
    ("name", "wanted", "message"),
    [
        ("ReduceSum-0", GroupReduction(3), "a power of two of threads"),
        ("Add-0", GroupReduction(2), "share reductions"),
        ("ReduceSum-0", PRODUCT, "for products of matrices"),
        ("MatMul-0", GroupProduct(8, 4, 2, 3, 2), "a tile divides among threads"),
        ("MatMul-0", GroupProduct(8, 4, 2, 4, 2, buffers=0), "terms, parts and buffers"),
        ("MatMul-0", GroupProduct(8, 4, 2, 2, 2, interleaved=True), "4 by 8 threads"),
        ("Softmax-0", Pointwise(4), "do not share their axes"),
        ("Softmax-0", GroupRows(3), "a power of two of threads share rows"),
        ("Softmax-0", GroupRows(1, 1, kept=1), "keep whole rows"),
        ("Softmax-0", GroupRows(2, 1, warp=4), "a power of two of threads share rows"),
        ("Softmax-0", GroupRows(2, 1, lanes=8), "no whole vectors"),
        ("LayerNorm-0", GroupRows(2, 1, ahead=True), "keep nothing read nothing ahead"),
        ("Softmax-0", GroupRows(2, 1, kept=1, lanes=2), "threads keep whole vectors"),
        ("ReduceSum-0", GroupReduction(2, lanes=3), "up to eight elements"),
        ("ReduceSum-0", GroupReduction(2, across=True, warp=2), "exchange no registers"),
        ("Add-0", Pointwise(4, 3), "whole vectors"),
        ("CacheUpdate-0", GroupScatter(4, 2), "that may meet have owners"),
    ],
)
def test_schedules_that_do_not_fit_are_refused(name: str, wanted: Schedule, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        grouped(*named(name), wanted)


def test_points_need_no_barrier() -> None:
    for name in POINTWISE:
        functions = grouped(*named(name)).functions
        assert not any(isinstance(s, Barrier) for f in functions for s in statements(f.body))


def test_tiles_have_to_fit_the_shared_memory() -> None:
    (function,) = grouped(*named("MatMul-0"), GroupProduct(16, 16, 16, 2, 2)).functions
    assert isinstance(function, Function)
    shared = [s.buffer for s in statements(function.body) if isinstance(s, Alloc)]
    used = sum(b.size * b.dtype.bytes for b in shared if isinstance(b.size, int))
    verify_function(function, GroupLimits(shared_bytes=used, threads=64))
    with pytest.raises(
        ModelError, match=f"shares {used} bytes, of which the target has {used - 1}"
    ):
        verify_function(function, GroupLimits(shared_bytes=used - 1))
