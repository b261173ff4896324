"""Kernels for AMD's GPUs are compiled and linked, without a GPU."""

from __future__ import annotations

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
from modelcc.targets.gpu.machine import GPUS
from modelcc.targets.native.toolchain import assembly


@pytest.mark.skipif(not HAS_LINKER, reason="there is no lld here")
@pytest.mark.share(24, "op")
@pytest.mark.parametrize(("op", "sample"), FIRST)
def test_every_op_becomes_a_code_object(op: Op, sample: Sample) -> None:
    try:
        functions = grouped(op, sample, machine=CHIPS["gfx942"]).functions
    except ModelError as error:
        assert "no schedule for Scatter" in str(error)
        return
    kernels = kernels_of("gfx942")
    text = kernels.text([kernels.legal(f) for f in functions], GPUS["mi300"].limits)
    assert code_object(text, "gfx942").startswith(b"\x7fELF") if functions else not functions
    if "addrspace(3)" in text:
        words = assembly(text, kernels.machine)
        assert "ds_write" in words
        assert ("s_barrier" in words) == any(map(_takes_waves, functions))
        assert ".vgpr_spill_count: 0" in words


def _takes_waves(function: Function) -> bool:
    """Whether a group is more than one wave of 64 threads, which are in step by themselves."""
    threads = [n for n in launch_extents(function)[1] if isinstance(n, int)]
    shares = any(isinstance(s, Barrier) for s in statements(function.body))
    return shares and prod(threads) > GPUS["mi300"].warp


def test_architectures_have_names() -> None:
    assert amdgpu_target(TargetOptions()).chip == "gfx942"
    with pytest.raises(ModelError, match="'gfx1' is no architecture") as caught:
        amdgpu_target(TargetOptions(variant="gfx1"))
    assert all(name in str(caught.value.hint) for name in CHIPS)
