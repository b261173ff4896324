"""Mutations of a model's structure: edges, attributes, types, shapes, initialisers, functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any, TypeVar, cast

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper

T = TypeVar("T")
Mutation = Callable[[ModelProto, Random], None]

INTEGERS = (0, 1, -1, 2, 3, -2, 7, 127, -128, 1 << 16, 1 << 31, -(1 << 31), 1 << 40, (1 << 63) - 1,
            -(1 << 63))  # fmt: skip
FLOATS = (0.0, -1.0, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))
TEXTS = (b"", b"?", b"NOTSET", b"\xff\xfe", b"SAME_UPPER", b"reflect", b"x" * 4096)
DIMENSIONS = (0, 1, 2, 3, 5, -1, -7, 1 << 20, 1 << 31, 1 << 40, (1 << 62) + 1)
KINDS = cast("list[AttributeProto.AttributeType]", AttributeProto.AttributeType.values())
LOCATIONS = ("../secret", "/etc/passwd", "..", "", ".", "a/../../secret", "model.onnx", "none",
             "link", "\x00", "~/secret", "file:///etc/passwd")  # fmt: skip


class NothingToChangeError(Exception):
    """The model has no part that the mutation applies to."""


def graphs(model: ModelProto) -> list[GraphProto]:
    """The main graph and its sub-graphs."""
    found = [model.graph]
    for graph in found:
        for node in graph.node:
            for attribute in node.attribute:
                found += [attribute.g] if attribute.HasField("g") else []
                found += attribute.graphs
    return found


def nodes(model: ModelProto) -> list[NodeProto]:
    """All nodes, including those of functions."""
    inside = [node for graph in graphs(model) for node in graph.node]
    return inside + [node for function in model.functions for node in function.node]


def _one(items: Iterable[T], random: Random) -> T:
    found = list(items)
    if not found:
        raise NothingToChangeError
    return random.choice(found)


def _names(graph: GraphProto) -> list[str]:
    given = [value.name for value in (*graph.input, *graph.initializer)]
    return given + [name for node in graph.node for name in node.output]


# --- edges


def rewire(model: ModelProto, random: Random) -> None:
    """Replaces an operand by an earlier or later value: cycles, wrong types and shapes."""
    graph = _one([g for g in graphs(model) if g.node], random)
    node = _one([n for n in graph.node if n.input], random)
    node.input[random.randrange(len(node.input))] = random.choice([*_names(graph), "", "nowhere"])


def close_cycle(model: ModelProto, random: Random) -> None:
    node = _one([n for n in nodes(model) if n.input and n.output], random)
    node.input[0] = node.output[0]


def drop_operand(model: ModelProto, random: Random) -> None:
    node = _one([n for n in nodes(model) if n.input], random)
    del node.input[random.randrange(len(node.input))]


def add_operand(model: ModelProto, random: Random) -> None:
    graph = _one([g for g in graphs(model) if g.node], random)
    node = random.choice(graph.node)
    node.input.extend(random.choice([*_names(graph), ""]) for _ in range(random.choice((1, 9))))


def change_results(model: ModelProto, random: Random) -> None:
    node = _one([n for n in nodes(model) if n.output], random)
    match random.randrange(4):
        case 0:
            node.output[0] = random.choice(_names(model.graph) or ["y"])
        case 1:
            node.output.append("extra")
        case 2:
            node.output.pop()
        case _:
            node.output[0] = ""


def change_interface(model: ModelProto, random: Random) -> None:
    graph = _one(graphs(model), random)
    values = _one([v for v in (graph.input, graph.output) if len(v)], random)
    match random.randrange(4):
        case 0:
            values[random.randrange(len(values))].name = random.choice(["", "other"])
        case 1:
            del values[random.randrange(len(values))]
        case 2:
            values.append(random.choice(values))
        case _:
            values[0].name = random.choice(_names(graph) or ["x"])


def remove_node(model: ModelProto, random: Random) -> None:
    graph = _one([g for g in graphs(model) if g.node], random)
    del graph.node[random.randrange(len(graph.node))]


def repeat_node(model: ModelProto, random: Random) -> None:
    graph = _one([g for g in graphs(model) if g.node], random)
    graph.node.append(random.choice(graph.node))


def shuffle_nodes(model: ModelProto, random: Random) -> None:
    graph = _one([g for g in graphs(model) if len(g.node) > 1], random)
    order = random.sample(list(graph.node), len(graph.node))
    copies = [NodeProto.FromString(node.SerializeToString()) for node in order]
    del graph.node[:]
    graph.node.extend(copies)


# --- operators and attributes


def other_operator(model: ModelProto, random: Random) -> None:
    """Replaces a node's operator by another one of the model, or a common one."""
    node = _one(nodes(model), random)
    other = random.choice(nodes(model))
    node.op_type = random.choice((other.op_type, *OPERATORS))
    node.domain = random.choice((node.domain, "", "com.microsoft", "ai.onnx.ml", "nobody"))


