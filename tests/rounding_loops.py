"""Loops that convert and round all there is, against NumPy's bits, run by every executor."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from loop_programs import Runner, i

from modelcc.ir.loop import (
    Bitcast,
    Buffer,
    Convert,
    For,
    Function,
    Load,
    Parameter,
    ScalarCall,
    Store,
)
from modelcc.ir.types import BF16, F32, U16, DType


def elementwise(
    name: str, buffers: Mapping[str, DType], stores: tuple[Store, ...], count: int, lanes: int
) -> Function:
    """A loop of ``stores`` over buffers of ``count`` elements."""
    written = {store.buffer for store in stores}
    parameters = tuple(Parameter(Buffer(b, d, count), b in written) for b, d in buffers.items())
    return Function(name, parameters, (), (For("i", 0, count, stores, lanes),))


def check_all_halves(dtype: DType, lanes: int, run: Runner) -> None:
    """Every value of a 16-bit float is widened and narrowed exactly; NaN stays NaN."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    wide = Convert(Load("h", i, dtype, lanes), F32)
    stores = (Store("w", i, wide), Store("b", i, Bitcast(Convert(wide, dtype), U16)))
    halves = elementwise("halves", {"h": dtype, "w": F32, "b": U16}, stores, 1 << 16, lanes)
    values = bits.view(dtype.numpy)
    wide_values, again = np.zeros(1 << 16, np.float32), np.zeros_like(bits)
    run(halves, {"h": values, "w": wide_values, "b": again}, {})
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(wide_values, values.astype(np.float32))
    number = ~np.isnan(wide_values)
    np.testing.assert_array_equal(again[number], bits[number])
    back = again[~number]
    assert np.isnan(back.view(dtype.numpy).astype(np.float32)).all()
    np.testing.assert_array_equal(back >> 15, bits[~number] >> 15)


def check_rounding_to_halves(dtype: DType, lanes: int, run: Runner) -> None:
    """Any f32 becomes the nearest 16-bit float, the even one of two that are equally near;
    NaN becomes a quiet NaN."""
    count = 1 << 16
    rng = np.random.default_rng(0)
    values = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    small = rng.standard_normal(count // 4) * 2.0 ** rng.integers(-30, 18, count // 4)
    values[: count // 4] = small.astype(np.float32).view(np.uint32)
    exact = np.resize(np.arange(1 << 16, dtype=np.uint16), count // 4).view(dtype.numpy)
    between = exact.astype(np.float32).view(np.uint32)
    half = np.uint32(1 << (15 if dtype == BF16 else 12))
    values[count // 4 : count // 2] = between + half + rng.integers(-1, 2, count // 4).astype("u4")
    specials = np.array([65519.99, 65520, 2.0**-25, 2.0**-24 * 1.5, 1e-40, -1e-45], np.float32)
    values[:6] = specials.view(np.uint32)
    x = values.view(np.float32)
    store = Store("h", i, Convert(Load("x", i, F32, lanes), dtype))
    arguments = {"x": x, "h": np.zeros(count, dtype.numpy)}
    run(elementwise("narrow", {"x": F32, "h": dtype}, (store,), count, lanes), arguments, {})
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = x.astype(dtype.numpy)
        nan = np.isnan(x)
        assert np.isnan(arguments["h"][nan].astype(np.float32)).all()
    found = arguments["h"].view(np.uint16)
    assert (found[nan] & (0x40 if dtype == BF16 else 0x200)).all()
    np.testing.assert_array_equal(found[~nan], wanted.view(np.uint16)[~nan])


def check_rounding(dtype: DType, lanes: int, run: Runner) -> None:
    """``floor``, ``ceil``, ``trunc`` and ``round`` give NumPy's bits for any float."""
    functions = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint}
    rng = np.random.default_rng(0)
    whole = 2.0 ** (23 if dtype == F32 else 52)
    near = np.arange(-8, 8) / 4
    edges = [near, near + whole, near - whole, near + whole / 2, [-0.0, np.inf, -np.inf, np.nan]]
    spread = rng.standard_normal(4096) * 2.0 ** rng.integers(-5, 60, 4096)
    values = np.concatenate([*edges, [5e-324, -1e-40, 1e-300], spread]).astype(dtype.numpy)
    values = np.resize(values, 4224)
    load = Load("x", i, dtype, lanes)
    stores = tuple(Store(name, i, ScalarCall(name, (load,), dtype, lanes)) for name in functions)
    buffers = dict.fromkeys(("x", *functions), dtype)
    arguments = {name: np.zeros_like(values) for name in buffers} | {"x": values}
    run(elementwise("rounding", buffers, stores, len(values), lanes), arguments, {})
    bits, nan = f"u{dtype.bytes}", np.isnan(values)
    for name, meaning in functions.items():
        assert np.isnan(arguments[name][nan]).all()
        wanted = meaning(values)[~nan].view(bits)
        np.testing.assert_array_equal(arguments[name][~nan].view(bits), wanted, name)
