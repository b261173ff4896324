"""Axes cut where quotients step: which blocks, and that results stay what they were."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, parser

import modelcc
from modelcc.driver import compile_model
from modelcc.ir.index import Sym, parse_index
from modelcc.ir.loop import Store
from modelcc.ir.loop_traversal import statements
from modelcc.ir.program import Program
from modelcc.ir.tensor import Axis, Read, Stage
from modelcc.ir.types import F32
from modelcc.pipeline import StageRun
from modelcc.schedule.quotients import quotient_blocks
from tests.machines import chosen_options


@pytest.mark.parametrize(
    ("index", "block"),
    [
        ("a floordiv 2", 2),
        ("a mod 6", 6),
        ("a mod 3", None),
        ("(4*a + b) floordiv 8", 2),
        ("16*(a floordiv 4) + a mod 4", 4),
        ("(a + 1) floordiv 2", None),
        ("a floordiv 2 + a mod 6", None),
        ("a floordiv 5", None),
        ("a floordiv 12", None),
        ("(2*a) floordiv 2", None),
        ("a", None),
    ],
)
def test_blocks_are_where_quotients_step(index: str, block: int | None) -> None:
    axes = (Axis("a", 12), Axis("b", 4))
    body = Read("x", (parse_index(index),), F32)
    stage = Stage("y", axes, (Sym("a"), Sym("b")), body)
    assert quotient_blocks(stage, {}).get("a") == block


OPERATORS = {
    "shuffle": "y = DepthToSpace<blocksize = 2>(x)",
    "shuffle by columns": 'y = DepthToSpace<blocksize = 2, mode = "CRD">(x)',
    "nearest": """s = Constant<value_floats = [1., 1., 2., 4.]>()
        y = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric",
        nearest_mode = "floor">(x, , s)""",
    "tiles": """n = Constant<value_ints = [1, 3, 1, 2]>()
        y = Tile(x, n)""",
}


def model_of(body: str) -> ModelProto:
    start = '<ir_version: 8, opset_import: ["": 17]>'
    interface = "m (float[1, 12, 5, 6] x) => (float[n, c, h, w] y)"
    return parser.parse_model(f"{start} {interface} {{ {body} }}")


@pytest.mark.parametrize("body", OPERATORS.values(), ids=list(OPERATORS))
def test_results_are_those_of_onnxruntime(body: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = model_of(body)
    x = np.random.default_rng(0).standard_normal((1, 12, 5, 6)).astype(np.float32)
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(modelcc.compile(model, cache=None)(x), wanted)


@pytest.mark.parametrize("body", OPERATORS.values(), ids=list(OPERATORS))
def test_results_are_stored_in_vectors(body: str) -> None:
    programs: list[Program] = []

    def note(run: StageRun) -> None:
        if isinstance(run.after, Program):
            programs.append(run.after)

    compile_model(model_of(body), chosen_options(), observer=note)
    found = [s for function in programs[-1].functions for s in statements(function.body)]
    assert all(s.value.lanes > 1 for s in found if isinstance(s, Store))
