"""Operands of onnxruntime's operators are those that it has, and what they are not is said."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from modelcc.frontends.onnx import UnsupportedModel, import_onnx
from modelcc.frontends.onnx.contrib.operands import DeclaredHandler
from modelcc.frontends.onnx.handlers import HANDLERS
from modelcc.ir.errors import ModelError
from modelcc.ir.graph_interpreter import interpret
from tests.frontends.onnx.onnx_models import assert_agrees, floats, parsed

OWN = {name: h for (domain, name), h in HANDLERS.items() if domain == "com.microsoft"}
MARKS = {"Single": "", "Optional": "?", "Variadic": "*"}


def test_they_have_the_names_that_onnxruntime_gives_them() -> None:
    """What modelcc refuses may be absent there."""
    ort: Any = import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    schemas = {s.name: s for s in ort.get_all_operator_schema() if s.domain == "com.microsoft"}
    assert OWN.keys() - schemas.keys() == {"SimplifiedLayerNormalization"}
    for name, handler in OWN.items():
        assert isinstance(handler, DeclaredHandler), name
        if name in schemas:
            theirs = [(i.name.casefold(), MARKS[i.option.name]) for i in schemas[name].inputs]
            ours = [(o.name.casefold(), o.mark.replace("!", "?")) for o in handler.operands]
            assert ours == theirs, name


def refusal(node: str) -> str:
    inputs = "float[2,3,8] x, float[2,8] flat, float[8] w, float[7] v, int32[2,4,8,8] wide"
    with pytest.raises((ModelError, UnsupportedModel)) as caught:
        import_onnx(parsed(f"g ({inputs}) => (float[2,3,8] y) {{ y = com.microsoft.{node} }}"))
    return str(caught.value)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ("SkipLayerNormalization (x, x)", "its operand gamma is left out"),
        ("BiasAdd (x, w, x, x)", "it has 4 operands, expected X bias skip"),
        ("GatedAdd (x, x, x, w)", "its operand gate_weight"),
        ("CDist (x, flat)", "its operand A ('x') is f32[2, 3, 8], expected [m, k]"),
        ("GroupNorm <groups = 2> (x, w, v)", "beta ('v') is f32[7], expected 8 for c"),
        ("MulInteger (x, , x)", "its operand A ('x') has elements of f32, expected int"),
        ("ComplexMul (x, x)", "its operand A ('x') is f32[2, 3, 8], expected 2 for 2"),
    ],
)  # fmt: skip
def test_what_an_operand_must_be_is_said(node: str, reason: str) -> None:
    assert reason in refusal(node)


def test_what_comes_after_a_convolution_with_channels_last_is_not_left_out() -> None:
    """No kernel of onnxruntime has NhwcFusedConv here: channels are moved around FusedConv."""
    body = """g (float[1,5,6,4] x, float[3,4,2,2] w, float[3] b, float[1,4,5,3] z)
        => (float[1,4,5,3] y) {{
        {node}
    }}"""
    last = """y = com.microsoft.NhwcFusedConv <activation = "Relu"> (x, t, b, z)"""
    moved = """m = Transpose <perm = [0, 3, 1, 2]> (x) n = Transpose <perm = [0, 3, 1, 2]> (z)
        c = com.microsoft.FusedConv <activation = "Relu"> (m, w, b, n)
        y = Transpose <perm = [0, 2, 3, 1]> (c)"""
    turned = "t = Transpose <perm = [0, 2, 3, 1]> (w) "
    names = {"x": (1, 5, 6, 4), "w": (3, 4, 2, 2), "b": (3,), "z": (1, 4, 5, 3)}
    feeds = {name: floats(*shape, seed=i) for i, (name, shape) in enumerate(names.items())}
    assert_agrees(parsed(body.format(node=moved)), feeds, rtol=1e-4)
    ours, theirs = (
        interpret(import_onnx(parsed(body.format(node=n))), feeds)["y"]
        for n in (turned + last, moved)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
