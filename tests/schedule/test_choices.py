"""Guards that protect no read are made in vectors, against onnxruntime; those that do stay."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from onnx import ModelProto

import modelcc
from modelcc.driver import pipeline, target_of
from modelcc.ir.loop import Function, Select
from modelcc.ir.loop_traversal import statement_expressions, statements, walk
from modelcc.pipeline import before_block, run_stages
from modelcc.targets.base import BuildConfig
from tests.frontends.onnx.onnx_models import run_onnxruntime
from tests.machines import chosen_options

OPTIONS = chosen_options(threads=1)


def model_of(body: str) -> ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> g {body}')


def chosen_lanes(model: ModelProto) -> list[int]:
    """Lanes of the values that are chosen from."""
    stages = before_block(pipeline(target_of(OPTIONS), OPTIONS, BuildConfig()), "loop")
    program = run_stages(stages, model)
    functions: list[Function] = [*program.functions]
    return [
        e.lanes
        for f in functions
        for s in statements(f.body)
        for whole in statement_expressions(s)
        for e in walk(whole)
        if isinstance(e, Select)
    ]


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("shape", ["2,7,37", "2,m,n", "n,n,n"])
@pytest.mark.parametrize("dtype", ["float", "int64", "bool"])
def test_triangles(dtype: str, shape: str, upper: int) -> None:
    model = model_of(
        f"({dtype}[{shape}] x, int64 k) => ({dtype}[{shape}] y)"
        f" {{ y = Trilu<upper={upper}>(x, k) }}"
    )
    sizes = (5, 5, 5) if shape == "n,n,n" else (2, 7, 37)
    kinds = {"float": np.float32, "int64": np.int64, "bool": np.bool_}
    x = np.random.default_rng(0).integers(0, 9, sizes).astype(kinds[dtype])
    net = modelcc.compile(model, options=OPTIONS, cache=None)
    for k in (-40, -6, -1, 0, 1, 5, 36, 50):
        feeds = {"x": x, "k": np.array(k)}
        np.testing.assert_array_equal(net(feeds), run_onnxruntime(model, feeds)["y"])


def test_triangles_of_nothing() -> None:
    net = modelcc.compile(
        model_of("(float[m,n] x) => (float[m,n] y) { y = Trilu(x) }"), options=OPTIONS, cache=None
    )
    for shape in ((0, 5), (5, 0), (0, 0), (1, 1)):
        x = np.ones(shape, np.float32)
        np.testing.assert_array_equal(net(x), np.triu(x))


def test_triangles_are_made_in_vectors() -> None:
    for shape in ("64,64", "n,64"):
        found = chosen_lanes(
            model_of(f"(float[{shape}] x) => (float[{shape}] y) {{ y = Trilu(x) }}")
        )
        assert found and min(found) > 1


def test_reads_that_may_leave_their_tensor_stay_guarded() -> None:
    """A pad's are such, along the lanes, too."""
    model = model_of(
        "(float[n,m] x) => (float[k,l] y) { p = Constant<value_ints=[1, 2, 3, 4]>() y = Pad(x, p) }"
    )
    assert not chosen_lanes(model)
    x = np.random.default_rng(0).random((6, 29)).astype(np.float32)
    net = modelcc.compile(model, options=OPTIONS, cache=None)
    np.testing.assert_array_equal(net(x), np.pad(x, ((1, 3), (2, 4))))


def test_what_two_guards_protect_together_stays_guarded() -> None:
    """The row behind the last one would be read, an element of it, if columns were chosen only."""
    model = model_of(
        "(float[1, 1, 5, 6] x) => (float[1, 1, 6, 7] y) "
        "<int64[8] p = {0, 0, 0, 0, 0, 0, 1, 0}, int64[8] q = {0, 0, 0, 0, 0, 0, 0, 1}> "
        "{ a = Pad(x, p) b = Relu(a) y = Pad(b, q) }"
    )
    assert not chosen_lanes(model)
    x = np.random.default_rng(0).standard_normal((1, 1, 5, 6)).astype(np.float32)
    found = modelcc.compile(model, options=OPTIONS, cache=None)(x)
    np.testing.assert_array_equal(found, run_onnxruntime(model, {"x": x})["y"])
