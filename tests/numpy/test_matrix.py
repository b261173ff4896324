"""Functions × element types × shapes against NumPy: values, shapes, and types of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import modelcc.numpy as mnp
from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array
from modelcc.tensor.evaluation import evaluate
from modelcc.tensor.tensor import Tensor

DTYPES = ("float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool")
SHAPES: tuple[tuple[int, ...], ...] = ((), (3,), (2, 1, 3))
PAIRS = ((SHAPES[0], SHAPES[1]), (SHAPES[1], SHAPES[1]), (SHAPES[1], SHAPES[2]), ((2, 2, 1), (3,)))

EVERYWHERE = (
    *("exp", "expm1", "sin", "cos", "tan", "arctan", "sinh", "tanh", "arcsinh", "square"),
    *("abs", "sign", "floor", "ceil", "trunc", "rint", "isnan", "isinf", "isfinite", "negative"),
    *("logical_not", "exp2", "cbrt", "deg2rad"),
)
POSITIVE = ("log", "log1p", "log2", "log10", "sqrt", "arccosh")
UNIT = ("arcsin", "arccos", "arctanh", "reciprocal")
PAIRWISE = (
    *("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "fmod", "maximum"),
    *("minimum", "fmax", "fmin", "equal", "not_equal", "less", "less_equal", "greater", "hypot"),
    *("greater_equal", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or"),
    *("bitwise_xor", "arctan2", "logaddexp", "copysign", "power"),
)
REDUCTIONS = (
    *("sum", "prod", "max", "min", "mean", "var", "std", "any", "all", "argmax", "argmin"),
    *("cumsum", "cumprod", "ptp", "median", "sort", "argsort", "diff"),
)


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, low: float) -> Array:
    """From ``low`` on, at most 3; whole numbers without 0, which has cases of its own."""
    kind = np.dtype(dtype)
    if kind == np.bool_:
        return rng.integers(0, 2, shape).astype(kind)
    if kind.kind == "f":
        return rng.uniform(low, 3, shape).astype(kind)
    found = rng.integers(int(low) if kind.kind == "i" else max(int(low), 1), 4, shape)
    return np.asarray(np.where(found == 0, 1, found)).astype(kind)


def tolerance(dtype: Any) -> float:
    return {"float16": 4e-3, "float32": 2e-5, "float64": 1e-9}.get(np.dtype(dtype).name, 0.0)


def compare(name: str, cases: Iterator[tuple[Array, ...]], **options: Any) -> None:
    """All cases in one evaluation."""
    wanted: list[tuple[str, Array]] = []
    found: list[Tensor] = []
    theirs: Callable[..., Any] = getattr(np, name)
    ours: Callable[..., Any] = getattr(mnp, name)
    for operands in cases:
        tensors = [Tensor(x) for x in operands]
        case = f"{name}({', '.join(f'{x.dtype}{list(x.shape)}' for x in operands)}, {options})"
        try:
            with np.errstate(all="ignore"):
                expected = np.asarray(theirs(*operands, **options))
        except TypeError:
            with pytest.raises((ModelError, TypeError)):
                ours(*tensors, **options).numpy()
            continue
        wanted.append((case, expected))
        found.append(ours(*tensors, **options))
    evaluate(found)
    for (case, expected), tensor in zip(wanted, found, strict=True):
        assert tensor.dtype.numpy == expected.dtype, case
        assert tensor.shape == expected.shape, case
        rtol = tolerance(expected.dtype)
        np.testing.assert_allclose(
            tensor.numpy().astype(np.float64), expected.astype(np.float64), rtol, rtol, True, case
        )


def of_one(low: float, dtypes: tuple[str, ...] = DTYPES) -> Iterator[tuple[Array, ...]]:
    rng = np.random.default_rng(0)
    for dtype in dtypes:
        yield (values(rng, SHAPES[rng.integers(len(SHAPES))], dtype, low),)


@pytest.mark.parametrize("name", EVERYWHERE)
def test_functions_of_elements(name: str) -> None:
    compare(name, of_one(-3))


@pytest.mark.parametrize("name", POSITIVE)
def test_functions_of_positive_elements(name: str) -> None:
    compare(name, of_one(1.0))


@pytest.mark.parametrize("name", UNIT)
def test_functions_of_elements_up_to_one(name: str) -> None:
    def cases() -> Iterator[tuple[Array, ...]]:
        for (x,) in of_one(-3, ("float32", "float64", "float16")):
            yield ((x / 3.5).astype(x.dtype),)

    compare(name, cases())


LONG = ("arctan2", "hypot", "logaddexp", "copysign", "fmax", "fmin")
"""Made of many operations, which take their time to compile."""

DIVISIONS = ("floor_divide", "remainder", "fmod")
"""Of whole numbers by 0 gives what the processor makes of it, NumPy 0."""


@pytest.mark.parametrize("name", PAIRWISE)
def test_functions_of_pairs(name: str) -> None:
    """Every type with itself and with the next ones, every pair of shapes."""
    rng = np.random.default_rng(1)

    def cases() -> Iterator[tuple[Array, ...]]:
        for k, left in enumerate(DTYPES):
            others = () if name in LONG else (DTYPES[(k + 3) % 8], DTYPES[(k + 6) % 8])
            for right in (left, DTYPES[(k + 1) % 8], *others):
                shapes = PAIRS[rng.integers(len(PAIRS))]
                low = 1.0 if name == "power" else -3.0
                a, b = values(rng, shapes[0], left, low), values(rng, shapes[1], right, low)
                yield a, b | True if right == "bool" and name in DIVISIONS else b

    compare(name, cases())


@pytest.mark.share(3, "name", "axis")
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_reductions(name: str, axis: int | None) -> None:
    rng = np.random.default_rng(2)
    options: dict[str, Any] = {} if name == "diff" and axis is None else {"axis": axis}
    options |= {"kind": "stable"} if name == "argsort" else {}
    types = tuple(t for t in DTYPES if not (name == "median" and t == "float16"))
    compare(name, ((values(rng, (2, 5), t, -3),) for t in types), **options)


@pytest.mark.parametrize("name", ["sum", "max", "mean", "std", "all"])
def test_reductions_of_several_axes_that_are_kept(name: str) -> None:
    rng = np.random.default_rng(3)
    cases = ((values(rng, (2, 3, 4), t, -3),) for t in ("float32", "int32", "bool"))
    compare(name, cases, axis=(0, -1), keepdims=True)


NUMBERS = (True, 2, 1.5)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", ["__add__", "__rsub__", "__mul__", "__truediv__", "__lt__"])
def test_numbers_of_python_take_the_type_of_the_tensor(name: str, number: float) -> None:
    rng = np.random.default_rng(4)
    given = [values(rng, (3,), t, -3) for t in DTYPES]
    found = [getattr(Tensor(x), name)(number) for x in given if not refuses(x, name, number)]
    wanted = [getattr(x, name)(number) for x in given if not refuses(x, name, number)]
    evaluate(found)
    for tensor, expected in zip(found, wanted, strict=True):
        assert tensor.dtype.numpy == expected.dtype
        np.testing.assert_allclose(tensor.numpy(), expected, 4e-3)


def refuses(x: Array, name: str, number: float) -> bool:
    """NumPy has no difference of bools."""
    return x.dtype == np.bool_ and number is True and "sub" in name


SPECIAL = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan], np.float32)


@pytest.mark.parametrize(
    "name",
    ["arctan2", "hypot", "copysign", "logaddexp", "fmax", "fmin", "maximum", "minimum", "isclose",
     "heaviside", "equal", "less"],
)  # fmt: skip
def test_pairs_of_special_numbers(name: str) -> None:
    a, b = np.repeat(SPECIAL, 7), np.tile(SPECIAL, 7)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(a, b)
    found = getattr(mnp, name)(a, b).numpy()
    np.testing.assert_allclose(found, expected, 1e-6)
    if name in ("arctan2", "copysign"):
        known = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found)[known], np.signbit(expected)[known])


@pytest.mark.parametrize("name", ["signbit", "nan_to_num", "isneginf", "isposinf", "isnan", "sign"])
def test_special_numbers(name: str) -> None:
    np.testing.assert_array_equal(getattr(mnp, name)(SPECIAL).numpy(), getattr(np, name)(SPECIAL))
