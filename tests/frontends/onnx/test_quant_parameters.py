"""Scales and zero points of a named length, which is 1 or one for each slice when the model runs.

Against onnxruntime, with bytes so small that its pairwise sums in 16 bits do not saturate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import modelcc
from modelcc.ir.types import Array
from tests.frontends.onnx.one_node import by_modelcc, by_onnxruntime, one_node

MS = "com.microsoft"
I32, U8, F32 = TensorProto.INT32, TensorProto.UINT8, TensorProto.FLOAT
IMAGE = (1, 3, 5, 5)


def u8(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).integers(0, 100, shape).astype(np.uint8)


def i8(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).integers(-50, 50, shape).astype(np.int8)


def scale(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).uniform(0.01, 0.1, shape).astype(np.float32)


def model_of(
    op: str,
    operands: Sequence[Array | None],
    output: int,
    attributes: Mapping[str, Any],
    numbers: Sequence[int],
) -> ModelProto:
    """Extents have names but for those of the operands ``numbers``."""
    shapes = [
        () if array is None else array.shape if k in numbers else
        [f"i{k}_{axis}" for axis in range(array.ndim)]
        for k, array in enumerate(operands)
    ]  # fmt: skip
    model = one_node(op.removeprefix("ms."), shapes, operands, [output], attributes, 21)
    if op.startswith("ms."):
        model.graph.node[0].domain = MS
        model.opset_import.append(helper.make_opsetid(MS, 1))
    return model


def per_slice(n: int) -> list[tuple[str, list[Array | None], int, dict[str, Any], list[int]]]:
    """Operators whose parameters are ``n`` numbers, each with operands of 4 slices."""
    left: list[Array | None] = [u8(3, 5), scale(1), u8(1)]
    right: list[Array | None] = [i8(5, 4), scale(n), i8(n)]
    result: list[Array | None] = [scale(1), u8(1)]
    point: list[Array | None] = [u8(3, 5), scale(), u8()]
    image: list[Array | None] = [u8(*IMAGE), scale(1), u8(1)]
    kernel: list[Array | None] = [u8(4, 3, 3, 3), scale(n), u8(n)]
    return [
        ("MatMulInteger", [u8(3, 5), i8(5, 4), u8(1), i8(n)], I32, {}, []),
        ("MatMulInteger", [u8(3, 5), i8(5, 4), None, i8(n)], I32, {}, []),
        ("QLinearMatMul", [*left, *right, *result], U8, {}, []),
        ("QLinearMatMul", [*point, *right, scale(), u8()], U8, {}, []),
        ("QLinearConv", [*image, *kernel, *result], U8, {}, [0, 3]),
        ("QuantizeLinear", [scale(3, 4), scale(n), u8(n)], U8, {}, []),
        ("QuantizeLinear", [scale(4, 3), scale(n), u8(n)], U8, {"axis": -2}, []),
        ("DequantizeLinear", [u8(3, 4), scale(n), u8(n)], F32, {}, []),
        ("DequantizeLinear", [u8(3, 4), scale(n)], F32, {}, [0]),
        ("ms.MatMulIntegerToFloat", [u8(3, 5), i8(5, 4), scale(1), scale(n), u8(1), i8(n)],
         F32, {}, []),
        ("ms.DynamicQuantizeMatMul", [scale(3, 5), i8(5, 4), scale(n), i8(n)], F32, {}, []),
        ("ms.QGemm", [*left, *right], F32, {}, []),
        ("ms.QGemm", [*left, *right, None, *result], U8, {}, []),
        ("ms.QGemm", [*left, i8(4, 5), scale(n), i8(n)], F32, {"transB": 1}, []),
    ]  # fmt: skip


def per_tensor(n: int) -> list[tuple[str, list[Array | None], int, dict[str, Any], list[int]]]:
    """Operators whose parameters are one number, as vectors of ``n``."""
    x: list[Array | None] = [u8(3, 4), scale(n), u8(n)]
    y: list[Array | None] = [scale(1), u8(1)]
    return [
        ("ConvInteger", [u8(*IMAGE), u8(4, 3, 3, 3), u8(n), u8(1)], I32, {}, [0, 1]),
        ("QLinearConv", [u8(*IMAGE), scale(n), u8(n), u8(4, 3, 3, 3), scale(4), u8(4), *y],
         U8, {}, [0, 3]),
        ("QuantizeLinear", [scale(4), scale(n), u8(n)], U8, {}, []),
        ("DequantizeLinear", [u8(), scale(n), u8(n)], F32, {}, []),
        ("ms.QLinearSigmoid", [*x, *y], U8, {}, []),
        ("ms.QLinearConcat", [*y, *x, *x], U8, {"axis": 1}, []),
        ("ms.QLinearLeakyRelu", [*x, *y], U8, {}, []),
    ]  # fmt: skip


def named(case: tuple[Any, ...]) -> str:
    return f"{case[0]}-{'-'.join(str(a.ndim) for a in case[1] if a is not None)}"


SLICES, TENSORS = len(per_slice(1)), len(per_tensor(1))


def feeds(operands: Sequence[Array | None]) -> dict[str, Array]:
    return {f"i{k}": array for k, array in enumerate(operands) if array is not None}


def assert_alike(net: modelcc.Model, model: ModelProto, operands: Sequence[Array | None]) -> None:
    wanted = by_onnxruntime(model, feeds(operands))
    assert wanted is not None
    (found,) = net.run(feeds(operands)).values()
    assert found.dtype == wanted[0].dtype
    assert found.shape == wanted[0].shape
    np.testing.assert_allclose(found, wanted[0], rtol=1e-5, atol=1e-5)


def assert_any_of(cases: Sequence[tuple[Any, ...]], refused: tuple[Any, ...]) -> None:
    """One model takes the operands of all ``cases``, and those that are ``refused`` it does not."""
    (model, *others) = [model_of(*case) for case in (*cases, refused)]
    assert all(other == model for other in others)
    net = modelcc.compile(model, threads=1, cache=None)
    for _, operands, *_ in cases:
        assert_alike(net, model, operands)
    assert by_onnxruntime(model, feeds(refused[1])) is None
    with pytest.raises(modelcc.RunError, match=r"#0: 'i._.' is 2, but must be 1"):
        net.run(feeds(refused[1]))


@pytest.mark.parametrize("which", range(SLICES), ids=lambda k: named(per_slice(1)[k]))
def test_parameters_of_slices_are_1_or_one_for_each(which: int) -> None:
    assert_any_of((per_slice(1)[which], per_slice(4)[which]), per_slice(2)[which])


@pytest.mark.parametrize("which", range(TENSORS), ids=lambda k: named(per_tensor(1)[k]))
def test_parameters_of_tensors_are_1(which: int) -> None:
    assert_any_of((per_tensor(1)[which],), per_tensor(2)[which])


def test_zero_points_of_columns_of_each_matrix() -> None:
    operands: list[Array | None] = [u8(2, 3, 5), i8(2, 5, 4), u8(1), i8(2, 1, 4)]
    model = model_of("MatMulInteger", operands, I32, {}, [])
    assert_alike(modelcc.compile(model, threads=1, cache=None), model, operands)


def test_zero_points_of_rows() -> None:
    """onnxruntime has one for the whole operand only."""
    operands: list[Array | None] = [u8(3, 5), i8(5, 4), u8(3), i8(4)]
    model = model_of("MatMulInteger", operands, I32, {}, [])
    a, b, rows, columns = (np.asarray(x, np.int32) for x in operands)
    (found,) = by_modelcc(model, feeds(operands))
    np.testing.assert_array_equal(found, (a - rows[:, None]) @ (b - columns))
