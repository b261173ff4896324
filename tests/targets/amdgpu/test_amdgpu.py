"""Kernels for AMD's GPUs are compiled and linked, without a GPU."""

from __future__ import annotations

import re
from math import prod

import pytest
from amd_code import HAS_LINKER
from group_kernels import FIRST, grouped

from modelcc.ir.errors import ModelError
from modelcc.ir.loop import Barrier, Function
from modelcc.ir.loop_traversal import launch_extents, statements
from modelcc.ir.op import Op, Sample
from modelcc.targets.amdgpu.chips import CHIPS
from modelcc.targets.amdgpu.target import amdgpu_target, code_object, kernels_of
from modelcc.targets.base import TargetOptions
from modelcc.targets.native.toolchain import assembly


@pytest.mark.skipif(not HAS_LINKER, reason="there is no lld here")
@pytest.mark.share(24, "op", "chip")
@pytest.mark.parametrize("chip", ["gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize(("op", "sample"), FIRST)
def test_every_op_becomes_a_code_object(op: Op, sample: Sample, chip: str) -> None:
    """For waves of as many threads as are scheduled, with nothing in memory but what is there."""
    gpu = CHIPS[chip]
    try:
        functions = grouped(op, sample, machine=gpu).functions
    except ModelError as error:
        assert "no schedule for Scatter" in str(error)
        return
    if not functions:
        return
    kernels = kernels_of(chip)
    text = kernels.text([kernels.legal(f) for f in functions], gpu.limits)
    assert code_object(text, chip).startswith(b"\x7fELF")
    words = assembly(text, kernels.machine)
    numbers = dict.fromkeys(re.findall(r"\.(?:vgpr_spill_count|wavefront_size): +\d+", words))
    assert [*numbers] == [".vgpr_spill_count: 0", f".wavefront_size: {gpu.warp}"]
    assert ".amdhsa_code_object_version 5" in words
    assert "hidden_" not in words, "arguments that nobody reads"
    if "addrspace(3)" in text:
        assert "ds_write" in words or "ds_store" in words
        assert ("s_barrier" in words) == any(_takes_waves(f, gpu.warp) for f in functions)


def _takes_waves(function: Function, wave: int) -> bool:
    """Whether a group is more than one wave of threads, which are in step by themselves."""
    threads = [n for n in launch_extents(function)[1] if isinstance(n, int)]
    shares = any(isinstance(s, Barrier) for s in statements(function.body))
    return shares and prod(threads) > wave


def test_architectures_have_names() -> None:
    assert amdgpu_target(TargetOptions()).chip == "gfx942"
    with pytest.raises(ModelError, match="'gfx1' is no architecture") as caught:
        amdgpu_target(TargetOptions(variant="gfx1"))
    assert all(name in str(caught.value.hint) for name in CHIPS)
