"""Rows on GPUs, and attention of few rows: warps combine registers, and memory is read and written
once, by 16 bytes."""

from __future__ import annotations

from collections import Counter

import pytest
from attention_programs import few_rows
from group_products import program_of
from machine_code import instructions_of, loops_of

from modelcc.ir.loop import For, Function, Let, Load
from modelcc.ir.loop_traversal import launch_extents, statements
from modelcc.ir.types import F16
from modelcc.targets.amdgpu.target import kernels_of
from modelcc.targets.cuda.chips import Chip, find_chip
from modelcc.targets.cuda.text import llvm_text, ptx_text
from modelcc.targets.cuda.tools import assemble, disassemble, find_tool
from modelcc.targets.gpu.machine import GPUS, GpuModel
from modelcc.targets.gpu.passes.split_keys import SplitKeys
from modelcc.targets.gpu.schedule import schedule_groups
from modelcc.targets.llvm.groups import shared_bytes
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


DECODE = """%q: f16[{h}, {m}, 128], %k: f16[{h}, {n}, 128], %v: f16[{h}, {n}, 128])
  -> (%y: f16[{h}, {m}, 128]) {{
  %p: f32[{h}, {m}, {n}] = [h < {h}, i < {m}, j < {n}] sum[d < 128]
    f32(%q[h, i, d]) * f32(%k[h, j, d])
  %t: f32[{h}, {m}] = [h < {h}, i < {m}] max[j < {n}] %p[h, i, j]
  %e: f32[{h}, {m}, {n}] = [h < {h}, i < {m}, j < {n}] exp(%p[h, i, j] - %t[h, i])
  %s: f32[{h}, {m}] = [h < {h}, i < {m}] sum[j < {n}] %e[h, i, j]
  %w: f32[{h}, {m}, {n}] = [h < {h}, i < {m}, j < {n}] %e[h, i, j] / %s[h, i]
  %u: f32[{h}, {m}, 128] = [h < {h}, i < {m}, c < 128] sum[j < {n}] %w[h, i, j] * f32(%v[h, j, c])
  %y: f16[{h}, {m}, 128] = [h < {h}, i < {m}, c < 128] f16(%u[h, i, c]) }}"""


def scheduled(kernel: str, machine: GpuModel) -> list[Function]:
    program = SplitKeys(machine.units)(program_of(kernel, {}))
    return list(schedule_groups(program, None, machine).functions)


def machine_code(function: Function, chip: Chip) -> Counter[str]:
    built = assemble(ptx_text(llvm_text([function], chip), chip), chip)
    assert all(use.spilled == 0 for use in built.uses.values())
    return instructions_of(disassemble(built.code))


def moved(code: Counter[str]) -> set[str]:
    """How global memory is read."""
    return {name for name in code if name.startswith("LDG")}


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
    (function,) = scheduled(kernel, find_chip(chip).gpu)
    found = machine_code(function, find_chip(chip))
    read = "LDG.E.128.CONSTANT" if chip == "sm_80" else "LDG.E.128"
    assert found[read] == found["STG.E.128"] == loads
    assert sum(n for name, n in found.items() if name.startswith(("LDG", "STG"))) == 2 * loads
    assert found["SHFL.BFLY"] == exchanges
    assert sum(n for name, n in found.items() if name.startswith("BAR")) == barriers


NORM = """%x: bf16[{m}, 768], %g: bf16[768]) -> (%y: bf16[{m}, 768]) {{
  %s: f32[{m}] = [i < {m}] sum[j < 768] f32(%x[i, j]) * f32(%x[i, j])
  %r: f32[{m}] = [i < {m}] rsqrt(%s[i] / 768.0)
  %y: bf16[{m}, 768] = [i < {m}, j < 768] bf16(f32(%x[i, j]) * %r[i] * f32(%g[j])) }}"""


@assembling
@pytest.mark.parametrize(("rows", "ahead"), [(1, True), (4096, True), (65536, False)])
def test_scales_of_rows_are_read_ahead_where_all_run_at_once(rows: int, ahead: bool) -> None:
    """With more rows the threads of others fill the time, if registers leave them room."""
    chip = find_chip("sm_90a")
    (function,) = scheduled(NORM.format(m=rows), chip.gpu)
    built = assemble(ptx_text(llvm_text([function], chip), chip), chip)
    lines = disassemble(built.code).splitlines()
    loads = [number for number, line in enumerate(lines) if "LDG.E.128" in line]
    last = max(number for number, line in enumerate(lines) if "SHFL.BFLY" in line)
    assert (loads[-1] < last) == ahead


