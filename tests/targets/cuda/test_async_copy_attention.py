"""Attention of f32 as machine code, without a GPU: little but FFMA in the loop over keys, copies
beside, no spills, as many groups at once as planned."""

from __future__ import annotations

from collections import Counter

import pytest
from attention_models import joint_attention, scheduled
from attention_programs import attention
from cuda_products import kernel_of
from kernel_runs import functions_of
from machine_code import instructions_of, loops_of

from modelcc.ir.loop import Function
from modelcc.schedule.group_schedule import GroupAttention
from modelcc.targets.cuda.chips import find_chip
from modelcc.targets.cuda.text import llvm_text, ptx_text
from modelcc.targets.cuda.tools import assemble, disassemble, find_tool
from modelcc.targets.gpu.lower import schedule_groups_kernel
from modelcc.targets.llvm.groups import shared_bytes

SEEN = "select(ge(index(i - j):i64, 0), {} * 0.125, -inf)"
PLAIN = "{} * 0.125"
MASK = "{} * 0.125 + %b[i, j]"

tools = pytest.mark.skipif(
    find_tool("ptxas") is None or find_tool("nvdisasm") is None,
    reason="there is no ptxas, or no nvdisasm",
)


def blocks_of(sass: str, products: tuple[int, int]) -> list[Counter[str]]:
    """What is issued for a block of keys, by each loop over such blocks, in which the scores and
    the totals of a thread take so many multiply-adds."""
    loops, found = loops_of(sass), list[Counter[str]]()
    for first, second, whole in zip(loops, loops[1:], loops[2:], strict=False):
        if whole["BAR"] == 2 and not first["BAR"] + second["BAR"] and second["LDS"]:
            issued = Counter(whole)
            for loop, count in zip((first, second), products, strict=True):
                for name, number in loop.items():
                    issued[name] += number * (count // loop["FFMA"] - 1)
            found.append(issued)
    return found


@tools
@pytest.mark.share(4, "depth")
@pytest.mark.parametrize("chip_name", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("score", [SEEN, PLAIN, MASK], ids=["causal", "plain", "mask"])
@pytest.mark.parametrize(("heads", "rows", "depth"), [(512, 512, 64), (16, 4096, 128)])
def test_threads_multiply_most_of_the_time(
    chip_name: str, score: str, heads: int, rows: int, depth: int
) -> None:
    chip = find_chip(chip_name)
    kernel = kernel_of(attention(heads, 1, rows, rows, depth, depth, "f32", score))
    made = schedule_groups_kernel(kernel.kernel, "k", chip.gpu)
    function, s = made.function, made.schedule
    assert isinstance(function, Function) and isinstance(s, GroupAttention)
    code = assemble(ptx_text(llvm_text([function], chip), chip), chip)
    use = code.uses["k"]
    assert use.spilled == use.stack == 0
    at_once = chip.gpu.groups_at_once(s.threads, use.registers, shared_bytes(function))
    assert at_once >= function.resident > 0
    each = s.rows * s.keys * depth // s.threads
    blocks = blocks_of(disassemble(code.code), (each, each))
    assert len(blocks) == (2 if score == SEEN else 1)
    assert blocks[0]["FFMA"] / blocks[0].total() >= (0.75 if score == MASK else 0.8)
    for issued in blocks:
        assert issued["FFMA"] >= 2 * each
        assert issued["FFMA"] / issued.total() >= 0.75
        assert issued["LDGSTS"] == 2 * s.keys * depth // 4 // s.threads
        assert issued["LDG"] == (s.rows * s.keys // s.threads if score == MASK else 0)


@tools
@pytest.mark.parametrize("chip_name", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("rows", [128, 197])
def test_few_rows_have_smaller_blocks(chip_name: str, rows: int) -> None:
    """All that a model says of 12 heads, of which most units have some."""
    chip = find_chip(chip_name)
    source = joint_attention(1, rows, 12, 12, depth=64)
    (function,) = functions_of(scheduled(source, f"cuda:{chip_name}"))
    made = assemble(ptx_text(llvm_text([function], chip), chip), chip)
    (use,) = made.uses.values()
    assert use.spilled == 0
    found = instructions_of(disassemble(made.code))
    assert found["LDGSTS.E.BYPASS.128"] > 0 == sum(found[n] for n in found if n.startswith("LDG.E"))
    assert found["STG.E.128"] > 0 == found["STG.E"]
