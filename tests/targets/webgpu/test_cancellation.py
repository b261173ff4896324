"""Shaders compute what compilers might take away: infinite numbers, NaN, and what sums round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

import modelcc
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_traversal import statement_expressions, statements
from modelcc.ir.types import Array
from modelcc.targets.webgpu.cancellation import cancelled
from modelcc.targets.webgpu.emitter import shader_of

X = np.array(
    [0, 1, -1, np.nan, np.inf, -np.inf, 0.5, -2.5, 1e10, -1e10, 3e38, 1e-6, 104, -104], np.float32
)
C = "c = Constant <value_float = 0.5> ()"
AXES = "i = Constant <value_ints = [1]> ()"
BODIES: dict[str, Callable[[Array], Array]] = {
    "y = Sub (x, x)": lambda x: x - x,
    "n = Neg (x) y = Add (x, n)": lambda x: x - x,
    f"{C} s = Add (x, c) y = Sub (s, x)": lambda x: (x + np.float32(0.5)) - x,
    f"{C} s = Add (x, c) y = Sub (s, c)": lambda x: (x + np.float32(0.5)) - np.float32(0.5),
    "r = Sqrt (x) y = Mul (r, r)": lambda x: np.sqrt(x) * np.sqrt(x),
    "y = Div (x, x)": lambda x: x / x,
    "r = Reciprocal (x) s = Reciprocal (r) y = Mul (s, x)": lambda x: 1 / (1 / x) * x,
    "e = Equal (x, x) y = Cast <to = 1> (e)": lambda x: (x == x).astype(x.dtype),
    "d = Sub (x, x) n = IsNaN (d) y = Cast <to = 1> (n)": lambda x: np.isnan(x - x).astype(x.dtype),
    f"{AXES} u = Unsqueeze (x, i) s = Softmax <axis = 1> (u) y = Squeeze (s, i)": lambda x: (
        np.exp(x - x) / np.exp(x - x)
    ),
}
"""What is computed, and the same in NumPy's words."""


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("body", BODIES)
def test_what_is_infinite_or_rounds_stays(body: str) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 17]>'
        f" g (float[{X.size}] x) => (float[{X.size}] y) {{ {body} }}"
    )
    net = modelcc.compile(model, target="webgpu", cache=None)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(net(X), BODIES[body](X), rtol=2e-6)


def hidden(body: str) -> list[str]:
    """The calls of a thread's body that are hidden from compilers, in its order."""
    function = parse_function(f"""func @f(%x: f32[n], %y: mut f32[n]; n) {{
      grid g in 0 .. n {{ thread t in 0 .. 1 {{ {body} }} }}
    }}""")
    found = cancelled(function.body)
    each = [e for s in statements(function.body) for e in statement_expressions(s)]
    shader = shader_of(function)
    calls = [e.function for e in each if e in found]  # pyright: ignore[reportAttributeAccessIssue]
    assert shader.text.count("f32_kept(") == len(calls) + bool(calls)
    return calls


LOAD = "let %a = load %x[g]"


@pytest.mark.parametrize(
    ("body", "calls"),
    [
        (f"{LOAD} store %y[g] = sub(%a, load %x[g])", ["sub"]),
        (f"{LOAD} let %b = max(%a, f32(0.0)) store %y[g] = sub(%b, %a)", ["sub"]),
        (f"{LOAD} register %b = f32(0.0) %b = %a store %y[g] = sub(%b, %a)", ["sub"]),
        (
            f"{LOAD} register %b = f32(0.0) if predicate(g < 3) {{ %b = %a }}"
            " store %y[g] = sub(%b, %a)",
            ["sub"],
        ),
        (f"{LOAD} let %b = div(f32(1.0), %a) store %y[g] = div(f32(1.0), %b)", ["div"]),
        (f"{LOAD} let %b = add(%a, f32(0.5)) store %y[g] = sub(%b, f32(0.5))", ["sub"]),
    ],
)
def test_what_meets_a_value_again_is_hidden(body: str, calls: list[str]) -> None:
    assert hidden(body) == calls


@pytest.mark.parametrize(
    "body",
    [
        f"{LOAD} store %y[g] = mul(%a, %a)",
        f"{LOAD} store %y[g] = add(%a, f32(0.5))",
        f"{LOAD} store %y[g] = sub(%a, load %x[g + 1])",
        "register %s = f32(0.0) for i in 0 .. n { let %a = load %x[i] %s = add(%s, mul(%a, %a)) }"
        " store %y[g] = %s",
        f"{LOAD} store %y[g] = muladd(muladd(f32(3.0), %a, f32(2.0)), %a, f32(1.0))",
    ],
)
def test_what_cannot_be_taken_away_costs_nothing(body: str) -> None:
    """Sums of products, polynomials, squares."""
    assert not hidden(body)
