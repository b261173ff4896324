"""Every op on every one of its samples as scheduled loops, interpreted and as machine code."""

from __future__ import annotations

import pytest
from kernel_runs import interpreted, native
from op_kernels import FAILURES, check, expecting, other_sizes, scheduled, with_sizes

from modelcc.ir.op import Op, Sample
from modelcc.ops.samples import arrays, sizes

CASES = expecting(FAILURES)
SEVERAL_OPERANDS = expecting(FAILURES, lambda op, sample: len(sample.operands) > 1)


@pytest.mark.share(3, "sample")
@pytest.mark.parametrize(("op", "sample"), CASES)
def test_loops_and_machine_code_agree_with_the_reference(op: Op, sample: Sample) -> None:
    """The same functions at all sizes of the sample's named dimensions."""
    program = scheduled(op, sample)
    runs = interpreted(program), native(program)
    for env in (sizes(op, sample), *other_sizes(op, sample)):
        operands = arrays(op, with_sizes(sample, env))
        for run in runs:
            check(op, program, run, operands, env)


@pytest.mark.share(3, "sample")
@pytest.mark.parametrize(("op", "sample"), SEVERAL_OPERANDS)
def test_constant_operands(op: Op, sample: Sample) -> None:
    program = scheduled(op, sample, constant=True)
    for executor in (interpreted, native):
        check(op, program, executor(program), arrays(op, sample), sizes(op, sample))
