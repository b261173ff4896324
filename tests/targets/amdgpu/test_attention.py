"""Attention on AMD's matrix cores as machine code, without a GPU: scores stay in registers."""

from __future__ import annotations

import pytest
from amd_code import full_waits_in, loops_of, products_in, taken
from attention_programs import CAUSAL, attention
from cuda_products import kernel_of

from modelcc.schedule.group_schedule import TensorAttention
from modelcc.targets.amdgpu.chips import CHIPS
from modelcc.targets.amdgpu.target import kernels_of
from modelcc.targets.gpu.attention.attention_choice import fragment_registers
from modelcc.targets.gpu.attention.attention_parts import find_attention
from modelcc.targets.gpu.attention.wave_attention import LAYOUTS, MATRIX
from modelcc.targets.gpu.lower import default_schedule, lower_groups
from modelcc.targets.native.toolchain import assembly

MASKED = "{} * 0.125 + %b[i, j]"


@pytest.mark.parametrize("score", ["{}", CAUSAL, MASKED])
@pytest.mark.parametrize(
    ("dtype", "depth", "keys", "chip"),
    [
        ("bf16", 128, 4096, "gfx942"),
        ("f16", 64, 1000, "gfx942"),
        ("bf16", 64, 1024, "gfx90a"),
        ("f16", 128, 4096, "gfx950"),
    ],
)
def test_scores_stay_in_registers(dtype: str, depth: int, keys: int, chip: str, score: str) -> None:
    kernel = kernel_of(attention(16, 8, keys, keys, depth, depth, dtype, score, dtype))
    gpu, kernels = CHIPS[chip], kernels_of(chip)
    schedule = default_schedule(kernel.kernel, gpu)
    assert isinstance(schedule, TensorAttention)
    assert schedule.instruction == MATRIX
    function = lower_groups(kernel, schedule)
    code = assembly(kernels.text([kernels.legal(function)], gpu.limits), kernels.machine)
    assert taken(code, ".private_segment_fixed_size") == taken(code, ".vgpr_spill_count") == 0
    shared = taken(code, ".group_segment_fixed_size")
    planned = fragment_registers(kernel, schedule, find_attention(kernel))
    planned = gpu.groups_at_once(schedule.threads, planned, shared)
    assert gpu.groups_at_once(schedule.threads, taken(code, ".vgpr_count"), shared) >= planned > 0
    loop = max(loops_of(code), key=products_in)
    assert products_in(loop) == 2 * schedule.keys * depth // (16 * 16)
    assert loop["ds_read2_b64"] + loop["ds_read2st64_b64"] >= products_in(loop) // 4
    assert not [word for word in loop if word.startswith("ds_read_u")]
    written = schedule.keys * depth * 2 * 2 // schedule.threads
    assert loop["ds_write_b64"] * 8 + loop["ds_write2_b64"] * 16 >= written, "of the next block"
    assert loop["v_exp_f32_e32"] == schedule.keys // 4 + 1
    assert loop["s_barrier"] == 2


@pytest.mark.parametrize("score", ["{}", CAUSAL, MASKED])
@pytest.mark.parametrize(
    ("dtype", "depth", "result"),
    [("f16", 64, "f16"), ("bf16", 128, "bf16"), ("f16", 128, "f32"), ("bf16", 96, "bf16")],
)
@pytest.mark.parametrize("chip", ["gfx1100", "gfx1201"])
def test_waves_of_32_threads_keep_scores_too(
    chip: str, dtype: str, depth: int, result: str, score: str
) -> None:
    """On RDNA 3 threads that have a row exchange its powers, two in a register."""
    kernel = kernel_of(attention(16, 8, 1000, 1000, depth, depth, dtype, score, result))
    gpu, kernels = CHIPS[chip], kernels_of(chip)
    schedule = default_schedule(kernel.kernel, gpu)
    assert isinstance(schedule, TensorAttention)
    assert schedule.instruction in LAYOUTS
    function = lower_groups(kernel, schedule)
    code = assembly(kernels.text([kernels.legal(function)], gpu.limits), kernels.machine)
    assert taken(code, ".private_segment_fixed_size") == taken(code, ".vgpr_spill_count") == 0
    shared = taken(code, ".group_segment_fixed_size")
    planned = fragment_registers(kernel, schedule, find_attention(kernel))
    planned = gpu.groups_at_once(schedule.threads, planned, shared)
    assert gpu.groups_at_once(schedule.threads, taken(code, ".vgpr_count"), shared) >= planned > 0
    loop, parts = max(loops_of(code), key=products_in), 2 if result == "f32" else 1
    assert products_in(loop) == (1 + parts) * schedule.keys * depth // (16 * 16)
    across = parts * schedule.keys // 4 if chip == "gfx1100" else 0
    assert loop["v_permlanex16_b32"] == across + 1, "and the largest score"
    assert not loop["ds_bpermute_b32"]
    assert full_waits_in(code) <= products_in(loop) // 2
    assert not [word for word in loop if word.startswith(("ds_load_u", "scratch"))]


def test_halves_that_would_be_cut_are_multiplied_in_threads() -> None:
    """Of f16 gfx90a takes small numbers as 0."""
    kernel = kernel_of(attention(16, 8, 1024, 1024, 64, 64, "f16", "{}", "f16"))
    assert not isinstance(default_schedule(kernel.kernel, CHIPS["gfx90a"]), TensorAttention)
