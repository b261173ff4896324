"""Every way exporters spell Gelu, Silu, Swish, HardSwish and Mish; and what is none of them."""

from __future__ import annotations

from math import erf as error_function
from math import pi, sqrt

import numpy as np
import pytest
from ml_dtypes import finfo

from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import BF16, F16, F32, Array, DType, TensorType
from modelcc.ops.activation import Clip, Gelu, HardSigmoid, Softplus, Swish
from modelcc.ops.arithmetic import Value
from modelcc.ops.elementwise import Erf, Exp, Pow, Sigmoid, Tanh
from modelcc.passes.graph.recognise_gelu import RecogniseGelu
from modelcc.passes.graph.recognise_hard_swish import RecogniseHardSwish
from modelcc.passes.graph.recognise_silu import RecogniseSilu
from tests.passes.graph.examples import assert_same_meaning
from tests.passes.graph.formulas import (
    Formula,
    Unary,
    call,
    constant,
    f32,
    formulas,
    graph_of,
    op_names,
    rows,
)

X = f32(2, "n", 3)


def erf(x: Value) -> Value:
    return call(Erf(), x)


def tanh(x: Value) -> Value:
    return call(Tanh(), x)


def power(x: Value, n: float) -> Value:
    return call(Pow(), x, constant(x, n))


def sigmoid(x: Value) -> Value:
    return call(Sigmoid(), x)


def ramp(x: Value) -> Value:
    return call(Clip(0.0, 6.0), x + 3.0)


GELU: list[Unary] = [
    lambda x: x * 0.5 * (erf(x / 1.4142135) + 1.0),
    lambda x: (erf(x * sqrt(0.5)) + 1.0) * (x * 0.5),
    lambda x: x * ((erf(x / sqrt(2)) + 1.0) * 0.5),
    lambda x: x * (erf(x * 0.70710677) + 1.0) / 2.0,
    lambda x: x * (constant(x, np.ones(1)) + erf(x / constant(x, np.full((1,), 1.41421)))) * 0.5,
]
GELU_TANH: list[Unary] = [
    lambda x: x * 0.5 * (tanh((x + power(x, 3.0) * 0.044715) * sqrt(2 / pi)) + 1.0),
    lambda x: (tanh((x + x * x * x * 0.044715) * 0.7978846) + 1.0) * x * 0.5,
    lambda x: (tanh((x * (x * (x * 0.044715)) + x) * 0.7978845608) + 1.0) * (x * 0.5),
    lambda x: x * 0.5 * (tanh(x * 0.7978845608 * (x * 0.044715 * x + 1.0)) + 1.0),
]
SILU: list[Unary] = [
    lambda x: x * sigmoid(x),
    lambda x: sigmoid(x) * x,
    lambda x: x / (call(Exp(), -x) + 1.0),
]
SWISH: list[Unary] = [
    lambda x: x * sigmoid(x * 1.702),
    lambda x: sigmoid(x * 1.702) * x,
    lambda x: x / (constant(x, 1.0) + call(Exp(), x * -1.702)),
]
HARD_SWISH: list[Unary] = [
    lambda x: x * ramp(x) / 6.0,
    lambda x: ramp(x) * x * (1 / 6),
    lambda x: x * (ramp(x) / 6.0),
    lambda x: x * 0.16666667 * ramp(x),
    lambda x: x * call(HardSigmoid(1 / 6, 0.5), x),
]


@pytest.mark.parametrize("formula", GELU)
def test_gelu(formula: Formula) -> None:
    before = graph_of(formula, X)
    after = RecogniseGelu()(before)
    assert [n.op for n in after.nodes] == [Gelu("none")]
    assert_same_meaning(before, after)


@pytest.mark.parametrize("formula", GELU_TANH)
def test_gelu_by_tanh(formula: Formula) -> None:
    before = graph_of(formula, X)
    after = RecogniseGelu()(before)
    assert [n.op for n in after.nodes] == [Gelu("tanh")]
    assert_same_meaning(before, after)


def test_gelu_of_a_product() -> None:
    before = graph_of(lambda a, b: GELU[0](a * b), X, X)
    after = RecogniseGelu()(before)
    assert op_names(after) == ["Mul", "Gelu"]
    assert_same_meaning(before, after)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("formula", [*GELU, *GELU_TANH])
