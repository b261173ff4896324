"""What tables say of operators: reasons with numbers, partitions, multiplications."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("tflite")

import tflite  # pyright: ignore[reportMissingImports]

from modelcc.frontends.tflite.reading import read_model
from modelcc.subsets.table import SUBSETS
from modelcc.subsets.verdict import SubsetReport, check_model
from tests.frontends.tflite.files import Op, Subgraph, T, constant, model, one

SCHEMA: Any = tflite


def checked(data: bytes, target: str) -> SubsetReport:
    return check_model(read_model(data, "net"), SUBSETS[target])


@pytest.mark.parametrize("name", SUBSETS)
def test_tables_name_operators_of_the_schema(name: str) -> None:
    known = vars(SCHEMA.BuiltinOperator)
    subset = SUBSETS[name]
    assert [op for op in (*subset.operators, *subset.absent) if op not in known] == []
    assert not subset.operators.keys() & subset.absent.keys()


def dense(dtype: str = "int8", batch: int = 1) -> bytes:
    data = np.ones((8, 16), np.int8 if dtype == "int8" else np.float32)
    kind = "int8" if dtype == "int8" else "float32"
    weights = T((8, 16), kind, 0.01 if dtype == "int8" else None, data=data)
    scale = None if dtype == "float32" else 0.1
    tensors = [T((batch, 16), dtype, scale), weights, T((batch, 8), dtype, scale)]
    return one("FULLY_CONNECTED", tensors, "FullyConnectedOptions")


def softmax(count: int) -> bytes:
    tensors = [T((1, count), "int8", 0.1), T((1, count), "int8", 1 / 256, -128)]
    return one("SOFTMAX", tensors, "SoftmaxOptions", Beta=1.0)


def padded() -> bytes:
    pads = constant([[1, 0], [0, 0], [0, 0], [0, 0]])
    return one("PAD", [T((1, 2, 2, 4), "int8", 0.1), pads, T((2, 2, 2, 4), "int8", 0.1)])


REASONS = (
    ("coral-edgetpu", dense(batch=4), "a result of (4, 8); one row is taken"),
    ("coral-edgetpu", dense("float32"), "'t0' is FLOAT32, not of 8 bits"),
    ("coral-edgetpu", softmax(16_001), "16001 elements; up to 16,000"),
    ("coral-edgetpu", padded(), "1 and 0 pads of the batch axis"),
    ("tflm", one("SQRT", [T((1, 4), "int8", 0.1)] * 2), "'t0' is INT8; taken are FLOAT32"),
    ("tflm", one("POW", [T((1, 4), "float32")] * 3), "tflm has no POW"),
    ("cmsis-nn", dense("float32"), "'t0' is FLOAT32; taken are INT8, INT16"),
    ("cmsis-nn", one("ADD", [T((1, 4), "int8", 0.1), T((1, 1), "int8", 0.1),
                             T((1, 4), "int8", 0.1)]), "(1, 4) and (1, 1); equal extents"),
    ("ethos-u55", dense("float32"), "'t0' is FLOAT32"),
)  # fmt: skip


@pytest.mark.parametrize(("target", "data", "reason"), REASONS)
def test_reasons(target: str, data: bytes, reason: str) -> None:
    (node,) = checked(data, target).nodes
    assert not node.taken
    assert any(reason in text for text in node.reasons), node.reasons


@pytest.mark.parametrize("target", SUBSETS)
def test_a_product_of_bytes_is_taken_everywhere(target: str) -> None:
    report = checked(dense(), target)
    assert (report.taken, report.macs, report.partitions) == (1, (128, 128), 1)


def test_one_partition_ends_at_the_first_that_is_not_taken() -> None:
    tensors = [T((1, 4), "int8", 0.1)] * 4
    names = ("RELU", "SIN", "RELU6")
    operators = [Op(name, [n], [n + 1]) for n, name in enumerate(names)]
    data = model([Subgraph(tensors, [0], [3], operators)])
    coral = checked(data, "coral-edgetpu")
    assert [node.taken for node in coral.nodes] == [True, False, False]
    assert coral.nodes[2].behind and "it comes after 1 SIN 't2'" in coral.nodes[2].reasons[0]
    assert [node.taken for node in checked(data, "ethos-u55").nodes] == [True, False, True]
    assert checked(data, "ethos-u55").partitions == 2


def test_numbers_made_of_floats_come_before_the_partition() -> None:
    tensors = [T((1, 4), "float32"), T((1, 4), "int8", 0.1), T((1, 4), "int8", 0.1)]
    operators = [Op("QUANTIZE", [0], [1]), Op("RELU", [1], [2])]
    data = model([Subgraph(tensors, [0], [2], operators)])
    assert [node.taken for node in checked(data, "coral-edgetpu").nodes] == [False, True]
