"""What operators mean at the edges of their operands and attributes, against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import modelcc
from modelcc.frontends.onnx import import_onnx
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import Array
from modelcc.runtime.errors import RunError
from tests.frontends.onnx.onnx_models import assert_agrees, floats, i64, one_node, run_onnxruntime

REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
SIGNED = np.array([[0.5, 2, 4], [-1, 3, -5]], np.float32)


@pytest.mark.parametrize("axes", [None, np.zeros(0, np.int64)], ids=["absent", "empty"])
@pytest.mark.parametrize("constant", [(1,), ()])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_without_axes_nothing_is_reduced_but_the_rest_is_done(
    name: str, constant: tuple[int, ...], axes: Array | None
) -> None:
    x = np.abs(SIGNED) if name == "LogSum" else SIGNED
    model, feeds = one_node(f"Reduce{name}", [x, axes], 18, constant, noop_with_empty_axes=1)
    assert_agrees(model, feeds)


@pytest.mark.parametrize("name", ["LogSum", "LogSumExp", "L2"])
def test_logarithms_and_roots_of_integers(name: str) -> None:
    x = np.array([[1, 20, 300], [4, 50, 6]], np.int32)
    model, feeds = one_node(f"Reduce{name}", [x, np.array([1])], 18, (1,))
    assert_agrees(model, feeds)


@pytest.mark.parametrize("late", [False, True])
def test_a_bound_that_is_not_a_number_makes_everything_one(late: bool) -> None:
    x = floats(7)
    bounds: list[Array | None] = [x, np.array(np.nan, np.float32), np.array(1, np.float32)]
    model, feeds = one_node("Clip", bounds, 17, () if late else (1, 2))
    (y,) = modelcc.compile(model, threads=1, cache=None).run(feeds).values()
    np.testing.assert_array_equal(y, np.clip(x, np.nan, 1))


M, LEAST = 2**63 - 1, -(2**63)
GRID = np.arange(12, dtype=np.float32).reshape(3, 4) + 1
EXTREMES: list[tuple[str, Sequence[Array | np.generic | None]]] = [
    *(("Trilu", [GRID, np.array(k)]) for k in (M, LEAST, 2**40, -(2**40))),
    *(
        ("Slice", [GRID, *(i64(v) for v in (first, last, 0, step))])
        for first, last, step in (
            (1, 3, M), (1, 3, LEAST), (M, LEAST, LEAST), (LEAST, M, M), (LEAST, 3, M - 1),
            (2, LEAST, -1), (-1, LEAST, LEAST + 1),
        )
    ),
    *(
        ("Range", [np.int64(v) for v in line])
        for line in ((0, 10, M), (10, 0, LEAST), (LEAST, M, M), (M, LEAST, LEAST), (M - 2, M, 1),
                     (LEAST, M, 2**61), (3, 3, 1), (0, 10, -1))
    ),
    ("Range", [np.int32(v) for v in (-(2**31), 2**31 - 1, 2**30)]),
    *(("Range", [np.float32(v) for v in line]) for line in ((0, 10, 1e30), (1e8, 1e8 + 32, 8))),
    # 3 steps, rounded up: their quotient in f32 is 3, in f64 a little more.
    ("Range", [np.float32(0), np.float32(1.1) * np.float32(3), np.float32(1.1)]),
]  # fmt: skip


@pytest.mark.share(2, "operands", "constant")
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(("op", "operands"), EXTREMES)
def test_numbers_at_the_limits(op: str, operands: list[Array | None], constant: bool) -> None:
    fixed = tuple(range(op != "Range", len(operands))) if constant else ()
    model, feeds = one_node(op, operands, 18, fixed)
    assert_agrees(model, feeds)
    (y,) = modelcc.compile(model, threads=1, cache=None).run(feeds).values()
    np.testing.assert_array_equal(y, run_onnxruntime(model, feeds)["y0"])


REFUSED: list[tuple[str, Sequence[Array | np.generic | None]]] = [
    ("Reshape", [GRID, i64(-2, 12)]),
    ("Slice", [GRID, i64(0), i64(1), i64(100), i64(1)]),
    ("Slice", [GRID, i64(0), i64(1), i64(0), i64(0)]),
    ("CumSum", [GRID, np.array(100)]),
    ("ReduceSum", [GRID, i64(100)]),
    ("ReduceMean", [GRID, i64(-3)]),
    ("Squeeze", [GRID[None], i64(7)]),
    ("Unsqueeze", [GRID, i64(7)]),
    ("Pad", [GRID, i64(1, 1), np.float32(0), i64(9)]),
    ("Range", [np.int64(0), np.int64(3), np.int64(0)]),
    ("Range", [np.float32(0), np.float32(3), np.float32(0)]),
    ("Range", [np.float32(0), np.float32(np.nan), np.float32(1)]),
    ("Tile", [GRID, i64(-1, 1)]),
    ("Expand", [GRID, i64(-1, 3, 4)]),
    ("ConstantOfShape", [i64(-1, 2)]),
]


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(("op", "operands"), REFUSED)
def test_numbers_out_of_range_are_refused(
    op: str, operands: list[Array | None], constant: bool
) -> None:
    """At import where they are constants, else by the run that meets them."""
    first = op not in ("Range", "ConstantOfShape")
    fixed = tuple(range(first, len(operands))) if constant else ()
    model, feeds = one_node(op, operands, 18, fixed)
    if constant:
        with pytest.raises(modelcc.ModelError, match=f"{op}#0"):
            import_onnx(model)
    else:
        net = modelcc.compile(model, threads=1, cache=None)
        with pytest.raises(RunError, match=f"{op}#0"):
            net.run(feeds)


BASES = np.array([0, 1, 2, 4, 3, 5, 2, 7, 3, -2, 100])
POWERS = np.array([0.3, 0.5, 1.5, 0.5, 2, 3, 0, -1, 19, 3, 0.5])
INTEGERS, FLOATS = (np.int32, np.int64), (np.float32, np.float64)


@pytest.mark.parametrize("constant", [(1,), ()])
@pytest.mark.parametrize("exponent", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("base", [*INTEGERS, *FLOATS])
def test_powers_of_mixed_types(base: type, exponent: type, constant: tuple[int, ...]) -> None:
    model, feeds = one_node("Pow", [BASES.astype(base), POWERS.astype(exponent)], 15, constant)
    assert_agrees(model, feeds)
    (y,) = modelcc.compile(model, threads=1, cache=None).run(feeds).values()
    np.testing.assert_allclose(y, run_onnxruntime(model, feeds)["y0"], rtol=1e-6)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(
    ("height", "window"),
    [
        (1, {"kernel_shape": [2, 2], "strides": [2, 2]}),
        (1, {"kernel_shape": [3, 2], "strides": [3, 1]}),
        (2, {"kernel_shape": [4, 2], "strides": [3, 1], "ceil_mode": 1}),
        (1, {"kernel_shape": [4, 2], "strides": [3, 1], "pads": [1, 0, 0, 0]}),
        (2, {"kernel_shape": [2, 2], "strides": [2, 1], "dilations": [2, 1]}),
        (1, {"kernel_shape": [3, 2], "strides": [3, 1], "auto_pad": "VALID"}),
    ],
)
def test_windows_that_are_larger_than_the_image(
    height: int, window: dict[str, Any], op: str, named: bool
) -> None:
    x = floats(1, 2, height, 5)
    model, feeds = one_node(op, [x], 22, **window)
    if named:
        model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "h"
    assert_agrees(model, feeds)
    net = modelcc.compile(model, threads=1, cache=None)
    for rows in (height, 7) if named else (height,):
        feeds = {"x0": floats(1, 2, rows, 5)}
        (y,) = net.run(feeds).values()
        np.testing.assert_allclose(y, run_onnxruntime(model, feeds)["y0"], rtol=1e-5, atol=1e-6)


def test_points_at_the_rim_of_an_image() -> None:
    box, number = np.array([[-5, -5, 10, 10]], np.float32), np.zeros(1, np.int64)
    attributes: dict[str, Any] = {"output_height": 2, "output_width": 3, "sampling_ratio": 0}
    model, feeds = one_node("RoiAlign", [floats(1, 1, 5, 5), box, number], 18, **attributes)
    assert_agrees(model, feeds)
    (y,) = modelcc.compile(model, threads=1, cache=None).run(feeds).values()
    np.testing.assert_allclose(y, run_onnxruntime(model, feeds)["y0"], atol=1e-6)


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_cubic_samples_are_those_of_the_standards_evaluator(padding: str, align: int) -> None:
    places = floats(1, 4, 5, 2, seed=1, low=-1.4, high=1.4)
    attributes: dict[str, Any] = {"mode": "cubic", "padding_mode": padding, "align_corners": align}
    model, feeds = one_node("GridSample", [floats(1, 1, 4, 5), places], 20, **attributes)
    (wanted,) = map(np.asarray, ReferenceEvaluator(model).run(None, feeds))
    (found,) = interpret(import_onnx(model), feeds).values()
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    (y,) = modelcc.compile(model, threads=1, cache=None).run(feeds).values()
    np.testing.assert_allclose(y, wanted, atol=1e-5)


@pytest.mark.parametrize("target", ["native", "c"])
@pytest.mark.parametrize("to", ["uint8", "int8", "uint16", "int16"])
def test_floats_beyond_narrow_integers_are_cut_to_their_lowest_bits(to: str, target: str) -> None:
    """In vectors and in what is left of them."""
    x = np.tile(np.array([-1.5, 256, 300.7, -129, 70000, -70000, 3], np.float32), 11)
    code = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    model, feeds = one_node("Cast", [x], 19, to=code)
    (y,) = modelcc.compile(model, target=target, threads=1, cache=None).run(feeds).values()
    np.testing.assert_array_equal(y, np.trunc(x).astype(np.int32).astype(to))
    np.testing.assert_array_equal(y, run_onnxruntime(model, feeds)["y0"])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainders_of_quotients_of_any_size(dtype: type) -> None:
    name = "float" if dtype is np.float32 else "double"
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    g ({name}[n] x, {name}[n] y) => ({name}[n] z) {{ z = Mod <fmod = 1> (x, y) }}"""
    random, info = np.random.default_rng(0), np.finfo(dtype)
    low, high = info.minexp - info.nmant, info.maxexp - 1
    x, y = (
        np.ldexp(random.uniform(-2, 2, 20_000), random.integers(low, high, 20_000)).astype(dtype)
        for _ in range(2)
    )
    x[:7], y[:7] = [0, -0.0, np.inf, np.nan, 1, 5, 1e38], [1, 1, 2, 3, 0, np.inf, 3]
    with np.errstate(all="ignore"):
        wanted = np.fmod(x, y)
    net = modelcc.compile(onnx.parser.parse_model(text), threads=1, cache=None)
    np.testing.assert_array_equal(net(x, y), wanted)
