"""Winograd convolution as OpenCL C on a device, kernel by kernel and whole models."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from kernel_runs import run_scheduled
from onnx import ModelProto, TensorProto, helper, numpy_helper
from winograd_layers import BOUNDS, LAYERS, Always, Layer, assert_near, images_of

import modelcc
from modelcc.ir.types import Array
from modelcc.runtime.errors import LoadError
from modelcc.targets.gpu.machine import PROCESSOR
from modelcc.targets.gpu.passes.winograd import GroupWinograd
from modelcc.targets.gpu.schedule import schedule_groups

pytest.importorskip("pyopencl")
opencl = pytest.importorskip("opencl_kernels")


@pytest.fixture(scope="module", autouse=True)
def device() -> None:
    try:
        opencl.first_device()
    except LoadError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize("layer", LAYERS.values(), ids=list(LAYERS))
def test_devices_compute_what_convolutions_mean(layer: Layer, m: int) -> None:
    program = schedule_groups(GroupWinograd(Always(PROCESSOR, m=m))(layer.program))
    tensors, images = layer.tensors(images_of(layer)), {"n": images_of(layer)}
    found = run_scheduled(program, opencl.by_opencl(program.functions), tensors, images)
    for name, wanted in layer.expected(tensors).items():
        assert_near(found[name], wanted, BOUNDS[m])


def block(groups: int) -> ModelProto:
    """Two convolutions of a residual block, of a named number of images; the second one in groups,
    and one without padding behind it."""
    rng = np.random.default_rng(0)
    shapes = {"a": (64, 64, 3, 3), "b": (64, 64 // groups, 3, 3), "c": (32, 64, 3, 3)}
    weights = {n: rng.standard_normal(s) / np.sqrt(np.prod(s[1:])) for n, s in shapes.items()}
    weights |= {f"{n}_bias": rng.standard_normal(s[0]) for n, s in shapes.items()}
    pads = [1, 1, 1, 1]
    nodes = [
        helper.make_node("Conv", ["x", "a", "a_bias"], ["p"], pads=pads),
        helper.make_node("Relu", ["p"], ["q"]),
        helper.make_node("Conv", ["q", "b", "b_bias"], ["r"], pads=pads, group=groups),
        helper.make_node("Add", ["r", "x"], ["s"]),
        helper.make_node("Relu", ["s"], ["t"]),
        helper.make_node("Conv", ["t", "c", "c_bias"], ["y"]),
    ]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64, 23, 30])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    made = [numpy_helper.from_array(w.astype(np.float32), n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "block", [image], [result], made)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def by_onnxruntime(model: ModelProto, x: Array) -> Array:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (found,) = session.run(None, {"x": x})
    assert isinstance(found, np.ndarray)
    return found


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("winograd", [True, False])
def test_a_block_is_what_onnxruntime_computes(groups: int, winograd: bool) -> None:
    """For any number of images; what is not allowed, or in groups, is convolved directly."""
    model = block(groups)
    net = modelcc.compile(model, target="opencl", winograd=winograd, cache=None)
    kernels = net.report().kernels
    rounding = [k.rounding for k in kernels if k.function.endswith("_winograd")]
    assert len(rounding) == (0 if not winograd else 3 if groups == 1 else 2)
    assert all(found > 1 for found in rounding)
    for images in (1, 3):
        shape = (images, 64, 23, 30)
        x = np.random.default_rng(images).standard_normal(shape).astype(np.float32)
        found = net(x)
        assert isinstance(found, np.ndarray)
        assert_near(found, by_onnxruntime(model, x).astype(np.float64), 1e-5)
