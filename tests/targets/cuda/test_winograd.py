"""Transforms of Winograd's algorithms as machine code: tiles in registers, moved by vectors."""

from __future__ import annotations

import re

import pytest
from kernel_runs import run_scheduled
from ptx_emulator.kernels import emulated
from winograd_layers import BOUNDS, Always, Layer, assert_near, images_of
from winograd_layers import LAYERS as SMALL

from modelcc.ir.loop import Function
from modelcc.targets.cuda.chips import Chip, find_chip
from modelcc.targets.cuda.cubin import compiled_kernels
from modelcc.targets.cuda.text import llvm_text, ptx_text
from modelcc.targets.cuda.tools import assemble, disassemble, find_tool
from modelcc.targets.gpu.kernel_uses import kernel_use
from modelcc.targets.gpu.passes.winograd import GroupWinograd
from modelcc.targets.gpu.schedule import schedule_groups

pytest.importorskip("modelcc.runtime.streams.cuda_device")

assembling = pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")

LAYERS = {
    "whole tiles": Layer((56, 56), 64, 64, images="32"),
    "edges": Layer((14, 14), 256, 256, images="32"),
    "named images": Layer((14, 14), 64, 64),
    "few channels": Layer((9, 9), 6, 10, images="4"),
}


def functions_of(layer: Layer, m: int, chip: Chip) -> tuple[Function, ...]:
    made = schedule_groups(GroupWinograd(Always(chip.gpu, m=m))(layer.program), None, chip.gpu)
    return made.functions


@assembling
@pytest.mark.parametrize("layer", LAYERS.values(), ids=list(LAYERS))
@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize("name", ["sm_80", "sm_90a"])
def test_tiles_are_in_registers(name: str, m: int, layer: Layer) -> None:
    """As many groups are on a unit as are planned; nothing spills."""
    chip = find_chip(name)
    functions = functions_of(layer, m, chip)
    code = assemble(ptx_text(llvm_text(functions, chip), chip), chip).code
    taken = compiled_kernels(code)
    for function in functions:
        use = kernel_use(function, chip.gpu, taken[function.name])
        assert use.local == 0
        assert use.occupancy is not None and use.occupancy >= use.planned > 0


@pytest.mark.skipif(find_tool("nvdisasm") is None, reason="there is no nvdisasm here")
@assembling
def test_all_of_a_tile_is_on_its_way_before_it_is_used() -> None:
    """By vectors of two channels; borders are conditions of loads, no branches."""
    chip = find_chip("sm_90a")
    first, *_ = functions_of(LAYERS["whole tiles"], 4, chip)
    code = assemble(ptx_text(llvm_text((first,), chip), chip), chip).code
    lines = re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\d+ )?(\S+)", disassemble(code), re.M)
    loads = [n for n, word in enumerate(lines) if word.startswith("LDG.E.64")]
    sums = [n for n, word in enumerate(lines) if word.startswith(("FFMA", "FADD", "FMUL"))]
    assert len(loads) == 36 == sum(word.startswith("STG.E.64") for word in lines)
    assert max(loads) < min(sums)
    assert not any(word.startswith(("LDL", "STL")) for word in lines)


@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize("layer", SMALL.values(), ids=list(SMALL))
def test_threads_compute_what_convolutions_mean(layer: Layer, m: int) -> None:
    """As PTX, on an emulated GPU."""
    chip = find_chip("sm_80")
    program = schedule_groups(GroupWinograd(Always(chip.gpu, m=m))(layer.program), None, chip.gpu)
    tensors = layer.tensors(images_of(layer))
    found = run_scheduled(program, emulated(program, chip), tensors, {"n": images_of(layer)})
    for name, wanted in layer.expected(tensors).items():
        assert_near(found[name], wanted, BOUNDS[m])
