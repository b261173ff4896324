"""Kernels as SPIR-V are what its validator takes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from group_kernels import FIRST, grouped

from modelcc.ir.errors import ModelError
from modelcc.ir.op import Op, Sample
from modelcc.targets.gpu.machine import PROCESSOR
from modelcc.targets.opencl.spirv import spirv_module


@pytest.mark.skipif(not shutil.which("spirv-val"), reason="there is no spirv-val here")
@pytest.mark.share(24, "op")
@pytest.mark.parametrize(("op", "sample"), FIRST)
def test_every_op_is_valid(op: Op, sample: Sample, tmp_path: Path) -> None:
    try:
        functions = grouped(op, sample).functions
    except ModelError as error:
        assert "no schedule for Scatter" in str(error)
        return
    if functions:
        path = tmp_path / "kernels.spv"
        path.write_bytes(spirv_module(functions, PROCESSOR.limits))
        command = ["spirv-val", "--target-env", "opencl2.2", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
