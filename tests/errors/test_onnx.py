"""Every broken or unsupported ONNX model is refused with a message that says what and where."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import modelcc
from modelcc.frontends.onnx import UnsupportedModel, import_onnx
from modelcc.ir.errors import ModelError
from tests.errors.onnx.cases import CASES, UNSUPPORTED, Case, valid_bytes, valid_large_bytes


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_message(case: Case, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        import_onnx(case.model(tmp_path), case.dims)
    for fragment in case.says:
        assert fragment in str(caught.value)


@pytest.mark.parametrize("case", UNSUPPORTED, ids=[c.name for c in UNSUPPORTED])
def test_unsupported_is_told_apart(case: Case, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        import_onnx(case.model(tmp_path))
    assert all(n.reason and n.version and "." in n.operator for n in caught.value.nodes)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot read .*none\.onnx: No such file"):
        import_onnx(tmp_path / "none.onnx")
    with pytest.raises(ModelError, match="is a folder"):
        import_onnx(tmp_path)


def test_values_that_do_not_fit() -> None:
    with pytest.raises(ModelError, match="no input 'z'"):
        import_onnx(valid_bytes(), values={"z": np.zeros(3, np.float32)})
    with pytest.raises(ModelError, match="'x' is float64"):
        import_onnx(valid_bytes(), values={"x": np.zeros((2, 3))})
    with pytest.raises(ModelError, match=r"'x' is float32\[2, 4\]"):
        import_onnx(valid_bytes(), values={"x": np.zeros((2, 4), np.float32)})


@pytest.mark.parametrize("make", [valid_bytes, valid_large_bytes])
@pytest.mark.parametrize("seed", range(10))
def test_corrupted_bytes_never_give_a_traceback(seed: int, make: Callable[[], bytes]) -> None:
    """Random bytes of a valid file are overwritten, inserted or lost."""
    choose = random.Random(seed)
    for _ in range(25):
        data = bytearray(make())
        for _ in range(choose.randint(1, 4)):
            at = choose.choice((choose.randrange(len(data)), choose.randrange(min(99, len(data)))))
            match choose.randrange(3):
                case 0:
                    data[at] = choose.randrange(256)
                case 1:
                    data.insert(at, choose.randrange(256))
                case _:
                    del data[at]
        try:
            import_onnx(bytes(data))
        except ModelError as error:
            assert str(error)


@pytest.mark.parametrize(("then", "other"), [(0, 1), (1, 0)])
def test_branches_give_as_many_results(then: int, other: int) -> None:
    given = ["() { a = Neg(x) }", "(float[3] b) { b = Abs(x) }"]
    model = onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 18]>
    g (bool c, float[3] x) => (float[3] y) {{
      y = If(c) <then_branch = t () => {given[then]},
                 else_branch = e () => {given[other]}>
    }}""")
    with pytest.raises(ModelError, match=f"If#0: its branches give {then} and {other} results"):
        import_onnx(model)


def expanded(shape: str, to: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 18]>
    g (float[{shape}] x) => (float y) {{
      s = Constant <value_ints = [{to}]> ()
      y = Expand(x, s)
    }}""")
    model.graph.output[0].ClearField("type")
    return model


def test_results_that_no_machine_has_room_for() -> None:
    model = expanded("1, 1, 4, 6", "1099511627776, 1099511627776, 1, 1, 4, 6")
    message = r"Expand#\d: .* would take [\d,]+ bytes, and no more than 140,737,488,355,328 can"
    with pytest.raises(ModelError, match=message):
        import_onnx(model)


def test_results_that_this_machine_has_no_room_for() -> None:
    net = modelcc.compile(expanded("1", "35184372088832"), threads=1, cache=None)
    with pytest.raises(MemoryError, match="the system has no"):
        net.run({"x": np.ones(1, np.float32)})
