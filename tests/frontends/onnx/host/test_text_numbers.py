"""Casts of texts to numbers, against onnxruntime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper

import modelcc
from modelcc.ir.types import Array
from modelcc.runtime.errors import InputError

WHOLE = ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool")
REAL = ("float", "double", "float16", "float8e4m3fn")
TEXTS = (
    *("0", "-0", "+0", "12", "+5", "-7", "007", "-00000000000000000000000000012", "128", "300"),
    *("65535", "2147483648", "-2147483649", "4294967296", "9223372036854775807"),
    *("-9223372036854775808", "9223372036854775808", "18446744073709551615", " 12", "12 ", "12\n"),
    *("\t\n\v\f\r 12", "5.", "5.7", "-5.7", "0.5", "-0.5", "0e400", "1e3", "1E-3", "-2e+3", ".5"),
    *(
        "-.5",
        "nan",
        "NaN",
        "-nan",
        "inf",
        "-INF",
        "+Infinity",
        "1e39",
        "1e-50",
        "65520",
        "65519.99",
    ),
    *("16777217", "1.7976931348623157e308", "2.2250738585072014e-308", "0.0e-999"),
    *(
        "",
        " ",
        "x12",
        "++5",
        "+ 5",
        "٣",
        "１２",
        "\u00a012",
        "\x1c12",
        "true",
        ".",
        "e5",
        "--1",
    ),
    *("99999999999999999999999", "-99999999999999999999", "1" * 5000, "18446744073709551616"),
    *("-18446744073709551615", "1e400", "-1e400", "1e-400", "1e5000000000", "0." + "0" * 400 + "1"),
)
LEFT_OFF = (
    *("1_000", "12x", "1,000", "1.5.2", "0x10", "0b1", "1f", "1d3", "12\x00", "12\x003", "nan(1)"),
    "infin",
)
"""What onnxruntime reads the beginning of."""


def model_of(name: str) -> ModelProto:
    element = TensorProto.DataType.Value(name.upper())
    x = helper.make_tensor_value_info("x", TensorProto.STRING, ["n"])
    y = helper.make_tensor_value_info("y", element, ["n"])
    node = helper.make_node("Cast", ["x"], ["y"], "the_node", to=element)
    graph = helper.make_graph([node], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def shown(numbers: Array, name: str) -> str:
    """One number, so that only the same looks the same; 8-bit floats may come as bits."""
    (number,) = numbers.view(ml_dtypes.float8_e4m3fn) if name == "float8e4m3fn" else numbers
    if name in WHOLE:
        return str(number)
    return "nan" if number != number else float(number).hex()


def read(net: Any, text: str, name: str) -> str | None:
    """None for what is refused."""
    try:
        return shown(np.asarray(net(np.array([text], object))), name)
    except InputError as error:
        assert "input 'x': expected values for the_node, got others; '" in str(error)
        return None


@pytest.mark.parametrize("name", [*WHOLE, *REAL])
def test_numbers_are_those_of_onnxruntime_or_refused(name: str) -> None:
    model = model_of(name)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    net = modelcc.compile(model, threads=1, cache=None)

    def by_onnxruntime(text: str) -> str | None:
        try:
            found = session.run(None, {"x": np.array([text], object)})[0]
            return shown(np.asarray(found), name)
        except Exception:
            return None

    for text in TEXTS:
        exponent = name in WHOLE and text[:1] in [*"-012"] and "e" in text.lower()
        wanted = None if exponent else by_onnxruntime(text)  # which leaves off before it
        assert read(net, text, name) == wanted, text
    for text in LEFT_OFF:
        assert read(net, text, name) is None, text


def test_8_bit_floats_saturate_unless_told_not_to() -> None:
    model = model_of("float8e4m3fn")
    model.graph.node[0].attribute.append(helper.make_attribute("saturate", 0))
    x = np.array(["1e30", "448"], object)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    wanted = np.asarray(session.run(None, {"x": x})[0])
    found = np.asarray(modelcc.compile(model, threads=1, cache=None)(x))
    assert found.view(np.uint8).tolist() == wanted.view(np.uint8).tolist()


def test_subnormal_numbers_are_read() -> None:
    """Which onnxruntime refuses."""
    net = modelcc.compile(model_of("double"), threads=1, cache=None)
    assert np.asarray(net(np.array(["5e-324", "-1e-310"], object))).tolist() == [5e-324, -1e-310]


def test_the_message_shows_the_text_and_what_is_wanted() -> None:
    net = modelcc.compile(model_of("int32"), threads=1, cache=None)
    with pytest.raises(InputError, match=r"the_node.*; '1_000' spells no integer, as '-12' does"):
        net(np.array(["1_000"], object))
    with pytest.raises(InputError, match=r"; '1{40}…' is an integer of more than 64 bits"):
        net(np.array(["1" * 5000], object))
    net = modelcc.compile(model_of("float"), threads=1, cache=None)
    with pytest.raises(InputError, match="; '1e400' is beyond the range of floats of 64 bits"):
        net(np.array(["1e400"], object))
