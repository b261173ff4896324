"""Products of tiles on sm_90a: what LLVM and ptxas make of them, without a GPU."""

from __future__ import annotations

import json
import re

import pytest
from tile_kernels import product

from modelcc.ir.errors import ModelError
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.types import BF16, F16
from modelcc.targets.cuda.chips import find_chip
from modelcc.targets.cuda.text import llvm_text, ptx_text
from modelcc.targets.cuda.tools import assemble, disassemble, find_tool

assembling = pytest.mark.skipif(
    find_tool("ptxas") is None or find_tool("nvdisasm") is None,
    reason="there is no ptxas or nvdisasm here",
)


@assembling
def test_tensor_cores_multiply_what_was_copied_as_boxes() -> None:
    """Products follow each other: if ptxas cannot leave sums alone, it waits for each of them."""
    chip = find_chip("sm_90a")
    made = assemble(ptx_text(llvm_text([product(BF16, (True, True))], chip), chip), chip)
    assert made.uses["product"].spilled == 0
    code = disassemble(made.code)
    assert code.count("HGMMA.64x64x16.F32.BF16 R") == 4
    assert code.count("WARPGROUP.DEPBAR") == 2
    waited = "SYNCS.ARRIVE.TRANS64", "SYNCS.PHASECHK.TRANS64.TRYWAIT"
    for part in ("tnspA", "tnspB", "UTMALDG.2D", *waited):
        assert part in code, part


def test_what_is_to_be_mapped_stands_beside_the_kernel() -> None:
    text = llvm_text([product(F16)], find_chip("sm_90a"))
    told = re.search(r'@product_maps = addrspace\(1\) constant \[\d+ x i8\] c"(.*)"', text)
    assert told is not None
    data = json.loads(bytes.fromhex(told[1].replace("\\", "")))
    assert data["maps"][0] == [0, "f16", "0", ["56", "160"], ["160", "1"], [64, 64]]
    assert data["sizes"] == []
    count = text.count('byval([128 x i8]) align 64 "nvvm.grid_constant"')
    assert count == len(data["maps"]) == 2


@assembling
def test_other_architectures_have_no_such_products() -> None:
    chip = find_chip("sm_80")
    with pytest.raises(NotImplementedError, match="no instruction for 'run @clear_sums_64"):
        llvm_text([product(F16)], chip)


def test_threads_that_are_no_warp_do_not_multiply() -> None:
    text = print_function(product(F16)).replace("thread lane in 0 .. 128", "thread lane in 0 .. 64")
    with pytest.raises(NotImplementedError, match="128 threads multiply tiles together"):
        llvm_text([parse_function(text)], find_chip("sm_90a"))


def test_tiles_begin_where_the_machine_can_copy_them() -> None:
    text = print_function(product(F16)).replace("%l: f16[8192] align 1024", "%l: f16[8192]")
    with pytest.raises(ModelError, match="to multiples of 1024 bytes"):
        llvm_text([parse_function(text)], find_chip("sm_90a"))
