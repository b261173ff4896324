"""Kernels that differ in the names of sizes that steps read become one function."""

from __future__ import annotations

import numpy as np
from onnx import helper as oh

import modelcc
from benchmarks.scaling_net import FLOAT, INT64, Net
from modelcc.driver import pipeline, target_of
from modelcc.ir.program import Launch, leaves
from modelcc.pipeline import before_block, run_stages
from modelcc.targets.base import BuildConfig
from tests.frontends.onnx.onnx_models import run_onnxruntime
from tests.machines import chosen_options


def layers(count: int) -> Net:
    """Each layer cuts its input at places of its own, which the caller gives."""
    net = Net(("n", 8))
    axis, value = net.constant([0], "int64"), "x"
    for k in range(count):
        net.inputs += [oh.make_tensor_value_info(f"{side}{k}", INT64, (1,)) for side in "ab"]
        cut = net.add("Slice", value, f"a{k}", f"b{k}", axis)
        value = net.add("Softmax", net.add("Mul", cut, cut), axis=-1)
    assert net.inputs[0].type.tensor_type.elem_type == FLOAT
    return net


def test_layers_that_read_their_own_sizes_share_functions() -> None:
    options = chosen_options(threads=1)
    stages = before_block(pipeline(target_of(options), options, BuildConfig()), "emit")
    few, many = (run_stages(stages, layers(count).model(f"v{3 * count - 1}")) for count in (3, 9))
    assert len(many.functions) == len(few.functions)
    launches = [step for step in leaves(many.steps) if isinstance(step, Launch)]
    assert len(launches) > len(many.functions)


def test_shared_functions_take_the_sizes_of_their_layer() -> None:
    model = layers(3).model("v8")
    x = np.random.default_rng(0).standard_normal((20, 8)).astype(np.float32)
    feeds = {"x": x}
    for k, (first, last) in enumerate([(2, 19), (-9, 99), (3, 7)]):
        feeds |= {f"a{k}": np.array([first]), f"b{k}": np.array([last])}
    net = modelcc.compile(model, threads=1, cache=None)
    (expected,) = run_onnxruntime(model, feeds).values()
    np.testing.assert_allclose(np.asarray(net(**feeds)), expected, rtol=1e-6)
