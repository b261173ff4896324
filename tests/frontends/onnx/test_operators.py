"""Operators that no operator set of the model has: what onnxruntime takes, modelcc takes."""

from __future__ import annotations

import logging

import onnx
import pytest

from modelcc.frontends.onnx import UnsupportedModel, import_onnx
from modelcc.frontends.onnx.unofficial import UNOFFICIAL
from tests.frontends.onnx.onnx_models import assert_agrees, floats, parsed

LENIENT = (
    (11, "LayerNormalization <axis = -1> (x, w, b)"),
    (5, "LayerNormalization (x, w)"),
    (17, "SimplifiedLayerNormalization <axis = -1> (x, w)"),
    *((v, "GroupNormalization <num_groups = 2> (x, h, h)") for v in (18, 20)),
    (7, "ThresholdedRelu <alpha = 0.5> (x)"),
    (7, "MeanVarianceNormalization (x)"),
    (8, "MeanVarianceNormalization <across_channels = 1> (x)"),
    (8, "MeanVarianceNormalization <normalize_variance = 0> (x)"),
    (9, "Affine <alpha = 2.0, beta = 1.0> (x)"),
    (9, "ImageScaler <scale = 2.0, bias = [0.1, 0.2, 0.3, 0.4]> (x)"),
    (9, "ParametricSoftplus <alpha = 2.0, beta = 1.5> (x)"),
    (9, "ScaledTanh <alpha = 2.0, beta = 0.5> (x)"),
    (9, "Crop <border = [0, 1, 2, 0]> (x)"),
    (9, "Crop <border = [1, 1, 0, 0], scale = [2, 2]> (x)"),
    (17, "com.microsoft.Gelu (x)"),
    (12, "com.microsoft.SkipLayerNormalization (x3, x3, w, b)"),
    (17, "ai.onnx.ml.Binarizer <threshold = 0.3> (x)"),
)


@pytest.mark.parametrize(("opset", "node"), LENIENT)
def test_what_onnxruntime_takes(opset: int, node: str) -> None:
    rank = 3 if "x3" in node else 4
    result = f"float[{', '.join('abcd'[:rank])}]"
    body = "g (float[1,4,3,4] x, float[3,3,4] x3, float[4] w, float[4] b, float[2] h)"
    model = parsed(f"{body} => ({result} y) {{ y = {node} }}", opset)
    names = {"x": floats(1, 4, 3, 4), "x3": floats(3, 3, 4), "w": floats(4, seed=1)}
    feeds = {**names, "b": floats(4, seed=2), "h": floats(2, seed=3)}
    assert_agrees(model, feeds, rtol=1e-4)


def test_each_of_them_is_tried() -> None:
    assert set(UNOFFICIAL) <= {node.split()[0] for _, node in LENIENT}


def test_a_set_that_is_not_imported_is_told(caplog: pytest.LogCaptureFixture) -> None:
    model = parsed("g (float[4] x) => (float[4] y) { a = com.microsoft.Gelu(x) "
                   "y = com.microsoft.QuickGelu(a) }")  # fmt: skip
    with caplog.at_level(logging.INFO, logger="modelcc"):
        import_onnx(model)
    assert [r.getMessage() for r in caplog.records] == [
        "the model does not import com.microsoft; taken to be of version 1"
    ]


def test_the_standard_domain_itself_may_be_missing() -> None:
    model = parsed("g (float[4] x) => (float[4] y) { y = Neg(x) }")
    del model.opset_import[:]
    model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 3))
    assert_agrees(model, {"x": floats(4)})


NESTED = """
<ir_version: 8, opset_import: ["" : 17, "mine" : 1, "org.a" : 1]>
g (bool c, float[4] x) => (float[4] y) {
  a = org.a.First(x)
  b = org.b.Second(a)
  d = mine.f(b)
  y = If(c) <then_branch = t () => (float[4] u) { u = org.a.Third(d) },
             else_branch = e () => (float[4] v) {
               w = NoSuch(d)
               v = If(c) <then_branch = i () => (float[4] p) { p = org.c.Fifth(x) },
                          else_branch = j () => (float[4] q) { q = Relu(w) }>
             }>
}
<domain: "mine", opset_import: ["" : 17]>
f (p) => (q) { r = org.a.Fourth(p) q = Relu(r) }
"""


def test_every_unknown_operator_is_named_at_once() -> None:
    with pytest.raises(UnsupportedModel) as caught:
        import_onnx(onnx.parser.parse_model(NESTED))
    found = {n.node: n.operator for n in caught.value.nodes}
    assert found == {
        "First#0": "org.a.First",
        "Second#1": "org.b.Second",
        "f#2/Fourth#0": "org.a.Fourth",
        "If#3/Third#0": "org.a.Third",
        "If#3/NoSuch#0": "ai.onnx.NoSuch",
        "If#3/If#1/Fifth#0": "org.c.Fifth",
    }
    assert len(caught.value.nodes) == len(found)


def test_what_another_branch_could_not_convert_is_named_once() -> None:
    model = parsed("""
    g (bool c, float[4] x) => (float[4] y) {
      y = If(c) <then_branch = t () => (float[4] u) { u = Nothing(x) },
                 else_branch = e () => (float[4] v) { v = Naught(x) }>
    }""")
    with pytest.raises(UnsupportedModel) as caught:
        import_onnx(model)
    names = [n.node for n in caught.value.nodes]
    assert sorted(names) == ["If#0", "If#0/Naught#0", "If#0/Nothing#0"]


def test_operands_that_do_not_fit_are_refused() -> None:
    for node in ("Crop <border = [1, 2]> (x)", "ImageScaler <bias = [1.0]> (x)"):
        with pytest.raises(Exception, match=r"no left, top|1 numbers for 4 channels"):
            import_onnx(parsed(f"g (float[1,4,3,4] x) => (float y) {{ y = {node} }}", 9))
