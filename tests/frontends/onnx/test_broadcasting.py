"""Operands whose extents have different names broadcast as in onnxruntime, or are refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, parser

import modelcc
from modelcc.ir.types import Array

ELEMENTS = {"float": np.float32, "bool": np.bool_}
CASES = {
    "add": ("float[a] x, float[b] y", "z = Add(x, y)"),
    "inner axes": ("float[2, a, 3] x, float[2, b, 3] y", "z = Mul(x, y)"),
    "where": ("bool[a] c, float[b] x, float[d] y", "z = Where(c, x, y)"),
    "three": ("float[a] x, float[b] y, float[d] w", "z = Max(x, y, w)"),
    "one after another": ("float[a] x, float[b] y, float[d] w", "s = Add(x, y)\n z = Sub(s, w)"),
    "product": ("float[a, 2, 3] x, float[b, 3, 2] y", "z = MatMul(x, y)"),
    "addend": ("float[a, 3] x, float[3, n] y, float[p] c", "z = Gemm(x, y, c)"),
    "addend by rows": ("float[a, 3] x, float[3, 4] y, float[q, 4] c", "z = Gemm(x, y, c)"),
    "addend of a number": ("float[2, 3] x, float[3, 4] y, float[p] c", "z = Gemm(x, y, c)"),
    "inner extents": ("float[2, a] x, float[b, 3] y", "z = Gemm(x, y)"),
    "expansion": ("float[a] x, float[b] y", "s = Shape(y)\n z = Expand(x, s)"),
    "ellipsis": ("float[a, 4] x, float[b, 4] y", 'z = Einsum<equation="...i,...i->...">(x, y)'),
    "letters": ("float[a, 2] x, float[b, 3] y", 'z = Einsum<equation="ai,aj->ij">(x, y)'),
    "sums": ("float[a, 4] x, float[b, 4] y", "s = Add(x, y)\n z = ReduceSum<keepdims=0>(s)"),
    "shape": ("float[a, 4] x, float[b, 4] y", "s = Add(x, y)\n n = Shape(s)\n z = Cast<to=1>(n)"),
    "reshaped": (
        "float[a, 4] x, float[b, 4] y",
        "s = Add(x, y)\n k = Constant<value_ints=[-1]>()\n z = Reshape(s, k)",
    ),
    "channels": ("float[1, a, 5] x, float[2, b, 3] w", "z = Conv(x, w)"),
    "statistics": (
        "float[2, a, 3] x, float[b] s, float[b] t, float[b] m, float[d] v",
        "z = BatchNormalization(x, s, t, m, v)",
    ),
}
LED = {
    "rank": ("float[2, a] x, float[b] y", (2, 3), (1,), (2,)),
    "another axis": ("float[a, 2] x, float[b, 1] y", (3, 2), (1, 1), (2, 1)),
}


def model(inputs: str, body: str) -> ModelProto:
    head = '<ir_version: 8, opset_import: ["" : 17]>'
    return parser.parse_model(f"{head} g ({inputs}) => (float z) {{ {body} }}")


def operands(inputs: str) -> list[tuple[str, str, list[str]]]:
    """Element type, name and extents of each input."""
    found = re.findall(r"(\w+)\[([^\]]*)\] (\w+)", inputs)
    return [(kind, name, [e.strip() for e in shape.split(",")]) for kind, shape, name in found]


def feeds(inputs: str, sizes: Mapping[str, int]) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    given: dict[str, Array] = {}
    for kind, name, extents in operands(inputs):
        values = rng.uniform(0.5, 1.5, [sizes[e] if e in sizes else int(e) for e in extents])
        given[name] = values > 1 if kind == "bool" else values.astype(ELEMENTS[kind])
    return given


def quiet() -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return options


@pytest.mark.parametrize("case", CASES)
def test_what_onnxruntime_broadcasts_is_broadcast_and_nothing_else(case: str) -> None:
    inputs, body = CASES[case]
    proto = model(inputs, body)
    peer = onnxruntime.InferenceSession(proto.SerializeToString(), quiet())
    net = modelcc.compile(proto, threads=1, cache=None)
    names = sorted({e for _, _, extents in operands(inputs) for e in extents if not e.isdigit()})
    for values in product((0, 1, 2, 5) if len(names) < 3 else (0, 1, 3), repeat=len(names)):
        sizes = dict(zip(names, values, strict=True))
        given = feeds(inputs, sizes)
        try:
            (wanted,) = map(np.asarray, peer.run(None, given))
        except Exception:
            with pytest.raises(modelcc.RunError):
                net(given)
            continue
        found = np.asarray(net(given))
        assert found.shape == wanted.shape, sizes
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=str(sizes))


@pytest.mark.parametrize("case", LED)
def test_the_operand_that_looks_larger_is_not_stretched(case: str) -> None:
    """Masks are stretched to scores, so that kernels of scores stay what they are."""
    inputs, whole, one, other = LED[case]
    net = modelcc.compile(model(inputs, "z = Add(x, y)"), threads=1, cache=None)
    assert np.asarray(net(np.ones(whole, np.float32), np.ones(one, np.float32))).shape == whole
    with pytest.raises(modelcc.RunError, match="'b' is 2, but must be 1 or "):
        net(np.ones(whole, np.float32), np.ones(other, np.float32))


def test_the_message_names_what_it_is_broadcast_against() -> None:
    net = modelcc.compile(model("float[a] x, float[b] y", "z = Add(x, y)"), threads=1, cache=None)
    with pytest.raises(modelcc.RunError, match=r"'a' is 2, but must be 1 or b, 3 \(with b = 3\)"):
        net(np.ones(2, np.float32), np.ones(3, np.float32))


def test_a_computed_extent_is_not_stretched() -> None:
    body = "w = Concat<axis=0>(x, x)\n z = Add(w, y)"
    net = modelcc.compile(model("float[a] x, float[b] y", body), threads=1, cache=None)
    assert np.asarray(net(np.ones(2, np.float32), np.ones(1, np.float32))).shape == (4,)
    with pytest.raises(modelcc.RunError, match=r"'b' is 2, but must be 1 or 2\*a, 4"):
        net(np.ones(2, np.float32), np.ones(2, np.float32))


def test_messages_show_any_name_as_it_is() -> None:
    """No name is taken for a pattern, in what says that sizes do not fit."""
    proto = model("float[2, a] x, float[b, 3] y", "z = Gemm(x, y)")
    for value, name in zip(proto.graph.input, ("a+b (x)", "k.*["), strict=True):
        dimension = next(d for d in value.type.tensor_type.shape.dim if d.dim_param)
        dimension.dim_param = name
    net = modelcc.compile(proto, threads=1, cache=None)
    ones = np.ones((2, 3), np.float32)
    assert np.asarray(net(ones, np.ones((3, 3), np.float32))).shape == (2, 3)
    message = """Gemm#0: 'a+b (x)' is 3, but must be "k.*[", 4 (with k.*[ = 4)"""
    with pytest.raises(modelcc.RunError, match=re.escape(message)):
        net(ones, np.ones((4, 3), np.float32))