def other_opset(model: ModelProto, random: Random) -> None:
    if not model.opset_import or random.random() < 0.2:
        model.opset_import.add(domain=random.choice(("", "x")), version=random.choice(INTEGERS))
        return
    chosen = random.choice(model.opset_import)
    chosen.version = random.choice((*range(1, 30), 0, -1, 1 << 40))


def change_attribute(model: ModelProto, random: Random) -> None:
    node = _one([n for n in nodes(model) if n.attribute], random)
    attribute = random.choice(node.attribute)
    match attribute.type:
        case AttributeProto.INT:
            attribute.i = random.choice((*INTEGERS, _limited(attribute.i + 1)))
        case AttributeProto.FLOAT:
            attribute.f = random.choice(FLOATS)
        case AttributeProto.STRING:
            attribute.s = random.choice(TEXTS)
        case AttributeProto.INTS:
            _change_list(attribute.ints, INTEGERS, random)
        case AttributeProto.FLOATS:
            _change_list(attribute.floats, FLOATS, random)
        case AttributeProto.STRINGS:
            _change_list(attribute.strings, TEXTS, random)
        case AttributeProto.TENSOR:
            damage_tensor(attribute.t, random)
        case _:
            attribute.type = random.choice(KINDS)


def _limited(value: int) -> int:
    return max(-(1 << 63), min((1 << 63) - 1, value))


def _change_list(values: Any, choices: Sequence[object], random: Random) -> None:
    match random.randrange(4):
        case 0 if len(values):
            del values[random.randrange(len(values))]
        case 1:
            values.append(random.choice(choices))
        case 2:
            del values[:]
        case _:
            if len(values):
                values[random.randrange(len(values))] = random.choice(choices)


def drop_attribute(model: ModelProto, random: Random) -> None:
    node = _one([n for n in nodes(model) if n.attribute], random)
    del node.attribute[random.randrange(len(node.attribute))]


def misname_attribute(model: ModelProto, random: Random) -> None:
    node = _one([n for n in nodes(model) if n.attribute], random)
    other = _one([n for n in nodes(model) if n.attribute], random)
    random.choice(node.attribute).name = random.choice(other.attribute).name


def retype_attribute(model: ModelProto, random: Random) -> None:
    node = _one([n for n in nodes(model) if n.attribute], random)
    random.choice(node.attribute).type = random.choice(KINDS)


def add_attribute(model: ModelProto, random: Random) -> None:
    node = _one(nodes(model), random)
    value = random.choice((*INTEGERS, *FLOATS, *TEXTS, [1, -1], [0.5], [b"x"]))
    node.attribute.append(helper.make_attribute(random.choice(ATTRIBUTES), value))


# --- types and shapes


