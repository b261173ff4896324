"""Copies into parts of an output share a function, and still go where they should."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from modelcc.driver import compile_model
from tests.machines import chosen_options


def concatenation(shapes, axis):
    """Several concatenations of the same parts, in turn rotated."""
    names = [f"x{n}" for n in range(len(shapes))]
    total = list(shapes[0])
    total[axis] = sum(shape[axis] for shape in shapes)
    orders = [names[n:] + names[:n] for n in range(len(names))]
    nodes = [
        helper.make_node("Concat", order, [f"y{n}"], axis=axis) for n, order in enumerate(orders)
    ]
    inputs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in zip(names, shapes, strict=True)
    ]
    outputs = [
        helper.make_tensor_value_info(f"y{n}", TensorProto.FLOAT, total) for n in range(len(orders))
    ]
    graph = helper.make_graph(nodes, "concatenation", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), orders


@pytest.mark.parametrize(
    ("shapes", "axis"),
    [
        ([(1, 32, 5, 5)] * 4, 1),
        ([(2, 3, 7), (2, 3, 1), (2, 3, 16)], 2),
        ([(3, 4), (1, 4), (16, 4), (1, 4)], 0),
        ([(1,), (1,), (2,)], 0),
    ],
)
def test_parts_go_to_their_places(shapes, axis):
    model, orders = concatenation(shapes, axis)
    compiled = compile_model(model, chosen_options())
    rng = np.random.default_rng(0)
    feeds = {f"x{n}": rng.random(s, np.float32) for n, s in enumerate(shapes)}
    results = compiled.target.load(compiled.artifact, 1).run(feeds)
    for n, order in enumerate(orders):
        expected = np.concatenate([feeds[name] for name in order], axis)
        np.testing.assert_array_equal(results[f"y{n}"], expected)


def test_equal_parts_share_functions():
    model, _ = concatenation([(1, 64, 5, 5)] * 4, 1)
    programs = []
    compile_model(
        model,
        chosen_options(),
        observer=lambda run: programs.append(run.after) if run.stage.name == "plan_memory" else 0,
    )
    (program,) = programs
    assert len(program.steps) == 16
    assert len(program.functions) == 1
