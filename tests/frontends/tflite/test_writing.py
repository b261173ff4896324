"""Files written again hold what they held, and what has been changed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("tflite")

from modelcc.frontends.tflite.module import TfliteModel
from modelcc.frontends.tflite.reading import read_model
from modelcc.frontends.tflite.tables import Table, read_tables, write_tables
from modelcc.frontends.tflite.writing import edited
from tests.frontends.tflite.files import Op, Subgraph, T, constant, model, one


def several() -> bytes:
    """Two subgraphs, a signature, options with numbers and texts, scales along an axis."""
    weights = T((4, 1, 1, 2), "int8", [0.1, 0.2, 0.3, 0.4], [0] * 4, 0,
                data=np.arange(8, dtype=np.int8).reshape(4, 1, 1, 2))  # fmt: skip
    tensors = [
        T((1, 3, 3, 2), "int8", 0.5, 7, open=(-1, 3, 3, 2)),
        weights,
        T((1, 3, 3, 4), "int8", 0.25, -3),
        constant([9, 4]),
        T((9, 4), "int8", 0.25, -3),
    ]
    convolved = Op(
        "CONV_2D",
        [0, 1, -1],
        [2],
        "Conv2DOptions",
        {"Padding": 1, "StrideH": 1, "StrideW": 1, "FusedActivationFunction": 1},
    )
    shaped = Op("RESHAPE", [2, 3], [4], "ReshapeOptions", {"NewShape": [9, 4]})
    custom = Op("Mine", [0], [1], custom=b"\x01\x02")
    other = Subgraph([T((2,), "float32"), T((2,), "float32")], [0], [1], [custom])
    parts = [Subgraph(tensors, [0], [4], [convolved, shaped]), other]
    return model(parts, signature=({"in": 0}, {"out": 4}))  # fmt: skip


def same(a: TfliteModel, b: TfliteModel) -> bool:
    return repr(a) == repr(b)


def test_all_is_written_again() -> None:
    data = several()
    again = write_tables(read_tables(data))
    assert same(read_model(again, "net"), read_model(data, "net"))
    assert write_tables(read_tables(again)) == again


def test_nothing_changes_where_nothing_is_changed() -> None:
    data = several()
    found = read_model(data, "net")
    assert same(read_model(edited(data, found, found), "net"), found)


def test_tensors_and_operators_are_changed() -> None:
    data = several()
    before = read_model(data, "net")
    main = before.subgraphs[0]
    zeros = np.zeros((4, 1, 1, 2), np.int8)
    tensors = (replace(main.tensors[0], name="x"), replace(main.tensors[1], data=zeros))
    first = main.operators[0]
    narrow = replace(first, options={**first.options, "padding": "SAME", "stride_w": 2})
    changed = replace(
        main, tensors=(*tensors, *main.tensors[2:]), operators=(narrow, *main.operators[1:])
    )
    after = replace(before, subgraphs=(changed, *before.subgraphs[1:]))
    found = read_model(edited(data, before, after), "net").subgraphs[0]
    assert [t.name for t in found.tensors[:2]] == ["x", "t1"]
    assert found.tensors[0].shape == (-1, 3, 3, 2)
    assert found.tensors[1].data is not None and not found.tensors[1].data.any()
    assert found.tensors[1].quantization is not None
    assert found.operators[0].options["padding"] == "SAME"
    assert found.operators[0].options["stride_w"] == 2
    assert found.operators[0].options["fused_activation_function"] == "RELU"
    assert found.operators[0].inputs == (0, 1, -1)


def test_options_far_behind_are_refused() -> None:
    tree = Table("Operator", {"LargeCustomOptionsOffset": 8})
    data = one("RELU", [T((2,)), T((2,))])
    whole = read_tables(data)
    subgraph = whole.fields["Subgraphs"][0].with_fields(Operators=[tree])
    with pytest.raises(Exception, match="cannot be written again"):
        read_tables(write_tables(whole.with_fields(Subgraphs=[subgraph])))
