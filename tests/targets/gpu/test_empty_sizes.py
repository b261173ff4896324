"""Named dimensions that are 0 and 1 in kernels of groups: every op, by the loop interpreter."""

from __future__ import annotations

import pytest
from kernel_runs import interpreted
from op_kernels import SAMPLES, check, makes_sense, with_sizes

from modelcc.ir.errors import ModelError
from modelcc.ir.op import Op, Sample
from modelcc.ops.samples import arrays, sizes
from modelcc.targets.gpu.machine import H100, PROCESSOR, GpuModel
from tests.group_kernels import grouped

UNDEFINED = ("ArgMax", "ArgMin", "ReduceMean")
"""What has no value where nothing is reduced."""

NAMED = [pytest.param(op, s, id=name) for name, op, s in SAMPLES if sizes(op, s)]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of means of nothing
@pytest.mark.share(8, "op")
@pytest.mark.parametrize("machine", [PROCESSOR, H100], ids=lambda m: m.name)
@pytest.mark.parametrize(("op", "sample"), NAMED)
def test_named_dimensions_may_be_0_and_1(op: Op, sample: Sample, machine: GpuModel) -> None:
    try:
        program = grouped(op, sample, machine=machine)
    except ModelError as error:
        pytest.skip(str(error))
    known, run = sizes(op, sample), interpreted(program)
    for size in range(int(type(op).__name__ in UNDEFINED), 2):
        for env in (*({**known, name: size} for name in known), dict.fromkeys(known, size)):
            if makes_sense(op, sample, env):
                check(op, program, run, arrays(op, with_sizes(sample, env)), env)
