"""Rows on GPUs: warps combine registers, and memory is read and written once, by 16 bytes."""

from __future__ import annotations

from collections import Counter

import pytest
from group_products import program_of
from machine_code import instructions_of

from modelcc.ir.loop import Function
from modelcc.targets.amdgpu.target import kernels_of
from modelcc.targets.cuda.chips import find_chip
from modelcc.targets.cuda.text import llvm_text, ptx_text
from modelcc.targets.cuda.tools import assemble, disassemble, find_tool
from modelcc.targets.gpu.machine import GPUS, GpuModel
from modelcc.targets.gpu.schedule import schedule_groups
from modelcc.targets.native.toolchain import assembly

SOFTMAX = """%x: {t}[{m}, {n}]) -> (%y: {t}[{m}, {n}]) {{
  %t: f32[{m}] = [i < {m}] max[j < {n}] f32(%x[i, j])
  %e: f32[{m}, {n}] = [i < {m}, j < {n}] exp(f32(%x[i, j]) - %t[i])
  %s: f32[{m}] = [i < {m}] sum[j < {n}] %e[i, j]
  %y: {t}[{m}, {n}] = [i < {m}, j < {n}] {t}(%e[i, j] / %s[i]) }}"""
SUM = """%x: f32[{m}, {n}]) -> (%y: f32[{m}]) {{
  %y: f32[{m}] = [i < {m}] sum[j < {n}] %x[i, j] }}"""

assembling = pytest.mark.skipif(
    find_tool("ptxas") is None or find_tool("nvdisasm") is None, reason="there is no ptxas here"
)


def scheduled(kernel: str, machine: GpuModel) -> Function:
    (function,) = schedule_groups(program_of(kernel, {}), None, machine).functions
    assert isinstance(function, Function)
    return function


def machine_code(kernel: str, name: str) -> Counter[str]:
    chip = find_chip(name)
    built = assemble(ptx_text(llvm_text([scheduled(kernel, chip.gpu)], chip), chip), chip)
    assert all(use.spilled == 0 for use in built.uses.values())
    return instructions_of(disassemble(built.code))


@assembling
@pytest.mark.parametrize(
    ("kernel", "chip", "loads", "exchanges", "barriers"),
    [
        (SOFTMAX.format(t="f32", m=4096, n=768), "sm_80", 6, 10, 0),
        (SOFTMAX.format(t="f16", m=4096, n=768), "sm_90a", 3, 10, 0),
        (SOFTMAX.format(t="f32", m=128, n=4096), "sm_90a", 2, 10, 2),
        (SOFTMAX.format(t="f32", m=8192, n=64), "sm_90a", 1, 8, 0),
    ],
)
def test_a_row_is_read_once(
    kernel: str, chip: str, loads: int, exchanges: int, barriers: int
) -> None:
    found = machine_code(kernel, chip)
    assert found["LDG.E.128.CONSTANT"] == found["STG.E.128"] == loads
    assert sum(n for name, n in found.items() if name.startswith(("LDG", "STG"))) == 2 * loads
    assert found["SHFL.BFLY"] == exchanges
    assert sum(n for name, n in found.items() if name.startswith("BAR")) == barriers


@assembling
def test_a_long_sum_has_a_barrier_at_most() -> None:
    found = machine_code(SUM.format(m=64, n=65536), "sm_80")
    assert {name for name in found if name.startswith("LDG")} == {"LDG.E.128.CONSTANT"}
    assert (found["SHFL.BFLY"], found["BAR.SYNC.DEFER_BLOCKING"]) == (5, 1)


def test_threads_of_amd_exchange_registers_too() -> None:
    kernels = kernels_of("gfx942")
    function = kernels.legal(scheduled(SOFTMAX.format(t="f32", m=4096, n=768), GPUS["mi300"]))
    words = assembly(kernels.text([function], GPUS["mi300"].limits), kernels.machine)
    assert words.count("ds_bpermute_b32") == 12
    assert words.count("global_load_dwordx4") == 3
    assert "s_barrier" not in words
