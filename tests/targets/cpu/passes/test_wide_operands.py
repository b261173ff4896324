"""Operands of bf16 that no instruction multiplies: which are kept in f32, and to the same end."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from modelcc.ir.constant import Constant
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.ir.types import BF16, F32
from modelcc.targets.cpu.passes.wide_operands import WideOperands


def convolution(channels: int) -> TensorProgram:
    """A rounded image, windows of it, and another reader."""
    x, w = f"[1, {channels}, 5]", f"[9, {channels}, 3]"
    axes = f"[n < 1, o < 9, h < 5] sum[c < {channels}, a < 3]"
    inside = "(%r[n, c, a + h - 1] if [a + h >= 1, a + h < 6] else 0.0:bf16)"
    weights = np.random.default_rng(0).standard_normal((9, channels, 3)).astype(ml_dtypes.bfloat16)
    return parse_tensor_program(
        f"""program @main(%x: f32{x}) -> (%y, %z) {{
          constant %w: bf16{w} = "w"
          kernel @Cast(%x: f32{x}) -> (%r: bf16{x}) {{
            %r: bf16{x} = [n < 1, c < {channels}, h < 5] bf16(%x[n, c, h])
          }}
          kernel @Conv(%r: bf16{x}, %w: bf16{w}) -> (%y: f32[1, 9, 5]) {{
            %y: f32[1, 9, 5] = {axes} f32({inside}) * f32(%w[o, c, a])
          }}
          kernel @Neg(%r: bf16{x}) -> (%z: bf16{x}) {{
            %z: bf16{x} = [n < 1, c < {channels}, h < 5] neg(%r[n, c, h])
          }}
        }}""",
        {"w": Constant(weights)},
    )


@pytest.mark.parametrize(
    ("channels", "whole", "reuse", "wide"),
    [(3, 16, 4, True), (16, 16, 4, False), (16, 0, 4, True), (3, 16, 8, False)],
)
def test_what_is_multiplied_as_it_is_stays(
    channels: int, whole: int, reuse: int, wide: bool
) -> None:
    given = convolution(channels)
    found = WideOperands(whole, reuse)(given)
    verify_tensor_program(found)
    assert found.types["r"].dtype == (F32 if wide else BF16)
    assert {c.type.dtype for c in found.constants.values()} == {F32 if wide else BF16}
    x = np.random.default_rng(1).standard_normal((1, channels, 5)).astype(np.float32)
    for name, wanted in run_program(given, {"x": x}, {}).items():
        np.testing.assert_array_equal(run_program(found, {"x": x}, {})[name], wanted)
