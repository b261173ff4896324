"""Every op at several sizes with the same functions, and with constants as operands."""

from __future__ import annotations

import pytest
from kernel_runs import interpreted, native
from op_kernels import (
    NATIVE_FAILURES,
    OTHER_SIZES,
    check,
    expecting,
    makes_sense,
    scheduled,
    with_sizes,
)

from modelcc.ir.op import Op, Sample
from modelcc.ops.samples import arrays, sizes

CASES = expecting(NATIVE_FAILURES)
SEVERAL_OPERANDS = [case for case in CASES if len(case.values[1].operands) > 1]
SYMBOLIC = [case for case in CASES if sizes(*case.values)]


@pytest.mark.parametrize(("op", "sample"), SYMBOLIC)
def test_one_function_serves_all_sizes(op: Op, sample: Sample) -> None:
    program = scheduled(op, sample)
    executors = [interpreted(program), native(program)]
    tried = 0
    for numbers in OTHER_SIZES:
        env = dict(zip(sizes(op, sample), numbers, strict=False))
        if makes_sense(op, sample, env):
            for execute in executors:
                check(op, program, execute, arrays(op, with_sizes(sample, env)), env)
            tried += 1
    assert tried, "no other sizes suit this sample"


@pytest.mark.parametrize(("op", "sample"), SEVERAL_OPERANDS)
def test_constant_operands(op: Op, sample: Sample) -> None:
    program = scheduled(op, sample, constant=True)
    for executor in (interpreted, native):
        check(op, program, executor(program), arrays(op, sample), sizes(op, sample))
