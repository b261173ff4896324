"""Elementary functions against NumPy and the C library in higher precision, everywhere."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from machines import chosen_cpu
from native_loops import call, compiled

from modelcc.ir.index import Sym
from modelcc.ir.loop import Buffer, Const, Expr, For, Function, Load, Parameter, ScalarCall, Store
from modelcc.ir.loop_traversal import statement_expressions, statements, walk
from modelcc.ir.types import F16, F32, F64, I32, I64, U8, DType
from modelcc.passes.loop.expand_math import EXPANSIONS, MAX_ULP, ROUNDED_TWICE, expand_math
from modelcc.runtime.loader import NativeCode

i, n = Sym("i"), Sym("n")
UNARY = tuple(f for f in EXPANSIONS if f not in ("fmod", "mod"))
WIDE = {"asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "asin": np.arcsin,
        "acos": np.arccos, "atan": np.arctan}  # fmt: skip


def elementwise(value: Expr, dtype: DType, name: str = "f", operands: str = "x") -> Function:
    inputs = tuple(Parameter(Buffer(x, dtype, n)) for x in operands)
    outputs = (Parameter(Buffer("out", value.dtype, n), True),)
    loop = For("i", 0, n, (Store("out", i, value),), value.lanes)
    return Function(name, inputs + outputs, ("n",), (loop,))


def unary(name: str, dtype: DType) -> Function:
    lanes = 64 // dtype.bytes
    value = ScalarCall(name, (Load("x", i, dtype, lanes),), dtype, lanes)
    return expand_math(elementwise(value, dtype, f"{name}_{dtype}"))


def run(function: Function, *operands: np.ndarray, code: NativeCode | None = None) -> np.ndarray:
    dtype = function.parameters[-1].buffer.dtype
    arguments = dict(zip("xy", operands, strict=False))
    arguments["out"] = np.zeros(operands[0].shape, dtype.numpy)
    call(code or compiled([function]), function, arguments, {"n": operands[0].size})
    return arguments["out"]


@pytest.fixture(scope="module")
def code() -> NativeCode:
    return compiled([unary(f, dtype) for dtype in (F32, F64) for f in UNARY])


def points(dtype: DType, count: int = 1 << 15) -> np.ndarray:
    """All magnitudes, the usual ranges, and special values."""
    rng = np.random.default_rng(0)
    info = np.finfo(dtype.numpy)
    whole = rng.integers(0, 1 << (info.bits - 1), count, dtype=np.uint64)
    anywhere = whole.astype(f"u{info.bits // 8}").view(dtype.numpy)
    ranges = [rng.uniform(-w, w, count).astype(dtype.numpy) for w in (1e-3, 1, 10, 100, 1000)]
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.5, info.tiny, info.max]
    edges = np.resize(np.array([*special, -info.max], dtype.numpy), 64)
    return np.concatenate([anywhere, -anywhere, *ranges, edges])


def reference(name: str, x: np.ndarray) -> np.ndarray:
    """In f64 for f32, in extended precision for f64 where NumPy has it."""
    if name == "erf":
        return np.vectorize(math.erf, [np.float64])(x.astype(np.float64))
    wide = np.float64 if x.dtype == np.float32 else np.longdouble
    if name == "sigmoid":
        return 1 / (1 + np.exp(-x.astype(np.longdouble)))
    return (WIDE[name] if name in WIDE else getattr(np, name))(x.astype(wide))


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_error_is_within_its_bound(name: str, dtype: DType, code: NativeCode) -> None:
    x = points(dtype)
    info = np.finfo(dtype.numpy)
    x = np.resize(x, x.size // 16 * 16)
    got = run(unary(name, dtype), x, code=code)
    with np.errstate(all="ignore"):
        want = reference(name, x)
        rounded = want.astype(dtype.numpy)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
    infinite = np.isinf(got) | np.isinf(rounded)
    np.testing.assert_array_equal(got[infinite], rounded[infinite])
    finite = np.isfinite(rounded) & ~infinite
    tiny = finite & (np.abs(rounded) < 4 * info.tiny)
    np.testing.assert_allclose(got[tiny], rounded[tiny], atol=2 * info.tiny)
    usual = finite & ~tiny
    unit = np.exp2(np.floor(np.log2(np.abs(want[usual]))) - info.nmant)
    ulp = np.abs(got[usual] - want[usual]) / unit
    bound = MAX_ULP[dtype.bits][name] * (1 if chosen_cpu().fused else ROUNDED_TWICE)
    assert ulp.max() <= bound, f"at {x[usual][ulp.argmax()]!r}"


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_tanh_is_one_far_from_zero_and_never_more(dtype: DType, code: NativeCode) -> None:
    """Also in a sum with it, where a product would not be rounded by itself."""
    near = np.linspace(7, 9, 1 << 14)
    far = 10.0 ** np.linspace(1.4, 38, 63)
    x = np.concatenate([near, far, [np.inf]]).astype(dtype.numpy)
    found = run(unary("tanh", dtype), x, code=code)
    assert found.max() == 1 and (found[near.size :] == 1).all()
    one, lanes = Const(1, dtype, 8), 8
    tangent = ScalarCall("tanh", (Load("x", i, dtype, lanes),), dtype, lanes)
    rest = expand_math(elementwise(ScalarCall("sub", (one, tangent), dtype, lanes), dtype))
    np.testing.assert_array_equal(run(rest, x)[near.size :], 0)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_pow_of_floats(dtype: DType) -> None:
    lanes = 8
    operands = tuple(Load(b, i, dtype, lanes) for b in "xy")
    value = ScalarCall("pow", operands, dtype, lanes)
    rng = np.random.default_rng(0)
    special = [0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, np.inf, -np.inf, np.nan, 1e10, 7, 101]
    x = np.repeat(special, 16).astype(dtype.numpy)
    y = np.tile(special, 16).astype(dtype.numpy)
    x = np.concatenate([x, rng.uniform(0, 10, 4096).astype(dtype.numpy)])
    y = np.concatenate([y, rng.uniform(-20, 20, 4096).astype(dtype.numpy)])
    got = run(expand_math(elementwise(value, dtype, operands="xy")), x, y)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.longdouble), y.astype(np.longdouble)).astype(dtype.numpy)
    np.testing.assert_allclose(got, want, 1.2e-7 if dtype == F32 else 1e-13, 1e-300)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7, -1, -2, 0.5, -0.5, 1.5, 17])
def test_pow_with_a_constant(exponent: float) -> None:
    value = ScalarCall("pow", (Load("x", i, F32, 8), Const(exponent, F32, 8)), F32, 8)
    function = expand_math(elementwise(value, F32))
    x = np.random.default_rng(0).uniform(0.1, 9, 64).astype(np.float32)
    np.testing.assert_allclose(run(function, x), x.astype(np.float64) ** exponent, 6e-7)
    few = len(list(statements(function.body))) < 12
    assert few == (exponent not in (1.5, 17))


@pytest.mark.parametrize("dtype", [I32, I64, U8], ids=str)
def test_pow_of_integers(dtype: DType) -> None:
    value = ScalarCall("pow", tuple(Load(b, i, dtype, 4) for b in "xy"), dtype, 4)
    function = expand_math(elementwise(value, dtype, operands="xy"))
    low = 0 if dtype == U8 else -5
    x, y = (a.ravel().astype(dtype.numpy) for a in np.mgrid[low:5:10j, 0:12:12j])
    np.testing.assert_array_equal(run(function, x, y), np.power(x, y))
    if dtype != U8:
        x = np.array([1, -1, 2, -1], dtype.numpy)
        y = np.array([-3, -3, -3, -2], dtype.numpy)
        np.testing.assert_array_equal(run(function, x, y), [1, -1, 0, 1])


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", ["fmod", "mod"])
def test_remainders(name: str, dtype: DType) -> None:
    value = ScalarCall(name, tuple(Load(b, i, dtype, 8) for b in "xy"), dtype, 8)
    rng = np.random.default_rng(0)
    special = [0.0, -0.0, 1, -1, 2.5, -2.5, 3, -3, 0.1, -0.1, np.inf, -np.inf, np.nan, 6, 7, 9]
    x = np.concatenate([np.repeat(special, 16), rng.uniform(-1e4, 1e4, 4096)])
    y = np.concatenate([np.tile(special, 16), rng.uniform(-10, 10, 4096)])
    x, y = x.astype(dtype.numpy), y.astype(dtype.numpy)
    got = run(expand_math(elementwise(value, dtype, operands="xy")), x, y)
    with np.errstate(all="ignore"):
        want = getattr(np, name)(x, y)
    np.testing.assert_allclose(got, want, 1e-6 if dtype == F32 else 1e-13)


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=str)
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremes_that_keep_nan(name: str, dtype: DType) -> None:
    value = ScalarCall(name, tuple(Load(b, i, dtype, 8) for b in "xy"), dtype, 8)
    special = [0.0, 1, -1, np.inf, -np.inf, np.nan, 7, -7]
    x, y = (f(special, 8).astype(dtype.numpy) for f in (np.repeat, np.tile))
    got = run(expand_math(elementwise(value, dtype, operands="xy")), x, y)
    np.testing.assert_array_equal(got, getattr(np, name)(x, y))


def test_halves_are_computed_in_single_precision() -> None:
    function = unary("tanh", F16)
    x = np.linspace(-5, 5, 64).astype(np.float16)
    np.testing.assert_array_equal(run(function, x), np.tanh(x.astype(np.float32)).astype(x.dtype))


def test_no_elementary_function_is_left_and_equal_calls_are_expanded_once() -> None:
    x = Load("x", i, F32, 16)
    one = ScalarCall("exp", (x,), F32, 16)
    two = ScalarCall("add", (one, ScalarCall("tanh", (one,), F32, 16)), F32, 16)
    function = expand_math(elementwise(two, F32))
    found = [e for s in statements(function.body) for o in statement_expressions(s)
             for e in walk(o)]  # fmt: skip
    assert not {e.function for e in found if isinstance(e, ScalarCall)} & set(EXPANSIONS)
    assert sum(isinstance(e, Load) for e in found) == 1
    assert expand_math(function) == function


def test_names_stay_unique() -> None:
    function = unary("exp", F32)
    again = dataclasses.replace(function.body[0], variable="j")
    twice = expand_math(dataclasses.replace(function, body=(*function.body, again)))
    assert twice.body[0] == function.body[0]
