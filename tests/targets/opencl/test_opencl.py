"""Kernels printed as OpenCL C compute on a device what ops mean; what has no form is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from fused_kernels import KERNELS, feeds_of, program_of, sizes_of
from group_kernels import FIRST, SHOWN, grouped
from kernel_runs import Executor, run_scheduled
from op_kernels import check, other_sizes, with_sizes
from scatters import ON_DEVICES, check_on_device
from transpositions import ON_DEVICES as TURNED
from transpositions import check_turned

from modelcc.ir.errors import ModelError
from modelcc.ir.loop import Function
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.op import Op, Sample
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ops.samples import arrays, sizes
from modelcc.runtime.errors import LoadError
from modelcc.targets.gpu.machine import PROCESSOR
from modelcc.targets.gpu.schedule import schedule_groups

pytest.importorskip("pyopencl")
opencl = pytest.importorskip("opencl_kernels")


@pytest.fixture(scope="module", autouse=True)
def device() -> None:
    try:
        opencl.first_device()
    except LoadError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(("op", "sample"), SHOWN)
def test_kernels_agree_with_the_reference(op: Op, sample: Sample) -> None:
    """One program at all sizes of the named dimensions."""
    program = grouped(op, sample)
    run = opencl.by_opencl(program.functions)
    for env in (sizes(op, sample), *other_sizes(op, sample)):
        check(op, program, run, arrays(op, with_sizes(sample, env)), env)


@pytest.mark.share(8, "op")
@pytest.mark.parametrize(("op", "sample"), FIRST)
def test_every_op_runs_or_is_refused(op: Op, sample: Sample) -> None:
    run_or_refused(op, sample, opencl.by_opencl)


@pytest.mark.share(24, "op")
@pytest.mark.parametrize(("op", "sample"), FIRST)
def test_every_op_runs_as_spirv(op: Op, sample: Sample) -> None:
    if not opencl.takes_spirv():
        pytest.skip("the device takes no SPIR-V")
    run_or_refused(op, sample, opencl.by_spirv)


@pytest.mark.parametrize("name", ON_DEVICES)
def test_updates_by_lists(name: str) -> None:
    check_on_device(name, lambda program: opencl.by_opencl(program.functions), PROCESSOR)


def run_or_refused(
    op: Op, sample: Sample, executor: Callable[[Sequence[Function]], Executor]
) -> None:
    try:
        program = grouped(op, sample)
        run = executor(program.functions)
    except (ModelError, NotImplementedError, TypeError) as error:
        assert re.search("no schedule for Scatter|cannot compute with", str(error))
        return
    check(op, program, run, arrays(op, sample), sizes(op, sample))


def test_odd_names_and_bits() -> None:
    """Words of OpenCL are no names; constants and bits are as NumPy has them."""
    text = """func @f(%half: i64[2], %global: mut i64[4], %uint: mut f32[4], %rint: mut i32[4]) {
      grid kernel in 0 .. 1 {
        thread barrier in 0 .. 4 {
          store %global[barrier] = add(i64(-9223372036854775808), load %half[barrier mod 2])
          let %image2d_t = select(predicate(barrier < 2), f32(inf), round(f32(2.5)))
          store %uint[barrier] = %image2d_t
          store %rint[barrier] = bitcast[i32](%image2d_t)
        }
      }
    }"""
    run = opencl.by_opencl([parse_function(text)])
    found = [np.arange(2), np.zeros(4, np.int64), np.zeros(4, np.float32), np.zeros(4, np.int32)]
    run("f", found, [])
    wanted = np.array([np.inf, np.inf, 2, 2], np.float32)
    np.testing.assert_array_equal(found[1], np.iinfo(np.int64).min + np.array([0, 1, 0, 1]))
    np.testing.assert_array_equal(found[2], wanted)
    np.testing.assert_array_equal(found[3], wanted.view(np.int32))


@pytest.mark.parametrize("name", KERNELS)
def test_fused_kernels_do_what_their_stages_say(name: str) -> None:
    """Products, convolutions, rows and attention by their default schedules."""
    program = program_of(name)
    feeds, env = feeds_of(program), sizes_of(program)
    scheduled = schedule_groups(program)
    run = opencl.by_opencl(scheduled.functions)
    with np.errstate(all="ignore"):
        wanted = run_program(program, feeds, env)
    found = run_scheduled(scheduled, run, feeds, env)
    for output in program.outputs:
        np.testing.assert_allclose(found[output], wanted[output], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", TURNED)
def test_operands_across_by_tiles(name: str) -> None:
    run = opencl.by_opencl
    check_turned(name, lambda program: run(program.functions), PROCESSOR, read=1, lanes=1)