def test_gelu_by_numbers_of_16_bits(formula: Unary, dtype: DType) -> None:
    """Other numbers than the formula's change less than rounding x does."""
    x = np.linspace(-8, 8, 4097).astype(dtype.numpy)
    before = graph_of(formula, TensorType(x.shape, dtype))
    after = RecogniseGelu()(before)
    assert op_names(after) == ["Gelu"]
    rounded = [float(dtype.numpy.type(c)) for c in (sqrt(2), 0.044715, sqrt(2 / pi))]
    (found,) = interpret(after, {"x0": x}).values()
    error = np.abs(found.astype(np.float64) - gelu(x.astype(np.float64), formula, *rounded))
    assert np.all(error <= 1.25 * unit_of(dtype) * np.abs(x.astype(np.float64)) + 1e-7)


def unit_of(dtype: DType) -> float:
    """By how much rounding to it changes 1 at most."""
    return float(finfo(dtype.numpy).eps) / 2


def gelu(x: Array, formula: Unary, root: float, cubic: float, scale: float) -> Array:
    """In f64, with the numbers of a model."""
    if formula in GELU:
        return x / 2 * (1 + np.vectorize(error_function)(x / root))
    return x / 2 * (1 + np.tanh(scale * (x + cubic * x**3)))


def test_a_half_of_16_bits_is_none_other() -> None:
    before = graph_of(lambda x: x * 0.498 * (erf(x / sqrt(2)) + 1.0), TensorType((2, 3), BF16))
    assert RecogniseGelu()(before) is before


@pytest.mark.parametrize(
    "formula",
    formulas(
        lambda x: x * 0.6 * (erf(x / sqrt(2)) + 1.0),
        lambda x: x * 0.5 * (erf(x / 1.5) + 1.0),
        lambda x: x * 0.5 * (erf(x / sqrt(2)) + 1.1),
        lambda x: x * x * 0.5 * (erf(x / sqrt(2)) + 1.0),
        lambda x: x * 0.5 * (tanh((x + power(x, 3.0) * 0.05) * sqrt(2 / pi)) + 1.0),
        lambda x: x * 0.5 * (tanh((x + power(x, 2.0) * 0.044715) * sqrt(2 / pi)) + 1.0),
    ),
)
def test_not_gelu(formula: Formula) -> None:
    before = graph_of(formula, X)
    assert RecogniseGelu()(before) is before


@pytest.mark.parametrize("formula", SILU)
def test_silu(formula: Formula) -> None:
    before = graph_of(formula, X)
    after = RecogniseSilu()(before)
    assert op_names(after) == ["Silu"]
    assert_same_meaning(before, after)


@pytest.mark.parametrize("formula", SWISH)
def test_swish(formula: Formula) -> None:
    before = graph_of(formula, X)
    (node,) = RecogniseSilu()(before).nodes
    assert isinstance(node.op, Swish) and node.op.alpha == pytest.approx(1.702)
    assert_same_meaning(before, RecogniseSilu()(before))


def test_mish() -> None:
    before = graph_of(lambda x: x * tanh(call(Softplus(), x)), X)
    assert op_names(RecogniseSilu()(before)) == ["Mish"]
    assert_same_meaning(before, RecogniseSilu()(before))


@pytest.mark.parametrize(
    ("formula", "types"),
    rows(
        (lambda x, y: x * sigmoid(y), (X, X)),
        (lambda x: x + sigmoid(x), (X,)),
        (lambda x: x * x * sigmoid(x), (X,)),
        (lambda x, y: sigmoid(x) * x * y, (f32(3), f32(2, 3))),
    ),
)
def test_not_silu(formula: Formula, types: tuple[TensorType, ...]) -> None:
    before = graph_of(formula, *types)
    after = RecogniseSilu()(before)
    assert_same_meaning(before, after)
    assert ("Silu" in op_names(after)) == (len(types) == 2 and types[0] != types[1])


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("formula", HARD_SWISH)
def test_hard_swish(formula: Formula, dtype: DType) -> None:
    before = graph_of(formula, TensorType((2, 3), dtype))
    after = RecogniseHardSwish()(before)
    assert op_names(after) == ["HardSwish"]
    assert_same_meaning(before, after, max(1e-5, 2 * unit_of(dtype)))


def test_hard_sigmoid() -> None:
    before = graph_of(lambda x, y: ramp(x) / 6.0 * y, X, X)
    after = RecogniseHardSwish()(before)
    assert op_names(after) == ["HardSigmoid", "Mul"]
    assert_same_meaning(before, after)


def test_not_hard_swish() -> None:
    before = graph_of(lambda x: x * call(Clip(0.0, 5.0), x + 3.0) / 6.0, X)
    assert RecogniseHardSwish()(before) is before
