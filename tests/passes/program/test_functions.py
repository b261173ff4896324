"""Functions that steps launch: what they rely on of the caller's memory."""

from __future__ import annotations

import pytest

from modelcc.ir.loop_parser import parse_function
from modelcc.ir.program import Launch
from modelcc.passes.program.functions import unique_functions

BODIES = {
    "for i in 0 .. 4 { store %y[i] = load %x[i] }": [4, 64],
    "grid g in 0 .. 4 { thread t in 0 .. 1 { store %y[g] = load %x[g] } }": [64, 64],
}


@pytest.mark.parametrize("body", BODIES, ids=["processor", "groups"])
def test_the_callers_tensors_are_aligned_where_a_device_has_them(body: str) -> None:
    function = parse_function(f"func @f(%x: f32[4], %y: mut f32[4]) {{ {body} }}")
    launch = Launch("f", ("input", "own"), ())
    (found,) = unique_functions([(launch, function)], {"input"}).functions
    assert [p.buffer.align for p in found.parameters] == BODIES[body]
