"""What is computed where it is read, and what is stored first."""

from __future__ import annotations

import pytest

from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.passes.tensor.inline import InlineStages

GATED = """program @main(%x: f32[1, 8, 5, 5], %s: f32[1, 8]) -> (%y) {{
  kernel @Gate(%s: f32[1, 8]) -> (%g: f32[1, 8]) {{
    %g: f32[1, 8] = [n < 1, c < 8] {gate}
  }}
  kernel @Mul(%x: f32[1, 8, 5, 5], %g: f32[1, 8]) -> (%y: f32[1, 8, 5, 5]) {{
    %y: f32[1, 8, 5, 5] = [n < 1, c < 8, h < 5, w < 5] %x[n, c, h, w] * %g[n, c]
  }}
}}"""


@pytest.mark.parametrize(
    ("gate", "kernels"),
    [("sigmoid(%s[n, c])", 2), ("%s[n, c] + 1.0", 1)],
    ids=["dear, once per channel", "cheap"],
)
def test_dear_values_are_not_computed_for_every_pixel(gate: str, kernels: int) -> None:
    program = parse_tensor_program(GATED.format(gate=gate), {})
    assert len(InlineStages()(program).items) == kernels


def test_dear_values_are_computed_where_each_is_read_once() -> None:
    text = """program @main(%x: f32[4, 5]) -> (%y) {
      kernel @Tanh(%x: f32[4, 5]) -> (%t: f32[4, 5]) {
        %t: f32[4, 5] = [i < 4, j < 5] tanh(%x[i, j])
      }
      kernel @Add(%t: f32[4, 5]) -> (%y: f32[4, 5]) {
        %y: f32[4, 5] = [a < 4, b < 5] %t[a, b] + 1.0
      }
    }"""
    assert len(InlineStages()(parse_tensor_program(text, {})).items) == 1
