"""Views of one element more or less, and those that are read as they are."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir.tensor import View
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.passes.tensor.read_through_views import ReadThroughViews

TEXT = """program @main(%x: f32[{base}]) -> (%y{outputs}) dims(n in 1:) {{
  view %u: f32[{between}] = %x
  view %v: f32[{shape}] = %u
  kernel @Neg(%v: f32[{shape}]) -> (%y: f32[{shape}]) {{
    %y: f32[{shape}] = [{axes}] -%v[{indices}]
  }}
}}"""


@pytest.mark.parametrize(
    ("base", "between", "shape", "outputs", "views"),
    [
        ("n, 4", "1, n, 4", "n, 1, 4, 1", "", 0),
        ("1, n, 1, n", "n, n", "n, 1, n", "", 0),
        ("1, 1", "1", "1, 1, 1", "", 0),
        ("n, 4", "1, n, 4", "n, 1, 4", ", %u", 1),
        ("n, 4", "1, n, 4", "4 * n", "", 2),
        ("n, 4", "n, 2, 2", "n, 1, 2, 2", "", 1),
        ("4, 2", "2, 4", "4, 2", "", 2),
    ],
)
def test_axes_of_one_element_are_no_views(
    base: str, between: str, shape: str, outputs: str, views: int
) -> None:
    extents = shape.split(", ")
    axes = ", ".join(f"i{k} < {extent}" for k, extent in enumerate(extents))
    indices = ", ".join(f"i{k}" for k in range(len(extents)))
    text = TEXT.format(
        base=base, between=between, shape=shape, outputs=outputs, axes=axes, indices=indices
    )
    before = parse_tensor_program(text, {})
    after = ReadThroughViews()(before)
    verify_tensor_program(after)
    assert sum(isinstance(item, View) for item in after.items) == views
    sizes = [3 if extent == "n" else int(extent) for extent in base.split(", ")]
    x = np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
    wanted, found = (run_program(p, {"x": x}, {"n": 3}) for p in (before, after))
    for name in before.outputs:
        np.testing.assert_array_equal(found[name], wanted[name])


def test_reductions_read_rows_of_views() -> None:
    """And what goes on with these rows reads the same tensor."""
    text = """program @main(%x: f32[n, 4, 1, 1]) -> (%y) dims(n in 1:) {
      view %v: f32[n, 4] = %x
      kernel @Sum(%v: f32[n, 4]) -> (%s: f32[n]) {
        %s: f32[n] = [i < n] sum[j < 4] %v[i, j]
      }
      kernel @Div(%v: f32[n, 4], %s: f32[n]) -> (%y: f32[n, 4]) {
        %y: f32[n, 4] = [i < n, j < 4] %v[i, j] / %s[i]
      }
    }"""
    program = parse_tensor_program(text, {})
    assert ReadThroughViews()(program) == program
