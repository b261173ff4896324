"""Sequences and optional values through compiled code: ONNX's own cases, and what they leave."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.backend.test.case.test_case import TestCase
from onnx.reference import ReferenceEvaluator

import modelcc
from modelcc import onnx_backend
from modelcc.frontends.onnx import UnsupportedModel, import_onnx
from modelcc.ir.errors import ModelError
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.graph_parser import parse_graph
from modelcc.ir.graph_text import constants_by_digest, print_graph
from modelcc.ops.catalog import MCC
from modelcc.runtime.errors import InputError
from tests.frontends.onnx.standard_cases import cases_of

MODULES = ("identity", "if_", "loop", "optionalgetelement", "optionalhaselement", "sequence_map",
           "sequenceinsert", "splittosequence")  # fmt: skip
CASES = [case for module in MODULES for case in cases_of(module)]


def _same(got: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return len(got) == len(expected) and all(map(_same, got, expected))
    if expected is None:
        return got is None
    return got.dtype == expected.dtype and np.array_equal(got, expected)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_case_of_the_standard(case: TestCase) -> None:
    assert case.model is not None and case.data_sets is not None
    for inputs, outputs in case.data_sets:
        net = onnx_backend.prepare(case.model, cache=None, specialise=True)
        got = net.run([v if isinstance(v, list | None) else np.asarray(v) for v in inputs])
        for ours, expected in zip(got, outputs, strict=True):
            wanted = expected if isinstance(expected, list | None) else np.asarray(expected)
            assert _same(ours, wanted)


def _model(body: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\nmain {body}')


NESTED = """(seq(float[n]) xs, float[2] y) => (seq(float[n]) zs, float[k] joined, int64 count) {
  at = Constant<value_int = -1>()
  longer = SequenceInsert(xs, y)
  zs = SequenceErase(longer, at)
  joined = ConcatFromSequence<axis = 0>(longer)
  count = SequenceLength(longer)
}"""


def test_elements_of_different_sizes_agree_with_the_reference_evaluator() -> None:
    model = _model(NESTED)
    net = modelcc.compile(model, threads=1, dims={"xs_length": 2}, cache=None)
    for sizes in ((3, 5), (1, 1)):
        xs = [np.arange(n, dtype=np.float32) for n in sizes]
        feeds = {"xs": xs, "y": np.ones(2, np.float32)}
        expected = ReferenceEvaluator(model).run(None, feeds)
        got = net.run(feeds)
        assert all(_same(a, b) for a, b in zip(got.values(), expected, strict=True))
        assert all(_same(a, b) for a, b in zip(net(xs, feeds["y"]), expected, strict=True))


def test_tensors_of_a_sequence_may_be_given_by_name() -> None:
    net = modelcc.compile(_model(NESTED), threads=1, dims={"xs_length": 2}, cache=None)
    got = net.run(net.random_inputs())
    assert list(got) == ["zs[0]", "zs[1]", "joined", "count"]


def test_a_saved_model_keeps_its_interface(tmp_path: Any) -> None:
    net = modelcc.compile(_model(NESTED), threads=1, dims={"xs_length": 1}, cache=None)
    net.save(tmp_path / "net.mcc")
    xs, y = [np.ones(3, np.float32)], np.zeros(2, np.float32)
    again = modelcc.load(tmp_path / "net.mcc", threads=1)
    assert all(_same(a, b) for a, b in zip(again(xs, y), net(xs=xs, y=y), strict=True))


def test_graph_text_keeps_the_interface() -> None:
    graph = import_onnx(_model(NESTED), {"xs_length": 2})
    again = parse_graph(print_graph(graph), constants_by_digest(graph), [MCC])
    assert again.interface == graph.interface is not None
    feeds = {"xs[0]": np.ones(1, np.float32), "xs[1]": np.ones(2, np.float32)}
    assert interpret(again, feeds | {"y": np.ones(2, np.float32)})["count"] == 3


@pytest.mark.parametrize(
    ("xs", "message"),
    [
        ([np.ones(2, np.float32)], "input 'xs': expected a list of 2, got one of 1"),
        (np.ones((2, 2), np.float32), "input 'xs': expected a list of 2, got ndarray"),
        ([np.ones(2, np.float32), np.ones(2)], r"input 'xs\[1\]': expected float32"),
    ],
)
def test_what_does_not_fit_is_refused(xs: Any, message: str) -> None:
    net = modelcc.compile(_model(NESTED), threads=1, dims={"xs_length": 2}, cache=None)
    with pytest.raises(InputError, match=message):
        net(xs, np.ones(2, np.float32))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("(seq(float[2]) xs) => (float[2] y) { y = Relu(xs) }", "a tensor where there is a seq"),
        (
            """(seq(float[2]) xs, int64 n, bool c) => (seq(float[2]) ys) {
              ys = Loop(n, c, xs) <body = b (int64 i, bool k, seq(float[2]) s) =>
                (bool go, seq(float[2]) t) {
                go = Identity(k)
                e = SequenceAt(s, i)
                t = SequenceInsert(s, e)
              }>
            }""",
            "carries a sequence along, and its number of steps",
        ),
        (
            "(float[n, 2] x) => (seq(float[1, 2]) y) { y = SplitToSequence(x) }",
            "how many parts it splits depends on dimension n",
        ),
    ],
)
def test_what_cannot_be_imported_is_told(body: str, message: str) -> None:
    dims = {"xs_length": 1} if "xs" in body else {}
    with pytest.raises(UnsupportedModel, match=message):
        import_onnx(_model(body), dims)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            """(seq(float[2]) xs) => (float[2] y)
            { at = Constant<value_int = 4>() y = SequenceAt(xs, at) }""",
            "position 4 does not exist in a sequence of 1 elements",
        ),
        ("(float[2] x) => (float[2] y) { y = SequenceAt(x, x) }", "must be a sequence"),
    ],
)
def test_what_breaks_the_rules_is_refused(body: str, message: str) -> None:
    dims = {"xs_length": 1} if "xs" in body else {}
    with pytest.raises(ModelError, match=message):
        import_onnx(_model(body), dims)
