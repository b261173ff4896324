"""Which stages are two products of one operand and what follows both, and on which axes."""

from __future__ import annotations

import pytest

from modelcc.ir.tensor import Apply, Kernel, Stage
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.passes.tensor.twin_products import twin_stages


def stages(first: str, second: str, last: str) -> tuple[Stage, ...]:
    inputs = "%x: f32[n, 8], %g: f32[8, 6], %u: f32[8, 6]"
    program = parse_tensor_program(
        f"""program @p({inputs}) -> (%y) dims(n in 1:) {{
          kernel @k({inputs}) -> (%y: f32[n, 6]) {{
            %p: f32[n, 6] = [i < n, j < 6] {first}
            %q: f32[n, 6] = [r < n, c < 6] {second}
            %y: f32[n, 6] = [a < n, b < 6] {last} }} }}""",
        {},
    )
    (kernel,) = program.items
    assert isinstance(kernel, Kernel)
    return kernel.stages


FIRST = "sum[k < 8] %x[i, k] * %g[k, j]"
SECOND = "sum[t < 8] %u[t, c] * %x[r, t]"


def test_all_are_on_the_axes_of_the_first() -> None:
    found = twin_stages(stages(FIRST, SECOND, "%p[a, b] * %q[a, b]"))
    assert found is not None
    assert {stage.axes for stage in found} == {found[0].axes}
    assert {stage.reduce for stage in found[:2]} == {found[0].reduce}
    one, other = (stage.body for stage in found[:2])
    assert isinstance(one, Apply)
    assert isinstance(other, Apply)
    assert one.args[0] == other.args[1]


@pytest.mark.parametrize(
    ("first", "second", "last"),
    [
        (FIRST, SECOND.replace("%x[r, t]", "max(%x[r, t], 0.0)"), "%p[a, b] * %q[a, b]"),
        (FIRST, SECOND.replace("t < 8", "t < 7"), "%p[a, b] * %q[a, b]"),
        (FIRST, "max[t < 8] %u[t, c] * %x[r, t]", "%p[a, b] * %q[a, b]"),
        (FIRST, "sum[t < 6] %p[r, t] * %u[t, c]", "%p[a, b] * %q[a, b]"),
        (FIRST, SECOND, "%p[a, b] * %q[a, (b + 1) mod 6]"),
        (FIRST, "%x[r, c] * 2.0", "%p[a, b] * %q[a, b]"),
    ],
)
def test_others_are_none(first: str, second: str, last: str) -> None:
    assert twin_stages(stages(first, second, last)) is None
