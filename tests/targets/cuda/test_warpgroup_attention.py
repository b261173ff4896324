"""Attention on sm_90a as machine code, without a GPU: HGMMA from what UTMALDG brings, no spills,
powers while totals go on."""

from __future__ import annotations

import re

import pytest
from attention_models import halved, joint_attention, scheduled
from attention_programs import attention, named_attention
from cuda_products import kernel_of
from kernel_runs import functions_of
from machine_code import loops_of, matrix_part

from modelcc.schedule.group_schedule import TensorAttention
from modelcc.targets.cuda.chips import find_chip
from modelcc.targets.cuda.text import llvm_text, ptx_text
from modelcc.targets.cuda.tools import assemble, disassemble, find_tool
from modelcc.targets.gpu.lower import lower_groups

CHIP = find_chip("sm_90a")
SEEN = "select(ge(index(i - j):i64, 0), {} * 0.088, -inf)"


@pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
@pytest.mark.skipif(find_tool("nvdisasm") is None, reason="there is no nvdisasm")
@pytest.mark.share(3, "depth")
@pytest.mark.parametrize(
    ("depth", "keys", "part"), [(128, 128, 0.62), (64, 128, 0.45), (256, 64, 0.62)]
)
def test_warps_multiply_while_powers_are_made(depth: int, keys: int, part: float) -> None:
    """The loop of keys that all rows see; the other one masks, where there are registers for it."""
    score = SEEN if depth < 256 else "{} * 0.0625"
    program = attention(16, 1, 4096, 4096, depth, depth, "bf16", score, "bf16")
    schedule = TensorAttention(128, keys, "wgmma")
    function = lower_groups(kernel_of(program), schedule)
    made = assemble(ptx_text(llvm_text([function], CHIP), CHIP), CHIP)
    assert made.uses["k"].spilled == 0
    assert CHIP.gpu.groups_at_once(schedule.threads, made.uses["k"].registers, 0) > 0
    code = disassemble(made.code)
    assert {f"HGMMA.64x{n}x16.F32.BF16" for n in (keys, depth)} <= {*re.findall(r"HGMMA\S+", code)}
    products = depth // 16 + keys // 16
    loop = min((c for c in loops_of(code) if c["HGMMA"] == products), key=lambda c: c.total())
    assert loop["UTMALDG"] == (depth + 63) // 64 + keys // 64
    # Halves of the products have a column for each key, the other half one for each of the width.
    columns = (depth * keys + keys * depth) // (depth + keys)
    assert matrix_part(loop, columns) >= part
    waits = code.split("WARPGROUP.DEPBAR.LE gsb0, ")[1:]
    beside = [part.count("MUFU.EX2") for part in waits if not part.startswith("0x0")]
    assert len(beside) == 1 + (score == SEEN)
    assert min(beside) >= 0.9 * keys / 2


@pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
@pytest.mark.skipif(find_tool("nvdisasm") is None, reason="there is no nvdisasm")
def test_heads_of_slices_are_boxes() -> None:
    """Queries, keys and values side by side, of which four heads share keys."""
    source = halved(joint_attention(32, 512, 16, 4, depth=64))
    (function,) = functions_of(scheduled(source, "cuda:sm_90a"))
    made = assemble(ptx_text(llvm_text([function], CHIP), CHIP), CHIP)
    assert {use.spilled for use in made.uses.values()} == {0}
    code = disassemble(made.code)
    assert "HGMMA.64x" in code
    assert "UTMALDG.4D" in code
    assert "LDG.E" not in code


@pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
@pytest.mark.skipif(find_tool("nvdisasm") is None, reason="there is no nvdisasm")
@pytest.mark.parametrize("score", ["{} * 0.5", "{} * 0.5 + %b[i, j]", SEEN])
def test_named_numbers_of_keys_take_no_more_registers_than_there_are(score: str) -> None:
    """Powers are made while totals go on, as of known numbers."""
    function = lower_groups(
        kernel_of(named_attention(128, "bf16", score)), TensorAttention(128, 128, "wgmma")
    )
    made = assemble(ptx_text(llvm_text([function], CHIP), CHIP), CHIP)
    assert made.uses["k"].spilled == 0
    waits = disassemble(made.code).split("WARPGROUP.DEPBAR.LE gsb0, ")[1:]
    beside = [part.count("MUFU.EX2") for part in waits if not part.startswith("0x0")]
    assert beside
    assert min(beside) >= 0.9 * 128 / 2
