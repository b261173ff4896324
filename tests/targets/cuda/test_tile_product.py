"""Products on sm_90a as machine code, without a GPU: HGMMA from what UTMALDG brings, no spills, as
many groups at once as planned, little else in the loop."""

from __future__ import annotations

import pytest
from cuda_products import code_as_planned, kernel_of, product
from machine_code import loops_of, matrix_part

from modelcc.ir.tensor import TensorProgram
from modelcc.schedule.group_schedule import TensorProduct
from modelcc.targets.cuda.chips import find_chip
from modelcc.targets.cuda.tools import find_tool
from modelcc.targets.gpu.lower import default_schedule

CHIP = find_chip("sm_90a")


@pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
@pytest.mark.skipif(find_tool("nvdisasm") is None, reason="there is no nvdisasm")
def test_tensor_cores_have_what_is_planned() -> None:
    schedule, code = code_as_planned(product(4096, 4096, 4096, "bf16"), CHIP)
    assert "HGMMA.64x256x16.F32.BF16 " in code
    assert "UTMALDG" in code
    loop = max(loops_of(code), key=lambda counts: counts["HGMMA"] / counts.total())
    assert loop["HGMMA"] == 4 * schedule.buffers == 4 * loop["BAR"]
    assert matrix_part(loop, schedule.columns) >= 0.9


@pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
@pytest.mark.skipif(find_tool("nvdisasm") is None, reason="there is no nvdisasm")
@pytest.mark.share(2, "dtype")
@pytest.mark.parametrize("dtype", ["f8e4m3fn", "f8e5m2"])
def test_floats_of_8_bits_are_multiplied_as_they_are(dtype: str) -> None:
    """And added up in f32: two blocks of products in turns, not one wait for each."""
    schedule, code = code_as_planned(product(4096, 4096, 4096, dtype, turned=True), CHIP)
    kind = dtype.removesuffix("fn")[2:].upper()
    assert f"QGMMA.64x128x32.F32.{kind}.{kind} " in code
    loop = max(loops_of(code), key=lambda counts: counts["QGMMA"] / counts.total())
    assert loop["QGMMA"] == 4 * schedule.buffers
    assert loop["FADD"] == schedule.buffers * schedule.columns // 2
    assert loop["WARPGROUP"] == 2 * schedule.buffers + 1  # each begins, and is waited for


@pytest.mark.parametrize(
    ("program", "instruction"),
    [(product(128, 256, 64, "f16"), "mma"), (product(4096, 4096, 4100, "f16"), "mma")],
    ids=["small", "rows on no boundaries"],
)
def test_other_products_are_those_of_warps(program: TensorProgram, instruction: str) -> None:
    schedule = default_schedule(kernel_of(program).kernel, CHIP.gpu)
    assert isinstance(schedule, TensorProduct)
    assert schedule.instruction == instruction
