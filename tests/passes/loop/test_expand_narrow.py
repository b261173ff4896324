"""Narrow elements in native code, through LLVM and through C, against ml_dtypes: all codes."""

from __future__ import annotations

import numpy as np
import pytest

import modelcc
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.index import Sym
from modelcc.ir.loop import Buffer, Convert, For, Function, Load, Parameter, Store
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.types import DTYPES, F16, F32, F64, I8, I32, U8, Array, DType, TensorType, dtype_of
from modelcc.ops.elementwise import Add, Cast, Equal, Where
from modelcc.ops.shape import Transpose
from modelcc.passes.loop.expand_narrow import expand_narrow

NARROW = tuple(d for d in DTYPES.values() if d.is_narrow)
FLOATS = tuple(d for d in NARROW if d.is_float)
TARGETS = ("native", "c")
INTEGERS = np.arange(-300, 300, dtype=np.int32)


def codes(dtype: DType) -> Array:
    """Every value of a narrow dtype."""
    return np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.numpy)


def numbers(dtype: DType) -> Array:
    """Numbers of every magnitude, the codes of the narrow ``dtype``, and what lies half way."""
    rng = np.random.default_rng(0)
    exact = codes(dtype).astype(np.float64)
    exact = np.sort(exact[np.isfinite(exact)])
    half = (exact[1:] + exact[:-1]) / 2
    near = np.concatenate([np.nextafter(half, -np.inf), half, np.nextafter(half, np.inf)])
    wide = rng.normal(size=4096) * 2.0 ** rng.integers(-20, 20, 4096)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30, -1e-30]
    return np.concatenate([exact, near, wide, special])


def casts(dtype: DType, target: str) -> tuple[list[Array], list[Array]]:
    """What the widest sources become in ``dtype``, and its codes in wider dtypes; with inputs."""
    sources = (F32, F16, F64) if dtype.is_float else (I32,)
    wider = (F32, F16) if dtype.is_float else (F32, I8 if dtype.kind == "int" else U8)
    build = GraphBuilder("casts")
    arrays = [codes(dtype)]
    build.input("x", TensorType(arrays[0].shape, dtype))
    outputs = [build.emit(Cast(to), "x") for to in wider]
    for source in sources:
        with np.errstate(all="ignore"):
            x = numbers(dtype).astype(source.numpy) if dtype.is_float else INTEGERS
        build.input(str(source), TensorType(x.shape, source))
        outputs.append(build.emit(Cast(dtype), str(source)))
        arrays.append(x)
    found = modelcc.compile(build.build(outputs), target, threads=1, cache=None)(*arrays)
    assert isinstance(found, tuple)
    return arrays, list(found)


def assert_same(found: Array, wanted: Array) -> None:
    """The same bits, except that any NaN is as good as another."""
    assert found.dtype == wanted.dtype
    with np.errstate(all="ignore"):
        both = np.isnan(found.astype(np.float64)) & np.isnan(wanted.astype(np.float64))
    bits = f"u{found.itemsize}"
    np.testing.assert_array_equal(found.view(bits)[~both], wanted.view(bits)[~both])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_small_floats_widen_exactly_and_are_rounded_to_nearest(dtype: DType, target: str) -> None:
    (x, single, half, double), (*wide, from_single, from_half, from_double) = casts(dtype, target)
    with np.errstate(all="ignore"):
        for found in wide:
            assert_same(found, x.astype(found.dtype))
        assert_same(from_single, single.astype(dtype.numpy))
        assert_same(from_half, half.astype(dtype.numpy))
        assert_nearest(from_double, double)


def assert_nearest(found: Array, x: Array) -> None:
    """Doubles are rounded once; ml_dtypes rounds to f32 first, which moves what lies just beside
    a middle."""
    exact = np.arange(1 << dtype_of(found).bits, dtype=np.uint8).view(found.dtype)
    exact = exact.astype(np.float64)
    exact = exact[np.isfinite(exact)]
    inside = (x > 0) & (x <= exact.max())
    nearest = np.abs(x[inside, None] - exact).min(axis=1)
    np.testing.assert_array_equal(np.abs(x - found.astype(np.float64))[inside], nearest)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [d for d in NARROW if d.is_integer], ids=str)
def test_small_integers_widen_and_keep_their_low_bits(dtype: DType, target: str) -> None:
    (x, integers), (*wide, narrow) = casts(dtype, target)
    for found in wide:
        assert_same(found, x.astype(found.dtype))
    mask = np.uint8((1 << dtype.bits) - 1)
    np.testing.assert_array_equal(narrow.view(np.uint8), integers.astype(np.uint8) & mask)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_elements_move_compare_and_add(dtype: DType, target: str) -> None:
    x = codes(dtype)[:4].reshape(2, 2)
    y = codes(dtype)[1:5].reshape(2, 2) if dtype.bits > 2 else x
    build = GraphBuilder("mixed")
    for name in ("x", "y"):
        build.input(name, TensorType((2, 2), dtype))
    moved = build.emit(Transpose((1, 0)), "x")
    equal = build.emit(Equal(), "x", "y")
    chosen = build.emit(Where(), equal, moved, "y")
    graph = build.build([moved, equal, chosen, build.emit(Add(), "x", "y")])
    found = modelcc.compile(graph, target, threads=1, cache=None)(x, y)
    with np.errstate(all="ignore"):
        wanted = (x.T, x == y, np.where(x == y, x.T, y), x + y)
    for a, b in zip(found, wanted, strict=True):
        assert_same(a, b.astype(a.dtype))


def test_buffers_become_bytes_and_the_meaning_stays() -> None:
    i, n = Sym("i"), Sym("n")
    dtype = DTYPES["f8e5m2"]
    value = Convert(Load("x", i, dtype, 4), F32)
    inputs = (Parameter(Buffer("x", dtype, n)), Parameter(Buffer("y", F32, n), True))
    function = Function("widen", inputs, ("n",), (For("i", 0, n, (Store("y", i, value),), 4),))
    expanded = expand_narrow(function)
    verify_function(expanded)
    assert [p.buffer.dtype for p in expanded.parameters] == [U8, F32]
    x = codes(dtype)
    before, after = np.zeros((2, x.size), np.float32)
    interpret_loops(function, [x, before], [x.size])
    interpret_loops(expanded, [x.view(np.uint8), after], [x.size])
    np.testing.assert_array_equal(before, after)


def test_other_functions_stay_as_they_are() -> None:
    value = Load("x", 0, F32)
    inputs = (Parameter(Buffer("x", F32, 1)), Parameter(Buffer("y", F32, 1), True))
    function = Function("copy", inputs, (), (Store("y", 0, value),))
    assert expand_narrow(function) is function
