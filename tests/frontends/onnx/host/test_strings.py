"""Texts through compiled code, as handles, against onnxruntime and ONNX's own cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, parser
from onnx.backend.test.case.test_case import TestCase

import modelcc
from modelcc.frontends.onnx import import_onnx
from modelcc.ir.errors import ModelError
from modelcc.ir.graph_parser import parse_graph
from modelcc.ir.graph_text import constants_by_digest, print_graph
from modelcc.ops.catalog import MCC
from modelcc.runtime.errors import InputError, RunError
from tests.frontends.onnx.ml_models import assert_compiled_agrees, ml_model
from tests.frontends.onnx.onnx_models import run_onnxruntime
from tests.frontends.onnx.standard_cases import cases_of

MODULES = ("ai_onnx_ml.label_encoder", "equal", "regex_full_match", "string_concat", "string_split",
           "stringnormalizer", "tfidfvectorizer")  # fmt: skip
CASES = [c for m in MODULES for c in cases_of(m) if m != "equal" or "string" in c.name]
WORDS = np.array([["red", "green"], ["blue", "red"], ["", "größe"]], object)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_case_of_the_standard(case: TestCase) -> None:
    assert case.model is not None and case.data_sets is not None
    net = modelcc.compile(case.model, threads=1, cache=None)
    for inputs, outputs in case.data_sets:
        got = net(*(np.asarray(value) for value in inputs))
        results = got if isinstance(got, tuple) else (got,)
        for ours, value in zip(results, outputs, strict=True):
            expected = np.asarray(value)
            assert ours.dtype == expected.dtype
            assert ours.shape == expected.shape
            assert ours.tolist() == expected.tolist()


def _model(body: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 19]>\nmain {body}')


MOVED = """(string[n, 2] x, string[2] y, bool[n, 2] c) => (string[n, 4] z, bool[n, 2] same) {
  w = Where(c, x, y)
  t = Constant<value_ints = [1, 0]>()
  g = Gather<axis = 1>(w, t)
  z = Concat<axis = 1>(g, x)
  same = Equal(x, y)
}"""


def _feeds() -> dict[str, Any]:
    chosen = np.array([[True, False], [False, True], [True, True]])
    return {"x": WORDS, "y": np.array(["blue", "red"], object), "c": chosen}


def test_texts_are_moved_and_compared() -> None:
    assert_compiled_agrees(_model(MOVED), _feeds())


def test_a_saved_model_knows_its_texts(tmp_path: Path) -> None:
    model, feeds = ml_model(
        "LabelEncoder", [WORDS], opset=2, keys_strings=["red", "blue"],
        values_strings=["RED", "BLUE"], default_string="none",
    )  # fmt: skip
    modelcc.compile(model, threads=1, cache=None).save(tmp_path / "net.mcc")
    net = modelcc.load(tmp_path / "net.mcc", threads=1)
    expected = run_onnxruntime(model, feeds)["y0"]
    assert net(WORDS).tolist() == expected.tolist()
    assert net(WORDS.astype(str)).tolist() == expected.tolist()
    assert str(net.inputs[0].dtype) == str(net.outputs[0].dtype) == "string"


@pytest.mark.parametrize(
    ("op", "x", "attributes"),
    [
        ("LabelEncoder", WORDS, {"classes_strings": ["green", "red"], "default_int64": 9}),
        ("CategoryMapper", WORDS, {"cats_strings": ["red", "größe"], "cats_int64s": [3, 4]}),
        (
            "CategoryMapper",
            np.array([3, 4, 5]),
            {"cats_strings": ["red", "größe"], "cats_int64s": [3, 4]},
        ),
        ("OneHotEncoder", WORDS, {"cats_strings": ["red", "größe"]}),
    ],
)
def test_categories(op: str, x: Any, attributes: dict[str, Any]) -> None:
    model, feeds = ml_model(op, [x], **attributes)
    assert_compiled_agrees(model, feeds)


@pytest.mark.parametrize(
    ("known", "unknown", "attributes"),
    [
        (np.array([["b"], ["c"], ["a"]], object), "z", {"cats_strings": ["a", "b", "c"]}),
        (np.array([[5], [9], [3]]), 4, {"cats_int64s": [3, 5, 9]}),
    ],
)
def test_unknown_categories_end_the_run(known: Any, unknown: Any, attributes: Any) -> None:
    model, feeds = ml_model("OneHotEncoder", [known], zeros=0, **attributes)
    assert_compiled_agrees(model, feeds)
    known = known.copy()
    known[1, 0] = unknown
    net = modelcc.compile(model, threads=1, cache=None)
    with pytest.raises(RunError, match=r"index 3 is outside .* 'known categories', 3 long"):
        net(known)


def test_labels_of_a_classifier() -> None:
    x = np.array([[-1.0, 2.0], [3.0, 0.5]], np.float32)
    model, feeds = ml_model(
        "LinearClassifier", [x], outputs=2, coefficients=[1.0, 0.0, 0.0, 1.0],
        intercepts=[0.0, 0.0], classlabels_strings=["left", "right"],
    )  # fmt: skip
    assert_compiled_agrees(model, feeds)


def test_n_grams_of_texts() -> None:
    node = helper.make_node(
        "TfIdfVectorizer", ["x"], ["y"], mode="TFIDF", min_gram_length=1, max_gram_length=2,
        max_skip_count=1, ngram_counts=[0, 2], ngram_indexes=[1, 0, 2], weights=[0.5, 2.0, 3.0],
        pool_strings=["red", "blue", "red", "red"],
    )  # fmt: skip
    x = np.array([["red", "red", "blue", "red"], ["", "blue", "blue", "x"]], object)
    value = helper.make_tensor_value_info("x", onnx.TensorProto.STRING, x.shape)
    graph = helper.make_graph([node], "g", [value], [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 8
    assert_compiled_agrees(model, {"x": x})


def test_numbers_are_no_texts() -> None:
    net = modelcc.compile(_model(MOVED), threads=1, cache=None)
    with pytest.raises(InputError, match="input 'x': expected texts"):
        net.run(_feeds() | {"x": np.zeros((3, 2))})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            """(string[2] x, bool[2] c) => (string[2] z) {
              a = Constant<value_strings = ["a"]>()
              w = Where(c, x, a)
              z = StringConcat(w, x)
            }""",
            "not on what the model makes",
        ),
        ("(float[2] x) => (string[2] y) { y = Cast<to = 8>(x) }", "text processing"),
        (
            '(string[2] x) => (bool[2] y) { y = RegexFullMatch<pattern = "(">(x) }',
            "the regular expression",
        ),
    ],
)
def test_what_looks_into_texts_is_refused(body: str, message: str) -> None:
    model = _model(body)
    model.opset_import[0].version = 20
    with pytest.raises(ModelError, match=message):
        import_onnx(model)


STEPS = """(string[n] x) => (string[n] z, bool[n] known, float[n, m] found) {
  head = Constant<value_strings = ["a-"]>()
  y = StringConcat(head, x)
  z = Identity(y)
  known = RegexFullMatch<pattern = "a-r.*">(y)
  parts, count = StringSplit<delimiter = "-">(y)
  red = Constant<value_strings = ["red"]>()
  same = Equal(parts, red)
  found = Cast<to = 1>(same)
}"""


def test_texts_are_worked_on_before_compiled_code(tmp_path: Path) -> None:
    model = _model(STEPS)
    model.opset_import[0].version = 20
    modelcc.compile(model, threads=1, cache=None).save(tmp_path / "net.mcc")
    net = modelcc.load(tmp_path / "net.mcc", threads=1)
    assert "StringConcat#1.0 = concat($0.literal, x)" in str(net.report())
    for texts in (["red", "blue-red-x", ""], ["red"]):
        x = np.array(texts, object)
        z, known, found = net(x)
        assert z.tolist() == [f"a-{text}" for text in texts]
        assert known.tolist() == [text.startswith("r") for text in texts]
        parts = [f"a-{text}".split("-") for text in texts]
        assert [row[: len(p)] for row, p in zip(found.tolist(), parts, strict=True)] == [
            [float(part == "red") for part in p] for p in parts
        ]


def test_graph_text_keeps_the_steps() -> None:
    model = _model(STEPS)
    model.opset_import[0].version = 20
    graph = import_onnx(model)
    again = parse_graph(print_graph(graph), constants_by_digest(graph), [MCC])
    assert again.interface == graph.interface is not None
    assert again.interface is not None
    assert [step.function for step in again.interface.steps] == [
        "literal", "concat", "full_match", "split"
    ]  # fmt: skip
