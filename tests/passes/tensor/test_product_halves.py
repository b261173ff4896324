"""Which parts of a product others read, and the products of these parts."""

from __future__ import annotations

import pytest

from modelcc.ir.tensor import Kernel, Stage
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.passes.tensor.product_halves import Half, product_halves, stages_of_halves

PRODUCT = "sum[k < 8] %x[i, k] * %w[k, j]"
AFTER = "%p[i, j] + %b[j]"


def both(read: str, after: str = AFTER) -> tuple[tuple[Stage, ...], tuple[Stage, ...]]:
    """The stages of a product, and of what reads it, of six columns."""
    inputs = "%x: f32[n, 8], %w: f32[8, 14], %b: f32[14]"
    program = parse_tensor_program(
        f"""program @p({inputs}) -> (%y) dims(n in 1:) {{
          kernel @k({inputs}) -> (%h: f32[n, 14]) {{
            %p: f32[n, 14] = [i < n, j < 14] {PRODUCT}
            %h: f32[n, 14] = [i < n, j < 14] {after} }}
          kernel @l(%h: f32[n, 14]) -> (%y: f32[n, 6]) {{
            %y: f32[n, 6] = [a < n, c < 6] {read} }} }}""",
        {},
    )
    first, second = (item for item in program.items if isinstance(item, Kernel))
    return first.stages, second.stages


NAMES = tuple({"p": f"p{n}", "h": f"h{n}"} for n in range(2))


def test_parts_have_products_of_their_own() -> None:
    product, later = both("%h[a, c + 8] * exp(%h[a, c + 8]) - %h[a, c + 1]")
    halves = product_halves(product, later)
    assert halves is not None
    assert halves == (Half(1, 1, 6), Half(1, 8, 6))
    stages = stages_of_halves(product, later, halves, NAMES)
    assert stages is not None
    assert [stage.output for stage in stages] == ["p0", "p1", "h0", "h1", "y"]
    assert [str(stage.axes[-1].extent) for stage in stages] == ["6"] * 5


@pytest.mark.parametrize("read", ["%h[a, c]", "%h[a, 2*c] * %h[a, c]", "%h[0, c] * %h[a, c + 7]"])
def test_others_are_none(read: str) -> None:
    assert product_halves(*both(read)) is None


def test_columns_that_meet_stay_together() -> None:
    product, later = both("%h[a, c] * %h[a, c + 7]", "%p[i, j] + %p[i, 0]")
    halves = product_halves(product, later)
    assert halves is not None
    assert stages_of_halves(product, later, halves, NAMES) is None