def retype(model: ModelProto, random: Random) -> None:
    type = _one(list(_types(model)), random)
    match random.randrange(6):
        case 0:
            type.ClearField("tensor_type")
        case 1:
            type.sequence_type.elem_type.tensor_type.elem_type = TensorProto.FLOAT
        case 2:
            type.optional_type.elem_type.tensor_type.elem_type = random.randrange(30)
        case _:
            type.tensor_type.elem_type = random.randrange(30)


def reshape(model: ModelProto, random: Random) -> None:
    shapes = [t.tensor_type.shape for t in _types(model) if t.tensor_type.HasField("shape")]
    shape = _one(shapes, random)
    match random.randrange(5):
        case 0:
            shape.dim.add(dim_value=random.choice(DIMENSIONS))
        case 1 if len(shape.dim):
            del shape.dim[random.randrange(len(shape.dim))]
        case 2 if len(shape.dim):
            random.choice(shape.dim).dim_param = random.choice(("n", "batch", "", "\n", "a b"))
        case 3 if len(shape.dim):
            random.choice(shape.dim).Clear()
        case _:
            if len(shape.dim):
                random.choice(shape.dim).dim_value = random.choice(DIMENSIONS)


def _types(model: ModelProto) -> Iterator[TypeProto]:
    for graph in graphs(model):
        for value in (*graph.input, *graph.output, *graph.value_info):
            yield value.type


# --- initialisers


def change_initialiser(model: ModelProto, random: Random) -> None:
    tensors = [t for g in graphs(model) for t in g.initializer]
    damage_tensor(_one(tensors, random), random)


def damage_tensor(tensor: TensorProto, random: Random) -> None:
    """Other dimensions, another type, less or more data, or data of other numbers."""
    match random.randrange(7):
        case 0:
            _change_list(tensor.dims, DIMENSIONS, random)
        case 1:
            tensor.data_type = random.randrange(30)
        case 2:
            tensor.raw_data = tensor.raw_data[: random.randrange(len(tensor.raw_data) + 1)]
        case 3:
            tensor.raw_data += random.randbytes(8)
        case 4:
            _other_numbers(tensor, random)
        case 5:
            _elsewhere(tensor, random)
        case _:
            tensor.name = random.choice(("", "other"))


