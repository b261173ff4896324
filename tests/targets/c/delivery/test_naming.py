"""Names for C and C++, and what has no form in C."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from modelcc.cli.main import main
from modelcc.ir.errors import ModelError
from modelcc.targets.c.delivery.naming import checked_prefix, field_names, prefix_of
from modelcc.targets.c.names import string_body
from tests.delivered import WARNINGS, delivered, mlp, needs_compiler, parsed, run


@pytest.mark.parametrize(
    ("stem", "name"),
    [("resnet50-v1-7", "resnet50_v1_7"), ("3d", "v3d"), ("class", "v_class"), ("int", "v_int"),
     ("string", "string_model"), ("main", "v_main"), ("", "v"), ("größe", "gr_e")],
)  # fmt: skip
def test_names_of_files_become_prefixes(stem: str, name: str) -> None:
    assert prefix_of(stem) == name
    assert checked_prefix(name) == name


@pytest.mark.parametrize("name", ["math", "a-b", "2x", "new", "a__b", "", "String"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(ModelError, match="cannot be the name of a model in C"):
        checked_prefix(name)


def test_fields_differ() -> None:
    names = ("a/b", "a.b", "this", "x", "x", "_y")
    found = field_names(names)
    assert found == ("a_b", "a_b_2", "v_this", "x", "x_2", "v_y")


@needs_compiler
@pytest.mark.parametrize(
    "text", ['a"b\\c', "a\nb\tc", "???/", "??/1", "\x01" + "23", "ü\u202e\u2028z", "%s", "a\udcff"]
)
def test_strings_hold_what_they_say(text: str, tmp_path: Path) -> None:
    """A C compiler reads them, also with trigraphs."""
    body = string_body(text)
    assert body.isprintable()
    program = f'#include <stdio.h>\nint main(void) {{ return fputs("{body}", stdout) < 0; }}\n'
    (tmp_path / "text.c").write_text(program)
    run(["cc", "-std=c11", *WARNINGS, "text.c", "-o", "text"], tmp_path)
    done = subprocess.run([tmp_path / "text"], capture_output=True, check=True)
    assert done.stdout == text.encode("utf-8", "surrogateescape")


def test_texts_are_refused(tmp_path: Path) -> None:
    model = parsed("texts (string[2] x) => (string[2] y) { y = Identity (x) }")
    with pytest.raises(ModelError, match="'x' is a tensor of texts, which has no form in C"):
        delivered(model, tmp_path)


def test_work_of_the_runtime_is_refused(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    node = helper.make_node("ImageDecoder", ["x"], ["y"], "decode")
    sides = [value("x", TensorProto.UINT8, ["n"])], [value("y", TensorProto.UINT8, ["h", "w", 3])]
    graph = helper.make_graph([node], "decoder", *sides)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    with pytest.raises(ModelError, match=r"work on what the caller gives .* no form in C"):
        delivered(model, tmp_path)


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODELCC_CACHE_DIR", "")
    (tmp_path / "my-net.onnx").write_bytes(mlp().SerializeToString())
    assert main(["compile", "my-net.onnx", "--emit", "c", "-o", "c/", "--threads", "1"]) == 0
    names = {"my_net.h", "my_net.c", "my_net_weights.c", "my_net_weights.bin", "main.c",
             "CMakeLists.txt"}  # fmt: skip
    assert {path.name for path in (tmp_path / "c").iterdir()} == names
    more = ["--name", "other", "--weights", "array"]
    assert main(["compile", "my-net.onnx", "--emit", "c", "-o", "d/", "--threads", "1", *more]) == 0
    assert "other_weights.bin" not in {path.name for path in (tmp_path / "d").iterdir()}
    assert "other_run(" in (tmp_path / "d" / "other.h").read_text()


def test_options_of_c_need_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.onnx").write_bytes(mlp().SerializeToString())
    assert main(["compile", "net.onnx", "--weights", "array"]) != 0
    assert "--name and --weights are for C in a folder" in capsys.readouterr().err
