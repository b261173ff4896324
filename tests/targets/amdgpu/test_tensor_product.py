"""Products by AMD's matrix instructions as machine code, without a GPU: ``v_mfma`` and ``v_wmma``
on vectors from LDS, no spills, as many groups at once as planned, little else in the loop."""

from __future__ import annotations

from collections import Counter

import pytest
from amd_code import MFMA_CYCLES, WMMA_CYCLES, loops_of, matrix_part, products_in, taken
from cuda_products import kernel_of, product

from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.schedule.group_schedule import TensorProduct
from modelcc.targets.amdgpu.chips import CHIPS
from modelcc.targets.amdgpu.target import kernels_of
from modelcc.targets.gpu.contraction import find_contraction
from modelcc.targets.gpu.lower import default_schedule, lower_groups
from modelcc.targets.gpu.products.tensor_choice import tensor_bytes, tensor_registers
from modelcc.targets.native.toolchain import assembly


def code_as_planned(program: TensorProgram, chip: str) -> tuple[TensorProduct, str]:
    """The schedule that is chosen for matrix cores, and its assembly: nothing spills, and as many
    groups run at once as was planned."""
    kernel, gpu = kernel_of(program), CHIPS[chip]
    schedule = default_schedule(kernel.kernel, gpu)
    assert isinstance(schedule, TensorProduct)
    assert schedule.warp == gpu.warp
    kernels = kernels_of(chip)
    text = kernels.text([kernels.legal(lower_groups(kernel, schedule))], gpu.limits)
    code = assembly(text, kernels.machine)
    assert taken(code, ".private_segment_fixed_size") == taken(code, ".vgpr_spill_count") == 0
    assert gpu.warp == 32 or taken(code, ".agpr_count") == 0
    anchor = kernel.group.anchor
    found = None if anchor is None else find_contraction(anchor)
    assert found is not None
    dtype = found.left.value.dtype
    shared = taken(code, ".group_segment_fixed_size")
    assert shared == tensor_bytes(schedule, found, dtype)
    planned = gpu.groups_at_once(schedule.threads, tensor_registers(schedule, dtype, found), shared)
    assert gpu.groups_at_once(schedule.threads, taken(code, ".vgpr_count"), shared) >= planned > 0
    return schedule, code


def inner_loop(code: str) -> Counter[str]:
    """The one with the most products."""
    return max(loops_of(code), key=products_in)


SHAPES = {
    "square": product(4096, 4096, 4096, "bf16", True),
    "of columns": product(4096, 4096, 4096, "bf16"),
    "few rows": product(128, 768, 3072, "f16", True),
    "odd": product(1000, 50257, 768, "f16", True),
    "odd terms": product(4096, 4096, 4095, "f16", True),
    "whole": product(4096, 4096, 4096, "f32"),
    "bytes": product(512, 512, 512, "i8", True),
}


@pytest.mark.parametrize("name", SHAPES)
def test_matrix_cores_have_what_is_planned(name: str) -> None:
    schedule, code = code_as_planned(SHAPES[name], "gfx942")
    loop = inner_loop(code)
    depth = {"bytes": 32, "whole": 4}.get(name, 16)
    waves = schedule.warp_rows * schedule.warp_columns
    whole = schedule.rows * schedule.columns * schedule.terms
    assert products_in(loop) == whole // (16 * 16 * depth * waves)
    assert loop["ds_read2_b64"] + loop["ds_read_b128"] > 0
    assert not loop["v_accvgpr_mov_b32"] + loop["v_accvgpr_write_b32"] + loop["scratch_load_dword"]
    assert not [word for word in loop if word.startswith(("ds_read_u", "ds_read_i"))]
    assert not [word for word in loop if word.startswith("ds_write_b8")]


WMMA = {
    **{name: p for name, p in SHAPES.items() if name not in ("whole", "square", "of columns")},
    "square": product(4096, 4096, 4096, "f16", True),
    "of columns": product(4096, 4096, 4096, "bf16"),
    "few columns": product(4096, 256, 512, "f16"),
    "few bytes": product(64, 64, 4096, "i8", True),
}


@pytest.mark.parametrize("chip", WMMA_CYCLES)
@pytest.mark.parametrize("name", WMMA)
def test_waves_of_32_threads_have_what_is_planned(name: str, chip: str) -> None:
    schedule, code = code_as_planned(WMMA[name], chip)
    loop, waves = inner_loop(code), schedule.warp_rows * schedule.warp_columns
    assert products_in(loop) == schedule.rows * schedule.columns * schedule.terms // 16**3 // waves
    assert loop["ds_load_b128"]
    other = ("v_mov_b16", "scratch", "ds_load_u16", "ds_load_i8", "ds_load_u8", "ds_store_b8")
    assert not [word for word in loop if word.startswith(other)]


