"""``modelcc check``, ``profile`` and ``compare`` about layers on a microcontroller."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from modelcc.cli.main import main
from modelcc.targets.mcu.emulation.boards import missing_tools
from modelcc.targets.mcu.machine import MODELS
from tests.embedded import keyword_spotter, needs_compiler


@pytest.fixture
def model(tmp_path: Path) -> str:
    onnx.save(keyword_spotter(), tmp_path / "net.onnx")
    return str(tmp_path / "net.onnx")


def test_check_tells_each_layer(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", model, "--target", "cortex-m0plus", "--mhz", "48", "--json"]) == 0
    layers = json.loads(capsys.readouterr().out)["layers"]
    assert any("net/depth1" in layer["source"] for layer in layers)
    assert all(layer["milliseconds"] == layer["cycles"] / 48e3 for layer in layers)


def test_profile_of_a_microcontroller(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    missing = missing_tools(MODELS["cortex-m3"])
    trace = Path(model).with_name("trace.json")
    command = ["profile", model, "--target", "cortex-m3", "--json", "--trace", str(trace)]
    if missing:
        assert main(command) == 2 and missing in capsys.readouterr().err
        return
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    events = json.loads(trace.read_text())["traceEvents"]
    assert len(events) == len(found["layers"]) + 1
    assert 0 < sum(layer["instructions"] for layer in found["layers"]) <= found["instructions"]


def test_profile_of_this_machine(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", model, "--no-cache"]) == 0
    assert "µs" in capsys.readouterr().out


@needs_compiler
def test_compare(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", model, "--target", "mcu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["agrees"] and found["engine"] == "onnxruntime"
    assert {form["place"] for form in found["forms"]} == {"this machine"}
    assert found["missing"]


def test_an_arduino_library_is_written(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(model).parent
    command = ["compile", model, "--emit", "arduino", "-o"]
    assert main([*command, f"{folder}/lib/", "--target", "cortex-m4"]) == 0
    assert (folder / "lib/examples/net_example/net_example.ino").exists()
    assert main([*command, f"{folder}/host/"]) == 2
    assert "target c writes no Arduino library" in " ".join(capsys.readouterr().err.split())
    assert main([*command, f"{folder}/one.c", "--target", "cortex-m4"]) == 2
    assert "is a folder" in capsys.readouterr().err
