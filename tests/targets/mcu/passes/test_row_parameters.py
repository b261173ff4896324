"""Numbers of a row lie side by side, and the same is computed."""

from __future__ import annotations

import numpy as np

from modelcc.ir.constant import Constant
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.ir.types import TensorType
from modelcc.targets.mcu.passes.row_parameters import RowParameters

TEXT = """
program @main(%x: i8[2, 3]) -> (%y) {
  constant %b: i32[4, 1] = "b"
  constant %m: i32[4] = "m"
  constant %w: i8[4, 3] = "w"
  kernel @Product(%x: i8[2, 3], %w: i8[4, 3], %b: i32[4, 1], %m: i32[4]) -> (%y: i32[2, 4]) {
    %s: i32[2, 4] = [p < 2, o < 4] sum[k < 3] i32(%x[p, k]) * i32(%w[o, k])
    %y: i32[2, 4] = [p < 2, o < 4] (%s[p, o] + %b[o, 0]) * %m[o]
  }
}
"""


def test_columns_are_the_constants() -> None:
    rng = np.random.default_rng(0)

    def resolve(_: str, type: TensorType) -> Constant:
        return Constant(rng.integers(-9, 9, type.static_shape()).astype(type.dtype.numpy))

    before = parse_tensor_program(TEXT, resolve)
    after = RowParameters()(before)
    verify_tensor_program(after)
    assert set(after.constants) == {"w", "b.rows"}
    columns = [before.constants[name].data.reshape(-1) for name in ("b", "m")]
    np.testing.assert_array_equal(after.constants["b.rows"].data, np.stack(columns, 1))
    feeds = {"x": rng.integers(-128, 128, (2, 3)).astype(np.int8)}
    (want,), (got,) = (run_program(p, feeds, {}).values() for p in (before, after))
    np.testing.assert_array_equal(got, want)
