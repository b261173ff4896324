"""Poolings whose last or only window is beyond the padded input, against onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product as cartesian
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import modelcc
from modelcc.frontends.onnx import import_onnx
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import Array
from tests.frontends.onnx.onnx_models import floats, one_node, run_onnxruntime

Window = Mapping[str, Any]


def _windows(size: int, opset: int) -> Iterator[Window]:
    """Windows of one axis that onnxruntime takes and that have a position."""
    dilations = (1, 2) if opset >= 19 else (1,)
    modes = cartesian((0, 1) if opset >= 10 else (0,), (0, 1))
    steps = cartesian(range(1, 5), range(1, 4), dilations, range(3), range(3))
    for (kernel, stride, dilation, *pads), (ceil, padding) in cartesian(steps, modes):
        room = size + sum(pads) - (kernel - 1) * dilation - 1
        if max(pads) >= kernel or room <= -stride:
            continue
        given = {"kernel_shape": [kernel], "strides": [stride], "pads": pads}
        given |= {"dilations": [dilation]} if dilation > 1 else {}
        given |= {"ceil_mode": 1} if ceil else {}
        yield {**given, "count_include_pad": padding}


def _model(size: int, opset: int, windows: list[Window]) -> onnx.ModelProto:
    names = [f"y{i}" for i in range(len(windows))]
    nodes = [
        helper.make_node("AveragePool", ["x"], [name], **window)
        for name, window in zip(names, windows, strict=True)
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, size])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, None]) for name in names],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


@pytest.mark.parametrize("opset", [7, 10, 11, 18, 19, 22])
def test_all_small_windows_are_averaged_as_onnxruntime_does(opset: int) -> None:
    for size in range(1, 8):
        windows = list(_windows(size, opset))
        model, feeds = _model(size, opset, windows), {"x": floats(1, 2, size)}
        wanted = run_onnxruntime(model, feeds)
        for name, y in interpret(import_onnx(model), feeds).items():
            message = f"{size} {windows[int(name[1:])]}"
            np.testing.assert_allclose(y, wanted[name], rtol=1e-5, atol=1e-6, err_msg=message)


IMAGES: list[tuple[tuple[int, ...], Window]] = [
    ((1,), {"kernel_shape": [2], "strides": [2]}),
    ((1, 5), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ((2, 7), {"kernel_shape": [4, 3], "strides": [3, 2], "pads": [1, 1, 0, 1]}),
    ((1, 4, 6), {"kernel_shape": [2, 3, 2], "strides": [2, 2, 3], "pads": [0, 1, 0, 0, 1, 1]}),
    ((2, 6), {"kernel_shape": [2, 3], "strides": [2, 2], "dilations": [2, 1]}),
    ((2, 6), {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "VALID"}),
    ((1, 6), {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ((1, 6), {"kernel_shape": [3, 4], "strides": [2, 3], "auto_pad": "SAME_LOWER"}),
]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("ceil_mode", [0, 1])
@pytest.mark.parametrize(("sizes", "window"), IMAGES)
def test_averages_with_padding_of_compiled_windows(
    sizes: tuple[int, ...], window: Window, ceil_mode: int, named: bool
) -> None:
    settings: dict[str, Any] = {**window, "ceil_mode": ceil_mode, "count_include_pad": 1}
    model, _ = one_node("AveragePool", [floats(1, 3, *sizes)], 22, **settings)
    more: tuple[int, ...] = ()
    if named:
        model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "h"
        more = (3, 4, 6, 7)
    net = modelcc.compile(model, threads=1, cache=None)
    for rows in (sizes[0], *more):
        feeds: dict[str, Array] = {"x0": floats(1, 3, rows, *sizes[1:])}
        (y,) = net.run(feeds).values()
        np.testing.assert_allclose(y, run_onnxruntime(model, feeds)["y0"], rtol=1e-5, atol=1e-6)
