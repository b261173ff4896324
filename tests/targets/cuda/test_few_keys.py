"""Attention to few keys is one kernel: a launch takes longer than what it does."""

from __future__ import annotations

import onnx.parser
import pytest

from modelcc.driver import NOWHERE, compile_model
from modelcc.options import Options
from modelcc.report.in_artifact import report_in

HEADS = """<ir_version: 11, opset_import: ["" : 22]>
g (float16[12, ROWS, 64] q, float16[12, KEYS, 64] k, float16[12, KEYS, 64] v)
  => (float16[12, ROWS, 64] y) {
  t = Transpose<perm = [0, 2, 1]>(k) s = MatMul(q, t) p = Softmax(s) y = MatMul(p, v)
}"""


@pytest.mark.parametrize("rows", [1, 64])
@pytest.mark.parametrize("keys", [3, 17, 200])
def test_attention_is_one_kernel(rows: int, keys: int) -> None:
    text = HEADS.replace("ROWS", str(rows)).replace("KEYS", str(keys))
    options = Options(target="cuda:sm_90a", cpu="x86-64-v3")
    report = report_in(compile_model(onnx.parser.parse_model(text), options, NOWHERE).artifact)
    assert report is not None
    assert len([k for k in report.kernels if not k.function.startswith("transfer")]) == 1
