"""Long lists in attributes: read without an object for each item, packed or not."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, ModelProto, helper

from modelcc.frontends.onnx import import_onnx
from modelcc.frontends.onnx.loader import load
from modelcc.frontends.onnx.number_lists import coded, integers, texts
from modelcc.ir.errors import ModelError
from tests.frontends.onnx.forests import balanced
from tests.frontends.onnx.ml_models import ml_model


def _list(name: str, values: list[int] | list[str]) -> memoryview:
    """The items of an attribute as protobuf writes them, without its name and type."""
    attribute = helper.make_attribute(name, values)
    head = 2 + len(name)
    return memoryview(attribute.SerializeToString())[head:-3]


@pytest.mark.parametrize("high", [1 << 5, 1 << 7, 1 << 14, 1 << 31, (1 << 63) - 1])
def test_integers_of_any_size(high: int) -> None:
    random = np.random.default_rng(0)
    values = [0, 1, -1, high, -high, *random.integers(-high, high, 100_000).tolist()]
    found = integers(_list("a", values), 8 << 3)
    assert found is not None
    assert found.tolist() == values


def test_what_is_no_list_of_integers_is_left_to_protobuf() -> None:
    items = bytes(_list("a", [1, 300, 5]))
    for broken in (items[:-1], items + b"\x40", b"\x48" + items[1:], b"\x40" + b"\xff" * 12):
        assert integers(memoryview(broken), 8 << 3) is None


@pytest.mark.parametrize(
    "values", [["LEAF", "BRANCH_LEQ", "LEAF"], ["a", "", "bb", "a"], ["JAJ", "x"], ["x" * 200]]
)
def test_texts_are_told_apart_or_left_to_protobuf(values: list[str]) -> None:
    found = texts(_list("a", values), 9 << 3 | 2) or coded(values)
    assert [found.texts[code] for code in found.codes] == values


def large(path: Path, packed: bool = False) -> ModelProto:
    """A model of 2 ** 17 nodes, as Python writes it or with packed lists."""
    model, _ = ml_model("TreeEnsembleRegressor", [np.zeros((1, 50), np.float32)], opset=3,
                        **balanced(16, 50))  # fmt: skip
    path.write_bytes(_packed(model) if packed else model.SerializeToString())
    return model


def _packed(model: ModelProto) -> bytes:
    """The model with lists of numbers packed: protobuf reads both forms."""

    def varint(value: int) -> bytes:
        found = bytearray()
        while value > 127:
            found.append(value & 127 | 128)
            value >>= 7
        return bytes([*found, value])

    def field(number: int, content: bytes) -> bytes:
        return varint(number << 3 | 2) + varint(len(content)) + content

    def attribute(a: AttributeProto) -> bytes:
        name, kind = field(1, a.name.encode()), b"\xa0\x01" + varint(a.type)
        if a.type == AttributeProto.INTS:
            return name + field(8, b"".join(varint(i & (1 << 64) - 1) for i in a.ints)) + kind
        if a.type == AttributeProto.FLOATS:
            return name + field(7, np.array(a.floats, "<f4").tobytes()) + kind
        return a.SerializeToString()

    (node,) = model.graph.node
    lists = b"".join(field(5, attribute(a)) for a in node.attribute)
    bare = helper.make_node(node.op_type, node.input, node.output, domain=node.domain)
    graph = onnx.GraphProto()
    graph.CopyFrom(model.graph)
    del graph.node[:]
    rest = ModelProto()
    rest.CopyFrom(model)
    rest.ClearField("graph")
    whole = field(1, bare.SerializeToString() + lists) + graph.SerializeToString()
    return rest.SerializeToString() + field(7, whole)


@pytest.mark.parametrize("packed", [False, True])
def test_long_lists_are_not_parsed(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "large.onnx"
    model = large(path, packed)
    loaded = load(path)
    assert len(loaded.lists) == len(model.graph.node[0].attribute) - 1
    assert loaded.proto.ByteSize() < 2000
    constants = [
        {c.digest for c in import_onnx(form).constants.values()}
        for form in (path, model, path.read_bytes())
    ]
    assert constants[0] == constants[1] == constants[2]


def test_importing_takes_little_more_memory_than_the_model(tmp_path: Path) -> None:
    path = tmp_path / "large.onnx"
    large(path)
    import_onnx(path)
    tracemalloc.start()
    import_onnx(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2.5 * path.stat().st_size


def test_a_corrupted_list_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.onnx"
    large(path)
    data = bytearray(path.read_bytes())
    place = data.index(b"nodes_truenodeids") + 200_000
    data[place : place + 40] = b"\xff" * 40
    path.write_bytes(data)
    with pytest.raises(ModelError, match="nodes_truenodeids is no list"):
        import_onnx(path)
