"""Sines, cosines and tangents of all floats, as NVIDIA's GPUs compute them: in registers alone."""

from __future__ import annotations

import numpy as np
import pytest
from group_products import program_of
from kernel_runs import functions_of, run_scheduled
from ptx_emulator.kernels import emulated

from modelcc.ir.program import Program
from modelcc.ir.types import BF16, F16, F32, F64, DType
from modelcc.targets.cuda.chips import CHIPS
from modelcc.targets.cuda.cubin import compiled_kernels
from modelcc.targets.cuda.text import llvm_text, ptx_text
from modelcc.targets.cuda.tools import assemble, find_tool
from modelcc.targets.gpu.schedule import schedule_groups
from tests.passes.loop.elementary.test_huge_arguments import NAMES, check, floats

assembling = pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
BOTH = pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])


def scheduled(name: str, dtype: DType, count: int, chip: str) -> Program:
    """``name`` of each element."""
    text = f"""%x: {dtype}[{count}]) -> (%y: {dtype}[{count}]) {{
      %y: {dtype}[{count}] = [i < {count}] {name}(%x[i]) }}"""
    return schedule_groups(program_of(text, {}), None, CHIPS[chip].gpu)


@BOTH
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_all_exponents(name: str, dtype: DType, chip: str) -> None:
    x = floats(dtype, 2048)
    program = scheduled(name, dtype, x.size, chip)
    found = run_scheduled(program, emulated(program, CHIPS[chip]), {"x": x}, {})
    check(name, x, found["y"])


@pytest.mark.parametrize("odd", [1e20, -3e38, np.inf, np.nan])
def test_a_huge_element_leaves_the_others_alone(odd: float) -> None:
    x = np.random.default_rng(0).standard_normal(1024).astype(np.float32)
    changed = np.where(np.arange(x.size) % 7 == 3, np.float32(odd), x)
    program = scheduled("sin", F32, x.size, "sm_80")
    execute = emulated(program, CHIPS["sm_80"])
    usual, got = (run_scheduled(program, execute, {"x": v}, {})["y"] for v in (x, changed))
    np.testing.assert_array_equal(got[changed == x], usual[changed == x])
    check("sin", changed, got)


@assembling
@BOTH
@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_no_thread_has_local_memory(name: str, dtype: DType, chip: str) -> None:
    functions = list(functions_of(scheduled(name, dtype, 1 << 20, chip)))
    found = CHIPS[chip]
    code = assemble(ptx_text(llvm_text(functions, found), found), found).code
    assert [use.local for use in compiled_kernels(code).values()] == [0] * len(functions)
