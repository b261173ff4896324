"""Gradients of attention as code for NVIDIA's GPUs: PTX on the emulated GPU, and machine code,
which keeps tensor cores busy and spills nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from chain_programs import gradients
from cuda_products import kernel_of
from kernel_runs import run_scheduled
from machine_code import instructions_of, loops_of, matrix_part
from ptx_emulator.kernels import emulated

from modelcc.ir.loop import Function
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.schedule.group_schedule import GroupChain, GroupSchedule, TensorChain
from modelcc.targets.cuda.chips import CHIPS, find_chip
from modelcc.targets.cuda.text import llvm_text, ptx_text
from modelcc.targets.cuda.tools import assemble, disassemble, find_tool
from modelcc.targets.gpu.lower import schedule_groups_kernel
from modelcc.targets.gpu.schedule import schedule_groups
from modelcc.targets.llvm.groups import shared_bytes
from tests.targets.gpu.chains.test_chains import feeds_of

tools = pytest.mark.skipif(
    find_tool("ptxas") is None or find_tool("nvdisasm") is None,
    reason="there is no ptxas, or no nvdisasm",
)

EMULATED: Mapping[str, tuple[TensorProgram, GroupSchedule, float]] = {
    "queries": (gradients("queries", 2, 36, 70, 32, 16, "bf16", offset=3),
                TensorChain(32, 32), 2e-2),
    "keys": (gradients("keys", 4, 40, 36, 16, 32, "f16", offset=0, mask=True, groups=2),
             TensorChain(16, 16), 2e-3),
    "vectors": (gradients("queries", 2, 20, 37, 16, 20, "f32", offset=3),
                GroupChain(16, 16, 32, 4, 4, True), 3e-6),
    "threads": (gradients("keys", 2, 20, 37, 8, 6, "f32", offset=3),
                GroupChain(16, 8, 32, 2), 3e-6),
}  # fmt: skip


@pytest.mark.parametrize("early", [False, True], ids=["late", "early"])
@pytest.mark.parametrize("name", EMULATED)
def test_ptx_computes_what_the_stages_say(name: str, early: bool) -> None:
    """A thread's numbers of sums are where its numbers of operands are."""
    program, schedule, error = EMULATED[name]
    chip, feeds = CHIPS["sm_80"], feeds_of(program)
    scheduled = schedule_groups(program, schedule, chip.gpu)
    found = run_scheduled(scheduled, emulated(scheduled, chip, early), feeds, {})
    wanted = run_program(program, feeds, {})
    for output in program.outputs:
        pair = found[output].astype(np.float64), wanted[output].astype(np.float64)
        np.testing.assert_allclose(*pair, rtol=error, atol=error * float(np.abs(pair[1]).max()))


@tools
@pytest.mark.share(4, "depth", "of")
@pytest.mark.parametrize("chip_name", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("depth", [32, 64, 80, 128])
@pytest.mark.parametrize("of", ["queries", "keys"])
@pytest.mark.parametrize("offset", [None, 0], ids=["all", "causal"])
def test_tensor_cores_are_busy(chip_name: str, depth: int, of: str, offset: int | None) -> None:
    """Nothing spills; no barrier but one, nor a store to shared memory, is in the loops, of which
    one is over blocks that all rows see: there nothing is chosen."""
    chip = find_chip(chip_name)
    kernel = kernel_of(gradients(of, 64, 1024, 1024, depth, depth, "bf16", offset))
    made = schedule_groups_kernel(kernel.kernel, "k", chip.gpu)
    function, s = made.function, made.schedule
    assert isinstance(function, Function)
    assert isinstance(s, TensorChain)
    code = assemble(ptx_text(llvm_text([function], chip), chip), chip)
    use = code.uses["k"]
    assert use.spilled == use.stack == 0
    at_once = chip.gpu.groups_at_once(s.threads, use.registers, shared_bytes(function))
    assert at_once >= function.resident > 0
    loops = [loop for loop in loops_of(disassemble(code.code)) if loop["HMMA"]]
    assert len(loops) == (1 if offset is None else 2)
    products = 3 if of == "queries" else 4
    for loop in loops:
        assert loop["HMMA"] == 2 * products * (s.keys // 16) * (depth // 16)
        assert loop["BAR"] == 1 and not loop["STS"]
    shortest = min(loops, key=lambda loop: loop.total())
    assert not shortest["FSEL"]
    assert matrix_part(shortest) >= {32: 0.6, 64: 0.74, 80: 0.75, 128: 0.8}[depth]


@tools
@pytest.mark.share(4, "depth", "of")
@pytest.mark.parametrize("chip_name", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("depth", [32, 64, 80, 128])
@pytest.mark.parametrize("of", ["queries", "keys"])
def test_threads_multiply_most_of_the_time(chip_name: str, depth: int, of: str) -> None:
    """Of f32; factors are copied, and loaded by four."""
    chip = find_chip(chip_name)
    kernel = kernel_of(gradients(of, 64, 1024, 1024, depth, depth, "f32", 0))
    made = schedule_groups_kernel(kernel.kernel, "k", chip.gpu)
    assert isinstance(made.function, Function)
    assert isinstance(made.schedule, GroupChain)
    code = assemble(ptx_text(llvm_text([made.function], chip), chip), chip)
    use = code.uses["k"]
    assert use.spilled == use.stack == 0
    at_once = chip.gpu.groups_at_once(
        made.schedule.threads, use.registers, shared_bytes(made.function)
    )
    assert at_once >= made.function.resident > 0
    sass = disassemble(code.code)
    inner = [loop for loop in loops_of(sass) if loop["FFMA"] and not loop["BAR"]]
    assert len(inner) >= (3 if of == "queries" else 4)
    assert all(loop["FFMA"] / loop.total() >= 0.75 for loop in inner)
    found = instructions_of(sass)
    assert found["LDS.128"] > found["LDS"]
    assert not any(name.startswith("STS.") for name in found if "128" not in name)