def _other_numbers(tensor: TensorProto, random: Random) -> None:
    number = random.choice(INTEGERS)
    if tensor.raw_data:
        value = number.to_bytes(8, "little", signed=True)
        at = random.randrange(max(1, len(tensor.raw_data) // 8)) * 8
        tensor.raw_data = (tensor.raw_data[:at] + value + tensor.raw_data[at + 8 :])[
            : max(8, len(tensor.raw_data))
        ]
    elif tensor.int64_data:
        tensor.int64_data[random.randrange(len(tensor.int64_data))] = number
    elif tensor.float_data:
        tensor.float_data[random.randrange(len(tensor.float_data))] = random.choice(FLOATS)
    else:
        tensor.int32_data.append(random.choice((0, 1, -1, 255, 1 << 30)))


def _elsewhere(tensor: TensorProto, random: Random) -> None:
    """Moves its data to another file: outside of the folder, nonexistent, or too short."""
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entries = {"location": random.choice(LOCATIONS)}
    if random.random() < 0.5:
        entries["offset"] = random.choice(("0", "-1", "4096", str(1 << 62), "x", ""))
    if random.random() < 0.5:
        entries["length"] = random.choice(("0", "-4", "16", str(1 << 62), "1e3"))
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)


def absurd_size(model: ModelProto, random: Random) -> None:
    """A computed tensor larger than memory."""
    graph = model.graph
    source = random.choice(_names(graph) or ["x"])
    shape = [random.choice((1 << 20, 1 << 40, 1 << 62)) for _ in range(random.choice((1, 2, 8)))]
    graph.initializer.append(helper.make_tensor("absurd", TensorProto.INT64, [len(shape)], shape))
    op = random.choice(("Expand", "Tile", "Reshape", "ConstantOfShape", "Pad", "Resize"))
    inputs = ["absurd"] if op == "ConstantOfShape" else [source, "absurd"]
    graph.node.append(helper.make_node(op, inputs, ["immense"], name="absurd_node"))
    graph.output.add(name="immense")


# --- functions


def recurse(model: ModelProto, random: Random) -> None:
    """A function that calls itself, directly or indirectly."""
    domain, names = "local", random.choice((("f",), ("f", "g"), ("f", "g", "h")))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    for name, callee in zip(names, (*names[1:], names[0]), strict=True):
        call = helper.make_node(callee, ["x"], ["y"], domain=domain)
        model.functions.append(helper.make_function(domain, name, ["x"], ["y"], [call], opsets))
    node = _one([n for n in model.graph.node if n.input], random)
    node.domain, node.op_type = domain, "f"
    del node.attribute[:]
    model.opset_import.add(domain=domain, version=1)


def change_function(model: ModelProto, random: Random) -> None:
    function = _one(model.functions, random)
    match random.randrange(4):
        case 0 if function.input:
            del function.input[-1]
        case 1 if function.output:
            function.output.append("nowhere")
        case 2:
            function.attribute.append("missing")
        case _:
            del function.opset_import[:]


def nest_deeply(model: ModelProto, random: Random) -> None:
    """Nested If, each in the branches of the previous one."""
    depth = random.choice((8, 24))
    inner = helper.make_graph([helper.make_node("Constant", [], ["v"], value_float=1.0)], "g", [],
                              [helper.make_empty_tensor_value_info("v")])  # fmt: skip
    condition = helper.make_tensor("deep", TensorProto.BOOL, [], [True])
    for level in range(depth):
        node = helper.make_node("If", ["deep"], [f"d{level}"], then_branch=inner, else_branch=inner)
        only_then = [a for a in node.attribute if a.name == "then_branch"]
        if level > 3:  # both branches would double the file each time
            empty = helper.make_graph([], "e", [], [helper.make_empty_tensor_value_info("deep")])
            del node.attribute[:]
            node.attribute.extend([*only_then, helper.make_attribute("else_branch", empty)])
        value = helper.make_empty_tensor_value_info(f"d{level}")
        inner = helper.make_graph([node], f"g{level}", [], [value])
    model.graph.initializer.append(condition)
    model.graph.node.extend(inner.node)
    model.graph.output.add(name=inner.output[0].name)


MUTATIONS: tuple[Mutation, ...] = (
    rewire, rewire, rewire, close_cycle, drop_operand, add_operand, change_results,
    change_interface, remove_node, repeat_node, shuffle_nodes, other_operator, other_opset,
    change_attribute, change_attribute, change_attribute, drop_attribute, misname_attribute,
    retype_attribute, add_attribute, retype, reshape, reshape, change_initialiser,
    change_initialiser, change_initialiser, absurd_size, recurse, change_function, nest_deeply,
)  # fmt: skip
"""Weighted by repetition."""

ATTRIBUTES = ("axis", "axes", "perm", "to", "kernel_shape", "strides", "pads", "group", "mode",
              "keepdims", "alpha", "value", "dilations", "auto_pad", "epsilon")  # fmt: skip
OPERATORS = ("Add", "MatMul", "Conv", "Reshape", "Concat", "Gather", "Slice", "If", "Loop", "LSTM",
             "QuantizeLinear", "Resize", "TopK", "Softmax", "Cast", "Squeeze", "Pad", "Einsum",
             "NonZero", "Scan", "Split", "Where", "Nonsense")  # fmt: skip


def mutated(data: bytes, random: Random) -> tuple[str, bytes]:
    """Names of one to three mutations, and the mutated model."""
    model = ModelProto.FromString(data)
    done: list[str] = []
    wanted = random.choice((1, 1, 1, 2, 3))
    while len(done) < wanted:
        mutation = random.choice(MUTATIONS)
        try:
            mutation(model, random)
        except NothingToChangeError:
            continue
        done.append(mutation.__name__)
    return "+".join(done), model.SerializeToString()
