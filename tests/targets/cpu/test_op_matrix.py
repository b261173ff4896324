"""Every op on every one of its samples as scheduled loops, interpreted and as machine code."""

from __future__ import annotations

import pytest
from kernel_runs import interpreted, native
from op_kernels import LOOP_FAILURES, NATIVE_FAILURES, check, expecting, scheduled

from modelcc.ir.op import Op, Sample
from modelcc.ops.samples import arrays, sizes


@pytest.mark.parametrize(("op", "sample"), expecting(LOOP_FAILURES))
def test_loops_agree_with_the_reference(op: Op, sample: Sample) -> None:
    program = scheduled(op, sample)
    check(op, program, interpreted(program), arrays(op, sample), sizes(op, sample))


@pytest.mark.parametrize(("op", "sample"), expecting(NATIVE_FAILURES))
def test_machine_code_agrees_with_the_reference(op: Op, sample: Sample) -> None:
    program = scheduled(op, sample)
    check(op, program, native(program), arrays(op, sample), sizes(op, sample))
