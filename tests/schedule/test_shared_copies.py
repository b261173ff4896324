"""Copies that differ in names of extents only are one function."""

import numpy as np
from onnx import TensorProto, helper

import modelcc
from modelcc.driver import pipeline, target_of
from modelcc.pipeline import run_stages
from modelcc.targets.base import BuildConfig
from tests.machines import chosen_options

PARTS = 12
FLOAT = TensorProto.FLOAT


def test_parts_of_named_extents_are_taken_by_one_function() -> None:
    inputs = [f"x{k}" for k in range(PARTS)]
    nodes = [
        *(helper.make_node("Shape", [x], [f"{x}.size"], start=0, end=1) for x in inputs),
        helper.make_node("Concat", [f"{x}.size" for x in inputs], ["sizes"], axis=0),
        helper.make_node("Split", ["all", "sizes"], [f"y{k}" for k in range(PARTS)], axis=0),
    ]
    graph = helper.make_graph(
        nodes,
        "parts",
        [
            *(helper.make_tensor_value_info(x, FLOAT, [f"n{k}"]) for k, x in enumerate(inputs)),
            helper.make_tensor_value_info("all", FLOAT, ["n", 3]),
        ],
        [helper.make_tensor_value_info(f"y{k}", FLOAT, [f"n{k}", 3]) for k in range(PARTS)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    options = chosen_options(threads=1)
    stages = pipeline(target_of(options), options, BuildConfig())
    emitted = run_stages([s for s in stages if s.block not in ("build", "package")], model)
    assert sum("Slice(" in module.text.partition("{")[0] for module in emitted.modules) < 4
    net = modelcc.compile(model, threads=1, cache=None)
    whole = np.arange(3 * PARTS * (PARTS + 1) // 2, dtype=np.float32).reshape(-1, 3)
    sizes = {x: np.zeros(k + 1, np.float32) for k, x in enumerate(inputs)}
    found = net(**sizes, all=whole)
    for one, part in zip(found, np.split(whole, np.cumsum(range(1, PARTS))), strict=True):
        np.testing.assert_array_equal(one, part)
