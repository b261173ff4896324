"""Kernels of two products of one operand as machine code, without a GPU: by the loop of one product
of twice as many columns, no spills, as many groups at once as planned."""

from __future__ import annotations

import pytest
from cuda_products import code_as_planned, product
from gate_kernels import gate, rounded
from group_products import program_of
from machine_code import instructions_of, loops_of, matrix_part

from modelcc.targets.cuda.chips import find_chip
from modelcc.targets.cuda.tools import find_tool

pytestmark = [
    pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here"),
    pytest.mark.skipif(find_tool("nvdisasm") is None, reason="there is no nvdisasm"),
]
BOXES, COPIES = find_chip("sm_90a"), find_chip("sm_80")


@pytest.mark.parametrize(("dtype", "turned"), [("f16", False), ("bf16", False), ("f16", True)])
def test_tiles_of_boxes_have_both(dtype: str, turned: bool) -> None:
    kernel = gate(dtype, "512", 1024, 2816, turned)
    schedule, code = code_as_planned(program_of(kernel, {}), BOXES)
    assert f"HGMMA.64x{schedule.columns}x16.F32" in code
    assert any(name.startswith("UTMALDG") for name in instructions_of(code))
    loop = max(loops_of(code), key=lambda counts: counts["HGMMA"] / counts.total())
    assert loop["HGMMA"] == 4 * schedule.buffers == 4 * loop["BAR"]
    assert matrix_part(loop, schedule.columns) >= 0.85


def test_groups_of_several_tiles_have_both() -> None:
    kernel = rounded(gate("bf16", "16384", 1024, 2816), "bf16")
    schedule, code = code_as_planned(program_of(kernel, {}), BOXES)
    assert schedule.groups == BOXES.gpu.units
    assert any(loop["HGMMA"] == 4 and loop["BAR"] == 1 for loop in loops_of(code))


@pytest.mark.parametrize("rows", ["512", "16384"])
def test_fragments_of_warps_are_of_both(rows: str) -> None:
    """Nothing more is in the loop than a product of as many columns has."""
    schedule, code = code_as_planned(program_of(gate("f16", rows, 1024, 2816), {}), COPIES)
    loop = max(loops_of(code), key=lambda counts: counts["HMMA"])
    assert loop["LDGSTS"] and loop["LDSM"] and loop["BAR"] == 1
    _, whole = code_as_planned(product(4096, 4096, 4096, "f16"), COPIES)
    plain = max(loops_of(whole), key=lambda counts: counts["HMMA"])
    assert matrix_part(loop) >= matrix_part(plain) - 0.02
    assert schedule.columns >= 128