@assembling
def test_a_long_sum_has_a_barrier_at_most() -> None:
    chip = find_chip("sm_80")
    (function,) = scheduled(SUM.format(m=64, n=65536), chip.gpu)
    found = machine_code(function, chip)
    assert moved(found) == {"LDG.E.128.CONSTANT"}
    assert (found["SHFL.BFLY"], found["BAR.SYNC.DEFER_BLOCKING"]) == (5, 1)


@assembling
def test_keys_are_read_once_by_all_units() -> None:
    """Queries, which are few, element by element."""
    heads, rows, keys = 16, 1, 4096
    chip = find_chip("sm_90a")
    parts, together = scheduled(DECODE.format(h=heads, m=rows, n=keys), chip.gpu)
    (groups,), threads = launch_extents(parts)
    assert isinstance(groups, int)
    assert groups > 1.9 * chip.gpu.units
    assert threads == (32, 4)
    found = machine_code(parts, chip)
    assert moved(found) == {"LDG.E.128", "LDG.E.U16"}
    assert found["LDG.E.U16"] == 1
    assert machine_code(together, chip)["STG.E.U16"] == 1
    # Each thread reads vectors of 8 halves: what all of them read is all keys and values.
    loops = [s for s in statements(parts.body) if isinstance(s, For) and s.kind == "serial"]
    loads = 0
    for loop in loops:
        inside = [e for s in loop.body if isinstance(s, Let) for e in [s.value]]
        wide = [e for e in inside if isinstance(e, Load) and e.lanes == 8 and e.dtype == F16]
        assert not wide or isinstance(loop.stop, int)
        loads += len(wide) * (loop.stop if isinstance(loop.stop, int) else 0)
    assert groups * 128 * loads * 8 == 2 * heads * keys * 128


@assembling
@pytest.mark.parametrize(
    ("name", "kind", "rows", "keys"),
    [
        ("sm_80", "f16", 1, 16384),
        ("sm_90a", "f16", 1, 16384),
        ("sm_90a", "bf16", 2, "n"),
        ("sm_90a", "f16", 4, 16384),
    ],
)
def test_keys_of_a_step_are_on_their_way_while_others_are_used(
    name: str, kind: str, rows: int, keys: int | str
) -> None:
    """One kernel, all of whose groups run at once; in its loop no thread waits for another one, nor
    for what it loads itself."""
    chip = find_chip(name)
    program = few_rows(16, rows, keys, 128, 128, kind)
    assert SplitKeys(chip.gpu.units, chip.gpu)(program).items == program.items
    function, *_ = schedule_groups(program, None, chip.gpu).functions
    assert isinstance(function, Function)
    (groups,), threads = launch_extents(function)
    assert threads == (32, 8)
    assert isinstance(groups, int)
    built = assemble(ptx_text(llvm_text([function], chip), chip), chip)
    (use,) = built.uses.values()
    assert use.spilled == 0
    at_once = chip.gpu.groups_at_once(256, use.registers, shared_bytes(function))
    assert function.resident == min(at_once, -(-groups // chip.gpu.units))
    assert 0.9 * at_once * chip.gpu.units < groups <= at_once * chip.gpu.units
    sass = disassemble(built.code)
    (loop,) = (found for found in loops_of(sass) if found["LDGSTS"])
    # A step of a thread: four keys and four values of 16 bytes, and four exchanges for a score.
    assert (loop["LDGSTS"], loop["SHFL"]) == (8, 16 * rows)
    assert not loop["LDG"] + loop["BAR"] + loop["STS"]
    found = instructions_of(sass)
    assert found["LDGSTS.E.BYPASS.128"] == 16
    assert found["ATOMG.E.INC.STRONG.GPU"] == 1


@assembling
def test_attention_of_halves_is_on_tensor_cores() -> None:
    chip = find_chip("sm_80")
    kernel = DECODE.format(h=16, m=1024, n=1024).replace("f16", "bf16")
    (function,) = scheduled(kernel, chip.gpu)
    found = machine_code(function, chip)
    # A block of 64 keys: 4 * 8 fragments of scores, 8 * 4 * 2 of weighted values, two HMMA each.
    assert sum(n for name, n in found.items() if name.startswith("HMMA")) == 2 * (32 + 64)
    assert {name.split(".")[0] for name in found} >= {"LDSM", "LDGSTS", "SHFL"}


def test_threads_of_amd_exchange_registers_too() -> None:
    kernels = kernels_of("gfx942")
    (function,) = scheduled(SOFTMAX.format(t="f32", m=4096, n=768), GPUS["mi300"])
    text = kernels.text([kernels.legal(function)], GPUS["mi300"].limits)
    words = assembly(text, kernels.machine)
    assert words.count("ds_bpermute_b32") == 12
    assert words.count("global_load_dwordx4") == 3
    assert "s_barrier" not in words
