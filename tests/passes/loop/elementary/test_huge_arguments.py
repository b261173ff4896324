"""Sines, cosines and tangents of all floats, in compiled loops, in C and in the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from native_loops import call, compiled

from modelcc.ir.index import Sym
from modelcc.ir.loop import (
    Alloc,
    Buffer,
    For,
    Function,
    If,
    Load,
    Parameter,
    ScalarCall,
    Stmt,
    Store,
)
from modelcc.ir.loop_cost import function_cost
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_traversal import statements
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.types import BF16, F16, F32, F64, DType
from modelcc.passes.loop.elementary.huge_arguments import INVERSE_TURN, TURN_BITS
from modelcc.passes.loop.elementary.trigonometric import LARGEST_USUAL
from modelcc.passes.loop.expand_math import MAX_ULP, expand_math
from modelcc.runtime.loader import load_objects
from modelcc.targets.c.emitter import emit_c
from modelcc.targets.c.toolchain import find_compiler

Runner = Callable[[Function, np.ndarray, np.ndarray], None]
NAMES = ("sin", "cos", "tan")


def function(name: str, dtype: DType, lanes: int = 8, arrays: bool = True) -> Function:
    """``name`` of each element, without elementary functions."""
    i, n = Sym("i"), Sym("n")
    value = ScalarCall(name, (Load("x", i, dtype, lanes),), dtype, lanes)
    buffers = (Parameter(Buffer("x", dtype, n)), Parameter(Buffer("out", dtype, n), True))
    loop = For("i", 0, n, (Store("out", i, value),), lanes)
    return expand_math(Function(f"{name}_{dtype}", buffers, ("n",), (loop,)), arrays)


def by_llvm(f: Function, x: np.ndarray, out: np.ndarray) -> None:
    arguments = {"x": x, "out": out}
    call(compiled([f]), f, arguments, {"n": x.size})


def by_c(f: Function, x: np.ndarray, out: np.ndarray) -> None:
    arguments = {"x": x, "out": out}
    call(load_objects([find_compiler().compile_object(emit_c([f]))]), f, arguments, {"n": x.size})


def by_interpreter(f: Function, x: np.ndarray, out: np.ndarray) -> None:
    interpret_loops(f, [x, out], [x.size])


def result(f: Function, x: np.ndarray, runner: Runner = by_llvm) -> np.ndarray:
    out = np.zeros_like(x)
    runner(f, x, out)
    return out


def floats(dtype: DType, count: int) -> np.ndarray:
    """Random bit patterns, which have all exponents, and what is special."""
    bits = np.random.default_rng(0).integers(0, 1 << dtype.bits, count - 32, dtype=np.uint64)
    anything = bits.astype(f"u{dtype.bytes}").view(dtype.numpy)
    bound, info = LARGEST_USUAL[dtype.bits], np.finfo(dtype.numpy)
    next_to = [bound * (1 - info.epsneg), bound * (1 + info.eps)]
    # Those that are nearest to a multiple of pi/2 (J.-M. Muller, "Elementary Functions", 2016).
    near = 16367173 * 2.0**72 if dtype == F32 else 6381956970095103 * 2.0**797
    special = [1e20, 3e38, info.max, info.tiny, info.tiny / 4, bound, 2 * bound, near, *next_to]
    special = [*special, *(-s for s in special), 0.0, -0.0, np.inf, -np.inf, np.nan]
    return np.concatenate([anything, np.resize(np.array(special, dtype.numpy), 32)])


def check(name: str, x: np.ndarray, got: np.ndarray) -> None:
    """Within the bound of NumPy's results in the next wider dtype."""
    info, finite = np.finfo(x.dtype), np.isfinite(x)
    np.testing.assert_array_equal(np.isnan(got), ~finite)
    wide = x[finite].astype(np.float64 if x.dtype == np.float32 else np.longdouble)
    want = getattr(np, name)(wide)
    exponent = np.frexp(np.where(want == 0, 1, want))[1] - 1
    unit = np.ldexp(np.ones_like(want), np.maximum(exponent, info.minexp) - info.nmant)
    ulp = np.abs(got[finite] - want) / unit
    assert ulp.max() <= MAX_ULP[info.bits][name], f"at {x[finite][ulp.argmax()]!r}"


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_all_exponents(name: str, dtype: DType) -> None:
    x = floats(dtype, 1 << 17)
    check(name, x, result(function(name, dtype), x))


@pytest.mark.parametrize("runner", [by_c, by_interpreter])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_all_exponents_elsewhere(dtype: DType, runner: Runner) -> None:
    x = floats(dtype, 1 << 10)
    check("cos", x, result(function("cos", dtype), x, runner))


@pytest.mark.parametrize("runner", [by_llvm, by_c, by_interpreter])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_without_arrays(name: str, dtype: DType, runner: Runner) -> None:
    x = floats(dtype, 1 << (9 if runner is by_interpreter else 15))
    for lanes in (1, 4):
        f = function(name, dtype, lanes, arrays=False)
        verify_function(f)
        assert not any(isinstance(s, Alloc) for s in statements(f.body))
        got = result(f, x, runner)
        check(name, x, got)
        np.testing.assert_array_equal(got, result(function(name, dtype, lanes), x, runner))


def test_scalars() -> None:
    x = floats(F32, 1 << 10)
    check("sin", x, result(function("sin", F32, 1), x))


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_all_halves(name: str, dtype: DType) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float32)
        single = result(function(name, F32), wide)
        rounded = single.astype(dtype.numpy)
    check(name, wide, single)
    got = result(function(name, dtype), x)
    np.testing.assert_array_equal(got.astype(np.float32), rounded.astype(np.float32))


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("odd", [1e20, np.inf, np.nan])
def test_a_huge_lane_leaves_the_others_alone(dtype: DType, odd: float) -> None:
    x = np.random.default_rng(0).standard_normal(64).astype(dtype.numpy)
    f = function("sin", dtype)
    usual = result(f, x)
    for lane in range(8):
        changed = x.copy()
        changed[lane] = odd
        got, others = result(f, changed), np.arange(64) != lane
        np.testing.assert_array_equal(got[others], usual[others])
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(got[lane], np.sin(changed[lane].astype(np.float64)), 1e-6)


def test_huge_arguments_are_a_rare_branch_that_text_keeps() -> None:
    f = function("sin", F32)
    assert isinstance(f.body[0], For)
    verify_function(f)
    assert [s.rare for s in statements(f.body) if isinstance(s, If)] == [True]
    text = print_function(f)  # to compare by: NaN is not equal to NaN
    assert print_function(parse_function(text)) == text
    without = replace(f, body=(replace(f.body[0], body=_without_branches(f.body[0].body)),))
    assert function_cost(f, {"n": 64}) == function_cost(without, {"n": 64})


def _without_branches(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    return tuple(s if not isinstance(s, If) else replace(s, then=()) for s in body)


def test_bits_of_the_inverse_turn() -> None:
    """By Machin's formula in integers."""
    bits = TURN_BITS + 64

    def arc_tangent(inverse: int) -> int:
        power, total, n = (1 << bits) // inverse, 0, 1
        while power:
            total += power // n if n % 4 == 1 else -(power // n)
            power, n = power // inverse**2, n + 2
        return total

    pi = 4 * (4 * arc_tangent(5) - arc_tangent(239))
    assert (1 << (bits + TURN_BITS)) // (2 * pi) == INVERSE_TURN
