"""Random and given inputs: sizes, ranges, files."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper
from small_models import model

import modelcc
from modelcc.driver import import_model
from modelcc.feeds.files import read_feeds
from modelcc.feeds.random import index_limits, nominal_sizes, random_feeds
from modelcc.ir.condition import Condition
from modelcc.ir.errors import ModelError
from modelcc.ir.index import DIM, Range, Sym, total
from modelcc.ir.types import F32, I8, I64, U8, TensorType
from modelcc.options import Limit, Options, dimension, rewrite_limit
from modelcc.verification.verification import Request, subject_of

BATCH, WIDE = Sym("batch"), Sym("w")
TYPES = {"x": TensorType((BATCH, WIDE), F32), "i": TensorType((BATCH,), I64)}


def test_sizes_are_modest_and_within_bounds() -> None:
    shapes = [type.shape for type in TYPES.values()]
    assert nominal_sizes({"batch": DIM, "w": DIM}, {}, shapes) == {"batch": 2, "w": 64}
    bounded = {"batch": Range(5, 9), "w": Range(1, 7)}
    assert nominal_sizes(bounded, {}, shapes) == {"batch": 5, "w": 7}
    assert nominal_sizes(bounded, {"w": 3}, shapes) == {"batch": 5, "w": 3}
    with pytest.raises(ModelError, match="no dimension 'h'"):
        nominal_sizes(bounded, {"h": 3}, shapes)


def test_random_feeds_fit_their_types() -> None:
    feeds = random_feeds(TYPES, {"batch": 200, "w": 3}, 0, {"i": 50})
    assert (feeds["x"].shape, feeds["x"].dtype) == ((200, 3), np.float32)
    assert feeds["i"].dtype == np.int64
    assert 0 <= feeds["i"].min() < 5 and 45 < feeds["i"].max() < 50
    again = random_feeds(TYPES, {"batch": 200, "w": 3}, 0, {"i": 50})
    np.testing.assert_array_equal(feeds["x"], again["x"])


def test_positions_are_limited_by_the_table_they_index() -> None:
    nodes = (
        helper.make_node("Reshape", ["tokens", "flat"], ["t"]),
        helper.make_node("Cast", ["t"], ["positions"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "positions"], ["y"], axis=0),
    )
    arrays = {"table": np.zeros((30, 4), np.float32), "flat": np.array([-1])}
    proto = model(nodes, {"tokens": (2, 3)}, {"y": (6, 4)}, arrays)
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32
    assert index_limits(import_model(proto, Options())) == {"tokens": 30}


def test_texts_have_no_greatest_one() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 17, "ai.onnx.ml" : 4]>
        g (string[5] x) => (int64[5] y) {
          y = ai.onnx.ml.LabelEncoder <keys_strings = ["a", "b"], values_int64s = [0, 1]> (x)
        }"""
    )
    assert index_limits(import_model(proto, Options())) == {}


def test_reads_files(tmp_path: Path) -> None:
    x, i = np.ones((2, 3), np.float32), np.zeros(2, np.int64)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "both.npz", x=x, i=i)
    given, missing = read_feeds([f"x={tmp_path / 'x.npy'}"], TYPES)
    assert list(given) == ["x"] and missing == ["i"]
    given, missing = read_feeds([str(tmp_path / "both.npz")], TYPES)
    assert sorted(given) == ["i", "x"] and missing == []
    with pytest.raises(ModelError, match=r"2 inputs, so .* needs a name"):
        read_feeds([str(tmp_path / "x.npy")], TYPES)
    lone, _ = read_feeds([str(tmp_path / "x.npy")], {"x": TYPES["x"]})
    np.testing.assert_array_equal(lone["x"], x)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("n=8", ("n", 8)),
        ("n=0", ("n", 0)),
        ("n=1..9", ("n", Range(1, 9))),
        ("n=2..", ("n", Range(2, None))),
    ],
)
def test_dimensions_from_text(text: str, want: tuple[str, int | Range]) -> None:
    assert dimension(text) == want


@pytest.mark.parametrize("text", ["n", "=3", "n=", "n=-1", "n=x", "n=..4", "n=9..3", "n=1..x"])
def test_what_is_no_dimension(text: str) -> None:
    with pytest.raises(ModelError, match="is no dimension"):
        dimension(text)


def test_options_have_a_key_of_their_own() -> None:
    changed = (
        Options(threads=2), Options(optimize=3), Options(cpu="x"), Options(dims=(("n", 3),)),
        Options(skip=("Fold",)), Options(limit=Limit("Fold", 2)), Options(keep=("y",)),
    )  # fmt: skip
    keys = {options.key() for options in (Options(), *changed)}
    assert len(keys) == 1 + len(changed)
    assert Options().key() == Options().key()
    assert rewrite_limit("Fold=2") == Limit("Fold", 2)


def test_sizes_meet_demands() -> None:
    dims = {"a": Range(0, None), "b": Range(0, None), "c": Range(0, 9)}
    a, b, c = Sym("a"), Sym("b"), Sym("c")
    constraints = (Condition(a, "==", 1), Condition(b, "==", 4 * c), Condition(c, ">=", 3))
    shapes = [("a", "b"), ("c",)]
    found = nominal_sizes(dims, {}, [tuple(map(Sym, s)) for s in shapes], constraints)
    assert found["a"] == 1
    assert all(condition.holds(found) for condition in constraints)
    given = nominal_sizes(dims, {"c": 5}, [], constraints)
    assert given == {"a": 1, "b": 20, "c": 5}
    impossible = (Condition(a, "==", 1), Condition(a, "==", 2))
    assert nominal_sizes(dims, {}, [], impossible).keys() == dims.keys()


def test_sizes_meet_what_a_model_demands() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]> g
        (float[n, 3] x, float[m, 3] w, float[1, 4, t] s) => (float[n, 3] y, float[k] z, float[j] v)
        {
          y = Add(x, w)
          u = Pad(s, p)
          v = Squeeze(u)
          z = Squeeze(x, none)
        }"""
    )
    for name, value in (("none", [0]), ("p", [0, 0, 0, 0, 0, -100])):
        array = np.array(value, np.int64)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    subject = subject_of(Request(model, Options()))
    assert subject.sizes["n"] == 1
    assert subject.sizes["t"] >= 100  # which are cut off
    assert subject.sizes["t"] != 101  # one element would be squeezed away
    net = modelcc.compile(model, threads=1, cache=None)
    net.run(subject.feeds)
    net.run(net.random_inputs())


def test_hostile_numbers_of_few_bits() -> None:
    """Out of range where the type has such a number; else as they are."""
    types = {name: TensorType((64,), dtype) for name, dtype in (("a", U8), ("b", U8), ("c", I8))}
    found = random_feeds(types, {}, limits={"a": 300, "b": 7, "c": 300}, hostile=True)
    assert found["a"].max() < 300
    assert (found["b"] >= 7).sum() == 8
    assert (found["c"] == -1).sum() == 8


def test_names_may_be_more_than_the_stack_is_deep() -> None:
    names = [f"n{k}" for k in range(sys.getrecursionlimit() + 100)]
    parts = total([Sym(name) for name in names])
    dims = dict.fromkeys(["whole", *names], DIM)
    wanted = [Condition(parts, "==", Sym("whole"))]
    found = nominal_sizes(dims, {}, [(Sym(name),) for name in dims], wanted)
    assert sum(found[name] for name in names) == found["whole"]
