"""Broken and unsupported ONNX models: how to make each, and what its error must say.

``text`` is in the syntax of :mod:`onnx.parser`; ``change`` then alters the parsed model; a case
with ``data`` is bytes instead of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
RELU = HEAD + "g (float[n, 4] x) => (float[n, 4] y) { y = Relu(x) }"
DENSE = (
    HEAD
    + "g (float[2, 3] x) => (float[2, 3] y) <float[2, 3] w = {1, 2, 3, 4, 5, 6}> "
    + "{ [sum] y = Add(x, w) }"
)


@dataclass(frozen=True)
class Case:
    """One model and fragments of the message it must be refused with."""

    name: str
    says: tuple[str, ...]
    text: str = RELU
    change: Callable[[ModelProto], None] | None = None
    data: bytes | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    on_disk: bool = False

    def model(self, folder: Path) -> ModelProto | bytes | Path:
        """The model, as it is handed to the importer."""
        if self.data is not None:
            return self.data
        proto = onnx.parser.parse_model(self.text)
        if self.change is not None:
            self.change(proto)
        if not self.on_disk:
            return proto
        path = folder / "model.onnx"
        path.write_bytes(proto.SerializeToString())
        return path


def valid_bytes() -> bytes:
    """A small valid model, as a file."""
    return onnx.parser.parse_model(DENSE).SerializeToString()


def valid_large_bytes() -> bytes:
    """A valid model with a weight of 6 kB, which is not read through protobuf."""
    model = onnx.parser.parse_model(RELU.replace("Relu(x)", "MatMul(x, w)"))
    weights = np.linspace(-1, 1, 6000 // 4, dtype=np.float32).reshape(4, -1)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return model.SerializeToString()


def _body(nodes: str, inputs: str = "float[n, 4] x", weights: str = "") -> str:
    return f"{HEAD}g ({inputs}) => (float y) {weights} {{ {nodes} }}"


def _weight(proto: ModelProto) -> TensorProto:
    return proto.graph.initializer[0]


def _raw(proto: ModelProto, dims: list[int], size: int) -> None:
    weight = _weight(proto)
    weight.ClearField("float_data")
    weight.raw_data = bytes(size)
    weight.dims[:] = dims


def _external(proto: ModelProto, location: str, **entries: str) -> None:
    weight = _weight(proto)
    weight.ClearField("float_data")
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        entry = weight.external_data.add()
        entry.key, entry.value = key, value


def _attribute(proto: ModelProto, name: str, value: object) -> None:
    proto.graph.node[0].attribute.append(helper.make_attribute(name, value))


def _opset(proto: ModelProto, version: int, domain: str = "") -> None:
    del proto.opset_import[:]
    proto.opset_import.append(helper.make_opsetid(domain, version))


def _set_data_type(proto: ModelProto, code: int) -> None:
    _weight(proto).data_type = code


def _negative_index(proto: ModelProto) -> None:
    """A sparse weight whose index lies outside of its dims."""
    sparse = onnx.SparseTensorProto()
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(1, np.float32), "w"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([77]), "i"))
    sparse.dims[:] = [2, 3]
    del proto.graph.initializer[:]
    proto.graph.sparse_initializer.append(sparse)


def _call_itself(proto: ModelProto) -> None:
    for name, callee in (("f", "h"), ("h", "f")):
        function = proto.functions.add()
        function.name, function.domain = name, "mine"
        function.input.append("a")
        function.output.append("b")
        function.node.append(helper.make_node(callee, ["a"], ["b"], domain="mine"))
        function.opset_import.append(helper.make_opsetid("mine", 1))
    proto.opset_import.append(helper.make_opsetid("mine", 1))


def _sequence_input(proto: ModelProto) -> None:
    element = helper.make_tensor_type_proto(TensorProto.FLOAT, [1])
    kind = helper.make_sequence_type_proto(element)
    proto.graph.input.append(helper.make_value_info("s", kind))


FILES = (
    Case("empty", ("the file is empty", "export or download"), data=b""),
    Case("text", ("not an ONNX file",), data=b"hello, I am no model at all\n" * 9),
    Case("half", ("truncated or corrupted",), data=valid_bytes()[:-40]),
    Case("git lfs pointer", ("git lfs pull",), data=b"version https://git-lfs.github.com/spec/v1"),
    Case("zip", ("zip archive",), data=b"PK\x03\x04" + bytes(99)),
    Case("tflite", ("TensorFlow Lite",), data=b"\x1c\x00\x00\x00TFL3" + bytes(99)),
    Case("no graph", ("no ONNX graph",), data=ModelProto(ir_version=8).SerializeToString()),
)

VERSIONS = (
    Case("no opset", ("imports no operator set",), change=lambda m: m.ClearField("opset_import")),
    Case("old opset", ("operator set 0", "convert"), change=lambda m: _opset(m, 0)),
    Case("future opset", ("operator set 999", "upgrade"), change=lambda m: _opset(m, 999)),
    Case(
        "no such operator in what is not imported",
        ("mine.Relu", "custom operator"),
        text=RELU.replace("Relu", "mine.Relu"),
    ),
)

STRUCTURE = (
    Case("undefined value", ("'nowhere'", "Add#0"), _body("y = Add(x, nowhere)")),
    Case("undefined output", ("output 'y'", "not computed"), _body("z = Relu(x)")),
    Case(
        "cycle",
        ("form a cycle", "Add#0", "Relu#1"),
        _body("y = Add(x, b)\n b = Relu(y)"),
    ),
    Case("value twice", ("'y' is defined twice",), _body("y = Relu(x)\n y = Neg(x)")),
    Case("input overwritten", ("'x' is defined twice",), _body("x = Relu(x)\n y = Neg(x)")),
    Case(
        "input twice",
        ("input 'x' is defined twice",),
        change=lambda m: m.graph.input.append(m.graph.input[0]),
    ),
    Case(
        "initializer twice",
        ("initializer 'w' is defined twice",),
        DENSE,
        lambda m: m.graph.initializer.append(m.graph.initializer[0]),
    ),
    Case("recursive functions", ("circle", "mine.f -> mine.h -> mine.f"), change=_call_itself),
    Case(
        "sequence input", ("'s' is a sequence", "'s_length' is not fixed"), change=_sequence_input
    ),
    Case(
        "input without shape",
        ("'x' has no shape",),
        change=lambda m: m.graph.input[0].type.tensor_type.ClearField("shape"),
    ),
    Case("unknown dimension", ("no dimension 'batch'", "'n'"), dims={"batch": 3}),
    Case("negative dimension", ("'n' cannot be -3",), dims={"n": -3}),
)

NODES = (
    Case(
        "attribute of a wrong type",
        ("axis must be of type INT but is FLOAT", "Softmax#0"),
        _body("y = Softmax(x)"),
        lambda m: _attribute(m, "axis", 1.5),
    ),
    Case(
        "attribute that does not exist",
        ("Relu has no attribute 'alpha'",),
        change=lambda m: _attribute(m, "alpha", 1.5),
    ),
    Case(
        "attribute twice",
        ("attribute axis is given twice",),
        _body("y = Softmax<axis = 0>(x)"),
        lambda m: _attribute(m, "axis", 1),
    ),
    Case("attribute missing", ("axis is missing", "Concat#0"), _body("y = Concat(x, x)")),
    Case("too many inputs", ("3 inputs, expected 2", "Add#0"), _body("y = Add(x, x, x)")),
    Case("too few inputs", ("1 inputs, expected 2",), _body("y = Add(x)")),
    Case("absent input", ("1 inputs, expected 2",), _body("y = Add(x, )")),
    Case("too many outputs", ("2 outputs, expected 1",), _body("y, z = Relu(x)")),
    Case("axis out of range", ("axis 5", "rank 2"), _body("y = Softmax<axis = 5>(x)")),
    Case(
        "shapes that do not broadcast",
        ("sum", "do not broadcast", "4 against 3"),
        DENSE.replace("float[2, 3] x", "float[2, 4] x"),
    ),
    Case(
        "reshape to another size",
        ("cannot reshape [2, 3] into [4, 2]",),
        _body("y = Reshape(x, s)", "float[2, 3] x", "<int64[2] s = {4, 2}>"),
    ),
    Case(
        "reshape with two unknowns",
        ("more than one -1",),
        _body("y = Reshape(x, s)", "float[2, 3] x", "<int64[2] s = {-1, -1}>"),
    ),
    Case(
        "transpose by no permutation",
        ("perm [0, 0] is no permutation",),
        _body("y = Transpose<perm = [0, 0]>(x)"),
    ),
    Case(
        "kernel that is not the weights'",
        ("kernel_shape [5, 5] differs", "[3, 3]"),
        _body("y = Conv<kernel_shape = [5, 5]>(x, w)", "float[1, 2, 8, 8] x, float[4, 2, 3, 3] w"),
    ),
    Case("node without values", ("exactly one value",), _body("c = Constant()\n y = Add(x, c)")),
)

WEIGHTS = (
    Case(
        "raw data too short",
        ("initializer 'w'", "raw_data has 20 bytes", "needs 24"),
        DENSE,
        lambda m: _raw(m, [2, 3], 20),
    ),
    Case(
        "raw data too long",
        ("raw_data has 24 bytes", "needs 16"),
        DENSE,
        lambda m: _raw(m, [2, 2], 24),
    ),
    Case("negative dims", ("negative dims [-2, 3]",), DENSE, lambda m: _raw(m, [-2, 3], 24)),
    Case(
        "empty but huge",
        ("beyond any real tensor",),
        DENSE,
        lambda m: _raw(m, [0, 2**62, 2**62], 0),
    ),
    Case(
        "absurd dims",
        ("beyond any real tensor",),
        DENSE,
        lambda m: _raw(m, [2**40, 2**40], 24),
    ),
    Case(
        "wrong count",
        ("float_data has 6 values", "needs 8"),
        DENSE,
        lambda m: _weight(m).dims.__setitem__(slice(None), [2, 4]),
    ),
    Case("unknown dtype", ("element type 77",), DENSE, lambda m: _set_data_type(m, 77)),
    Case("sparse out of range", ("sparse indices", "'w'"), DENSE, _negative_index),
    Case(
        "external without folder",
        ("external file", "in memory", "path"),
        DENSE,
        lambda m: _external(m, "weights.bin"),
    ),
    Case(
        "external outside",
        ("outside of the model's folder", "'../weights.bin'"),
        DENSE,
        lambda m: _external(m, "../weights.bin"),
        on_disk=True,
    ),
    Case(
        "external absolute",
        ("outside of the model's folder",),
        DENSE,
        lambda m: _external(m, "/etc/passwd"),
        on_disk=True,
    ),
    Case(
        "external missing",
        ("'weights.bin' is not in",),
        DENSE,
        lambda m: _external(m, "weights.bin"),
        on_disk=True,
    ),
    Case(
        "external too short",
        ("ends at 10000024", "truncated"),
        DENSE,
        lambda m: _external(m, "model.onnx", offset="10000000"),
        on_disk=True,
    ),
    Case(
        "external length",
        ("external data of 12 bytes", "needs 24"),
        DENSE,
        lambda m: _external(m, "model.onnx", length="12"),
        on_disk=True,
    ),
    Case(
        "external offset",
        ("offset '-4'",),
        DENSE,
        lambda m: _external(m, "model.onnx", offset="-4"),
        on_disk=True,
    ),
)

UNSUPPORTED = (
    Case(
        "all at once",
        ("2 nodes", "ai.onnx.Whirl", "ai.onnx.Twirl", "Whirl#0", "Twirl#2"),
        _body("a = Whirl(x)\n b = Relu(x)\n y = Twirl(b)\n c = Neg(a)"),
    ),
    Case("unknown operator", ("no such operator",), _body("y = Frobnicate(x)")),
    Case(
        "custom operator",
        ("mine.Frobnicate (opset 1)", "custom operator"),
        _body("y = mine.Frobnicate(x)"),
        lambda m: m.opset_import.append(helper.make_opsetid("mine", 1)),
    ),
    Case(
        "rank from data",
        ("Reshape#0", "number of elements", "'s'", "not known before the model runs"),
        _body("y = Reshape(x, s)", "float[2, 3] x, int64[k] s"),
    ),
    Case(
        "branches of different types",
        ("If#0", "branch"),
        _body(
            "y = If (c) <then_branch = t () => (float[2] p) { p = Relu(x) },"
            " else_branch = e () => (float[1, 2] q) { q = Unsqueeze(x, z) }>",
            "float[2] x, bool c, int64[1] z",
        ),
    ),
)

OPERANDS_AND_TEXTS = (
    Case(
        "operand left out",
        ("Add#0", "its operand A is left out"),
        DENSE.replace("[sum]", ""),
        lambda m: m.graph.node[0].input.__setitem__(0, ""),
    ),
    Case(
        "text that is not UTF-8",
        ("name of Node, b'\\xffum', is not UTF-8",),
        data=valid_bytes().replace(b"sum", b"\xffum"),
    ),
    Case(
        "NUL in a name",
        ("name of Graph, 'a\\x00b', holds a NUL character",),
        RELU,
        lambda m: setattr(m.graph, "name", "a\0b"),
        on_disk=True,
    ),
)

CASES = (*FILES, *VERSIONS, *STRUCTURE, *NODES, *WEIGHTS, *OPERANDS_AND_TEXTS, *UNSUPPORTED)
