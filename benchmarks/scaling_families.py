"""Families of models of any size, to measure the scaling of compile time.

Every family is a function from a number of nodes to an ONNX model with about that many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from onnx import ModelProto
from onnx import helper as oh

from benchmarks.scaling_net import BOOL, FLOAT, INT64, LOCAL, OPSET, Net
from benchmarks.scaling_speech import speech

Family = Callable[[int], ModelProto]


def unary(n: int) -> ModelProto:
    """Alternating sine and negation."""
    net = Net()
    value = "x"
    for k in range(n):
        value = net.add(("Sin", "Neg")[k % 2], value)
    return net.model(value)


def binary_constant(n: int) -> ModelProto:
    """Products and sums with one of a few constants."""
    net = Net()
    constants = [net.constant(c) for c in (0.5, 1.25, 0.75)]
    value = "x"
    for k in range(n):
        value = net.add(("Mul", "Add")[k % 2], value, constants[k % 3])
    return net.model(value)


def binary_earlier(n: int) -> ModelProto:
    """Each value is the mean of the previous and an earlier one."""
    net = Net()
    half = net.constant(0.5)
    values = ["x"]
    for k in range(n // 2):
        total = net.add("Add", values[-1], values[(k * 7) // 11])
        values.append(net.add("Mul", total, half))
    return net.model(values[-1])


def diamonds(n: int) -> ModelProto:
    """Every value is read twice."""
    net = Net()
    half = net.constant(0.5)
    value = "x"
    for _ in range(n // 3):
        left, right = net.add("Tanh", value), net.add("Mul", value, half)
        value = net.add("Add", left, right)
    return net.model(value)


def doubling(n: int) -> ModelProto:
    """y = x + x, then scaled."""
    net = Net()
    value = "x"
    half = net.constant(0.5)
    for k in range(n):
        value = net.add("Add", value, value) if k % 2 else net.add("Mul", value, half)
    return net.model(value)


def broadcasts(n: int) -> ModelProto:
    """A column added to a row, and so on: every value is read by one of another shape."""
    net = Net((1, 8))
    column, first = net.constant(np.ones((4, 1))), net.constant([0], "int64")
    half = net.constant(0.5)
    value = "x"
    for _ in range(n // 3):
        wide = net.add("Add", value, column)
        row = net.add("ReduceMean", wide, first, keepdims=1)
        value = net.add("Mul", row, half)
    return net.model(value)


def matmul(n: int) -> ModelProto:
    """Small products with one of a few weights."""
    net = Net((4, 16))
    weights = [net.weight(16, 16) for _ in range(5)]
    value = "x"
    for k in range(n):
        value = net.add("MatMul", value, weights[k % 5])
    return net.model(value)


def residual(n: int) -> ModelProto:
    """Convolution, ReLU and addition."""
    net = Net((1, 8, 8, 8))
    weights = [net.weight(8, 8, 3, 3) for _ in range(3)]
    value = "x"
    for k in range(n // 3):
        conv = net.add("Conv", value, weights[k % 3], pads=[1, 1, 1, 1])
        value = net.add("Add", net.add("Relu", conv), value)
    return net.model(value)


def norms(n: int) -> ModelProto:
    """Alternating softmax and layer normalisation."""
    net = Net((4, 16))
    scale, bias = net.weight(16), net.weight(16)
    value = "x"
    for k in range(n):
        if k % 2:
            value = net.add("LayerNormalization", value, scale, bias, axis=-1)
        else:
            value = net.add("Softmax", value, axis=-1)
    return net.model(value)


def reshapes(n: int) -> ModelProto:
    """Alternating Reshape and Transpose."""
    net = Net((4, 6, 8))
    shapes = [net.constant(s, "int64") for s in ((6, 4, 8), (4, 6, 8), (8, 4, 6), (4, 6, 8))]
    value = "x"
    for k in range(n):
        if k % 2:
            value = net.add("Reshape", value, shapes[k // 2 % 4])
        else:
            value = net.add("Transpose", value, perm=(0, 2, 1))
    return net.model(value)


def slices(n: int) -> ModelProto:
    """Rotation: two slices and their concatenation."""
    net = Net((12, 4))
    zero, cut, end = (net.constant([v], "int64") for v in (0, 5, 1000))
    value = "x"
    for _ in range(n // 3):
        head, tail = net.add("Slice", value, zero, cut), net.add("Slice", value, cut, end)
        value = net.add("Concat", tail, head, axis=0)
    return net.model(value)


def named_concat(n: int) -> ModelProto:
    """One concatenation of n inputs, each with its own named dimension."""
    net = Net(("d", 2))
    net.inputs = [oh.make_tensor_value_info(f"x{k}", FLOAT, (f"d{k}", 2)) for k in range(n)]
    return net.model(net.add("Concat", *(f"x{k}" for k in range(n)), axis=0))


def concat(n: int) -> ModelProto:
    """One concatenation of n shifted copies with one named dimension."""
    net = Net(("d", 2))
    shifts = [net.constant(k % 7) for k in range(n // 2)]
    return net.model(net.add("Concat", *(net.add("Add", "x", s) for s in shifts), axis=0))


def split(n: int) -> ModelProto:
    """One split into n/2 parts, the tangent of each, and their concatenation."""
    net = Net((n // 2, 4))
    first = net.add("Split", "x", outputs=n // 2, axis=0, num_outputs=n // 2)
    parts = [first, *(f"{first}.{k}" for k in range(1, n // 2))]
    bent = [net.add("Tanh", part) for part in parts]
    return net.model(net.add("Concat", *bent, axis=0))


def sequence(n: int) -> ModelProto:
    """A sequence of n pieces, concatenated."""
    net = Net((n, 4))
    return net.model(net.add("ConcatFromSequence", net.add("SplitToSequence", "x"), axis=0))


def named_parts(n: int) -> ModelProto:
    """n inputs, each with its own named dimension, concatenated and split again."""
    names = [f"x{k}" for k in range(n)]
    parts = [oh.make_tensor_value_info(x, FLOAT, [f"n{k}", 4]) for k, x in enumerate(names)]
    outputs = [oh.make_tensor_value_info(f"y{k}", FLOAT, [f"n{k}", 4]) for k in range(n)]
    nodes = [
        *(oh.make_node("Shape", [x], [f"{x}.size"], start=0, end=1) for x in names),
        oh.make_node("Concat", [f"{x}.size" for x in names], ["sizes"], axis=0),
        oh.make_node("Concat", names, ["joined"], axis=0),
        oh.make_node("Relu", ["joined"], ["bent"]),
        oh.make_node("Split", ["bent", "sizes"], [y.name for y in outputs], axis=0),
    ]
    graph = oh.make_graph(nodes, "named_parts", parts, outputs)
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", OPSET)], ir_version=10)


def named_slices(n: int) -> ModelProto:
    """n slices of a named dimension, which alternately drop the first and the last element."""
    build = [
        oh.make_node("Slice", [f"t{k}", "one" if k % 2 else "zero", "end" if k % 2 else "last"],
                     [f"t{k + 1}"]) for k in range(n)
    ]  # fmt: skip
    given = {"zero": 0, "one": 1, "last": -1, "end": 2**62}
    constants = [oh.make_tensor(name, INT64, [1], [value]) for name, value in given.items()]
    x = oh.make_tensor_value_info("t0", FLOAT, ["n"])
    y = oh.make_tensor_value_info(f"t{n}", FLOAT, ["m"])
    graph = oh.make_graph(build, "named_slices", [x], [y], constants)
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", OPSET)], ir_version=10)


def shape_arithmetic(n: int) -> ModelProto:
    """Shape, Gather, Add …, finally used by a Reshape."""
    net = Net(("batch", 6))
    zero, one = net.constant(0, "int64"), net.constant(1, "int64")
    size = net.add("Gather", net.add("Shape", "x"), zero)
    for k in range(n):
        size = net.add(("Add", "Sub")[k % 2], size, one)
    axes = net.constant([0], "int64")
    ends = [net.add("Unsqueeze", size, axes), net.constant([6], "int64")]
    return net.model(net.add("Reshape", "x", net.add("Concat", *ends, axis=0)))


def shape_rounds(n: int) -> ModelProto:
    """Each round computes with the shape, then applies a Reshape and a Slice."""
    net = Net(("batch", "time", 8))
    value = "x"
    zero, one, two = (net.constant([v], "int64") for v in (0, 1, 2))
    eight, four = net.constant([8], "int64"), net.constant([4], "int64")
    for _ in range(n // 14):
        shape = net.add("Shape", value)
        batch, time = net.add("Gather", shape, zero), net.add("Gather", shape, one)
        heads = net.add("Concat", batch, time, two, four, axis=0)
        split_ = net.add("Transpose", net.add("Reshape", value, heads), perm=(0, 2, 1, 3))
        sub = net.add("Sub", net.add("Add", time, one), one)
        cut = net.add("Slice", net.add("Sigmoid", split_), zero, sub, two)
        whole = net.add("Concat", batch, time, eight, axis=0)
        back = net.add("Reshape", net.add("Transpose", cut, perm=(0, 2, 1, 3)), whole)
        value = net.add("Add", value, back)
    return net.model(value)


def streaming(n: int) -> ModelProto:
    """Convolutions over time, each with a cache sliced from earlier values, and gates."""
    net = Net(("batch", 8, "time"))
    weight = net.weight(8, 1, 3)
    mix = net.weight(8, 8, 1)
    minus, end, axis = (net.constant([v], "int64") for v in (-2, 1 << 40, 2))
    value, results = "x", []
    for k in range(n // 8):
        net.inputs.append(oh.make_tensor_value_info(f"h{k}", FLOAT, ("batch", 8, 2)))
        longer = net.add("Concat", f"h{k}", value, axis=2)
        results.append(net.add("Slice", longer, minus, end, axis))
        conv = net.add("Conv", longer, weight, group=8)
        gate = net.add("Mul", conv, net.add("Sigmoid", conv))
        value = net.add("Add", net.add("Conv", gate, mix), value)
    return net.model(value, *results)


def nested_if(n: int) -> ModelProto:
    """Nested branches."""
    net = Net()
    net.inputs.append(oh.make_tensor_value_info("c", BOOL, ()))
    inner = oh.make_graph(
        [oh.make_node("Sin", ["x"], ["r0"])], "b0", [], [oh.make_empty_tensor_value_info("r0")]
    )
    for k in range(1, n):
        inner = oh.make_graph(
            [
                oh.make_node("If", ["c"], [f"t{k}"], then_branch=inner, else_branch=_other(k)),
                oh.make_node("Neg", [f"t{k}"], [f"r{k}"]),
            ],
            f"b{k}",
            [],
            [oh.make_empty_tensor_value_info(f"r{k}")],
        )
    net.nodes.append(oh.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=_other(n)))
    return net.model("y")


def _other(k: int) -> Any:
    node = oh.make_node("Cos", ["x"], [f"e{k}"])
    return oh.make_graph([node], f"o{k}", [], [oh.make_empty_tensor_value_info(f"e{k}")])


def nested_loop(n: int) -> ModelProto:
    """Nested loops, of two iterations each."""
    net = Net()
    two, yes = net.constant(2, "int64"), net.constant(True, "bool")
    body = [oh.make_node("Cos", ["s0"], ["r0"]), oh.make_node("Identity", ["k0"], ["t0"])]
    for k in range(n):
        graph = oh.make_graph(
            body,
            f"body{k}",
            [
                oh.make_tensor_value_info(f"i{k}", INT64, ()),
                oh.make_tensor_value_info(f"k{k}", BOOL, ()),
                oh.make_tensor_value_info(f"s{k}", FLOAT, (4, 8)),
            ],
            [oh.make_empty_tensor_value_info(f"{letter}{k}") for letter in "tr"],
        )
        source = f"s{k + 1}" if k < n - 1 else "x"
        loop = oh.make_node("Loop", [two, yes, source], [f"r{k + 1}"], body=graph)
        body = [loop, oh.make_node("Identity", [f"k{k + 1}"], [f"t{k + 1}"])]
    net.nodes.append(body[0])
    return net.model(f"r{n}")


def loop_body(n: int) -> ModelProto:
    """A loop with a chain of n nodes in its body."""
    net = Net()
    inner = Net()
    value = "s"
    for k in range(n):
        value = inner.add(("Sin", "Neg")[k % 2], value)
    inner.nodes.append(oh.make_node("Identity", ["k"], ["t"]))
    graph = oh.make_graph(
        inner.nodes,
        "body",
        [
            oh.make_tensor_value_info("i", INT64, ()),
            oh.make_tensor_value_info("k", BOOL, ()),
            oh.make_tensor_value_info("s", FLOAT, (4, 8)),
        ],
        [oh.make_empty_tensor_value_info(name) for name in ("t", value)],
    )
    count, yes = net.constant(5, "int64"), net.constant(True, "bool")
    return net.model(net.add("Loop", count, yes, "x", body=graph))


def nested_functions(n: int) -> ModelProto:
    """Model-local functions, each calling the previous one twice: about n nodes after inlining."""
    net = Net()
    opsets = [oh.make_opsetid("", OPSET), oh.make_opsetid(LOCAL, 1)]
    sine = oh.make_node("Sin", ["a"], ["b"])
    net.functions.append(oh.make_function(LOCAL, "f0", ["a"], ["b"], [sine], opsets))
    depth = max(1, n.bit_length() - 1)
    for k in range(1, depth + 1):
        calls = [
            oh.make_node(f"f{k - 1}", ["a"], ["t"], domain=LOCAL),
            oh.make_node(f"f{k - 1}", ["t"], ["b"], domain=LOCAL),
        ]
        net.functions.append(oh.make_function(LOCAL, f"f{k}", ["a"], ["b"], calls, opsets))
    return net.model(net.add(f"f{depth}", "x", domain=LOCAL))


def many_outputs(n: int) -> ModelProto:
    """Every value of a chain is returned."""
    net = Net()
    values = ["x"]
    for k in range(n):
        values.append(net.add(("Sin", "Neg")[k % 2], values[-1]))
    return net.model(*values[1:])


def wide_sum(n: int) -> ModelProto:
    """n values computed from the input, all summed."""
    net = Net()
    values = [net.add("Mul", "x", net.constant(k / n)) for k in range(n // 2)]
    total = values[0]
    for value in values[1:]:
        total = net.add("Add", total, value)
    return net.model(total)


def trees(n: int) -> ModelProto:
    """An ensemble of stumps with about n nodes."""
    count = max(1, n // 7)
    net = Net(("n", 4))
    random = np.random.default_rng(0)
    ids = np.tile(np.arange(7), count)
    node = oh.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1,
        nodes_treeids=np.repeat(np.arange(count), 7), nodes_nodeids=ids,
        nodes_featureids=(ids % 4).tolist(),
        nodes_modes=(["BRANCH_LEQ"] * 3 + ["LEAF"] * 4) * count,
        nodes_values=random.random(len(ids)).astype("f"),
        nodes_truenodeids=[1, 3, 5, 0, 0, 0, 0] * count,
        nodes_falsenodeids=[2, 4, 6, 0, 0, 0, 0] * count,
        target_treeids=np.repeat(np.arange(count), 4), target_nodeids=[3, 4, 5, 6] * count,
        target_ids=[0] * (4 * count), target_weights=random.random(4 * count).astype("f"),
    )  # fmt: skip
    net.nodes.append(node)
    model = net.model("y")
    model.opset_import.append(oh.make_opsetid("ai.onnx.ml", 3))
    return model


FAMILIES: Mapping[str, tuple[Family, int]] = MappingProxyType(
    {
        family.__name__: (family, greatest)
        for family, greatest in (
            (unary, 10_000),
            (binary_constant, 10_000),
            (binary_earlier, 10_000),
            (diamonds, 10_000),
            (doubling, 10_000),
            (broadcasts, 5_000),
            (wide_sum, 10_000),
            (many_outputs, 10_000),
            (matmul, 10_000),
            (residual, 3_000),
            (norms, 2_000),
            (reshapes, 5_000),
            (slices, 3_000),
            (concat, 4_000),
            (named_concat, 3_000),
            (split, 4_000),
            (named_parts, 3_000),
            (named_slices, 300),
            (sequence, 5_000),
            (shape_arithmetic, 4_000),
            (shape_rounds, 2_800),
            (streaming, 2_000),
            (speech, 2_600),
            (nested_if, 40),
            (nested_loop, 24),
            (loop_body, 10_000),
            (nested_functions, 8_192),
            (trees, 1_000_000),
        )
    }
)
"""Every family with the maximum number of nodes in the table."""