@pytest.mark.parametrize(("chip", "least"), [("gfx1100", 0.91), ("gfx1201", 0.88)])
def test_little_else_is_in_the_loop_of_waves_of_32_threads(chip: str, least: float) -> None:
    schedule, code = code_as_planned(WMMA["square"], chip)
    assert schedule.rows * schedule.columns >= 256 * 128
    loop = inner_loop(code)
    assert loop["v_wmma_f32_16x16x16_f16"] == products_in(loop) == 32
    assert matrix_part(loop, WMMA_CYCLES[chip], 1) >= least
    columns = inner_loop(code_as_planned(WMMA["of columns"], chip)[1])
    assert matrix_part(columns, WMMA_CYCLES[chip], 1) >= least - 0.12


def test_products_begin_before_all_operands_are_there() -> None:
    """Of a block's first fragments the next ones are still on their way while they are
    multiplied."""
    code = code_as_planned(WMMA["square"], "gfx1100")[1]
    body = code.split(".LBB0_1:")[1].split("s_cbranch")[0]
    first = body.split("v_wmma")[0].splitlines()
    counts = [int(line.split("lgkmcnt(")[1].split(")")[0]) for line in first if "lgkmcnt" in line]
    assert counts[-1] >= 4
    assert "s_waitcnt vmcnt" not in body.rsplit("v_wmma", 1)[0]


def test_a_large_product_of_f32_does_little_else() -> None:
    """An instruction has a fourth of the terms, and takes twice as long on gfx942."""
    loop = inner_loop(code_as_planned(SHAPES["whole"], "gfx942")[1])
    assert loop["v_mfma_f32_16x16x4_f32"] == products_in(loop) == 64
    assert matrix_part(loop, 2 * MFMA_CYCLES["gfx942"]) >= 0.88


@pytest.mark.parametrize(("chip", "least"), [("gfx90a", 0.85), ("gfx942", 0.8), ("gfx950", 0.65)])
def test_little_else_is_in_the_loop_of_a_large_product(chip: str, least: float) -> None:
    schedule, code = code_as_planned(SHAPES["square"], chip)
    assert schedule.rows * schedule.columns >= 256 * 128
    loop = inner_loop(code)
    assert products_in(loop) == 64
    assert (loop["v_mfma_f32_16x16x32_bf16"] == 64) == (chip == "gfx950")
    assert loop["s_barrier"] == (2 if schedule.buffers == 1 else 1)
    assert matrix_part(loop, MFMA_CYCLES[chip]) >= least


def test_what_comes_from_memory_is_waited_for_behind_the_products() -> None:
    """Loads of the next block stand before the barrier, and what they bring is written behind."""
    code = code_as_planned(SHAPES["square"], "gfx942")[1]
    lines = code.split(".LBB0_1:")[1].split("s_cbranch")[0].splitlines()
    words = [line.split()[0] for line in lines if line.strip()]
    waits = [n for n, line in enumerate(lines) if "vmcnt(" in line]
    barriers = [n for n, line in enumerate(lines) if "s_barrier" in line]
    assert words.count("global_load_dwordx4") >= 4
    assert min(waits) > max(barriers)


PADDED = "%x[n, h + a - 1, w + b - 1, c] if [h + a >= 1, h + a < 57, w + b >= 1, w + b < 57]"


def test_images_are_read_in_vectors() -> None:
    inputs = "%x: f16[2, 56, 56, 64], %w: f16[3, 3, 64, 64]"
    text = f"""program @p({inputs}) -> (%y) {{
      kernel @k({inputs}) -> (%y: f16[2, 56, 56, 64]) {{
        %p: f32[2, 56, 56, 64] = [n < 2, h < 56, w < 56, o < 64] sum[a < 3, b < 3, c < 64]
          f32(({PADDED} else 0.0:f16)) * f32(%w[a, b, c, o])
        %y: f16[2, 56, 56, 64] = [n < 2, h < 56, w < 56, o < 64] f16(max(%p[n, h, w, o], 0.0))
      }} }}"""
    code = code_as_planned(parse_tensor_program(text, {}), "gfx942")[1]
    loop = inner_loop(code)
    assert products_in(loop)
    assert loop["global_load_dwordx4"]
    assert not loop["global_load_ushort"]
