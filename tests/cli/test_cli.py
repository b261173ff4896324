"""The command line: what it prints, writes and returns."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from small_models import mlp

import modelcc
from modelcc.cli import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a model and a cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODELCC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MODELCC_NUM_THREADS", "1")
    (tmp_path / "net.onnx").write_bytes(mlp("batch").SerializeToString())
    return tmp_path


def test_compile_and_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "net.onnx"]) == 0
    assert "wrote net.mcc" in capsys.readouterr().err
    x = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    np.save("x.npy", x)
    assert main(["run", "net.mcc", "-i", "x=x.npy", "-o", "out.npz"]) == 0
    assert "f32[5, 3]" in capsys.readouterr().out
    session = onnxruntime.InferenceSession("net.onnx")
    (want,) = map(np.asarray, session.run(None, {"x": x}))
    np.testing.assert_allclose(np.load("out.npz")["y"], want, rtol=1e-5, atol=1e-6)


def test_run_an_onnx_file_on_random_inputs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "net.onnx", "--size", "batch=4", "--json", "--repeat", "3"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["outputs"]["y"]["type"] == "f32[4, 3]"
    assert len(result["seconds"]) == 3


@pytest.mark.parametrize("option", ["--dim", "--size"])
def test_a_dimension_has_one_size(
    folder: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert main(["run", "net.onnx", option, "batch=2", option, "batch=3"]) == 2
    assert "has the dimension 'batch' twice" in capsys.readouterr().err


def test_run_profiles(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "net.onnx", "--profile"]) == 0
    out = capsys.readouterr().out
    assert "GFLOP/s" in out and "fc0" in out


def test_compile_reports_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "net.onnx", "--json", "--page", "plan.html"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["cached"] is False and first["inputs"] == {"x": "f32[batch, 6]"}
    assert "emit/emit" in first["stages"]
    assert "<svg" in Path("plan.html").read_text()
    assert main(["compile", "net.onnx", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cached"] is True


LEVELS = {
    "graph": ".graph.mlir",
    "tensor": ".tensor.txt",
    "launches": ".launches.txt",
    "program": ".program.txt",
}


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_compiles_on(folder: Path, level: str) -> None:
    assert main(["compile", "net.onnx", "-o", "direct.mcc", "--no-cache"]) == 0
    assert main(["compile", "net.onnx", "--emit", level, "-o", "text/"]) == 0
    text = f"text/net{LEVELS[level]}"
    assert main(["compile", text, "--from", level, "-o", "resumed.mcc"]) == 0
    assert Path("resumed.mcc").read_bytes() == Path("direct.mcc").read_bytes()


@pytest.mark.parametrize("level", [*LEVELS, "loop"])
def test_every_level_prints_what_it_reads(
    folder: Path, level: str, capsys: pytest.CaptureFixture[str]
) -> None:
    suffix = {**LEVELS, "loop": ".loop.txt"}[level]
    assert main(["compile", "net.onnx", "--emit", level, "-o", "text/"]) == 0
    assert main(["compile", f"text/net{suffix}", "--from", level, "--emit", level]) == 0
    assert capsys.readouterr().out == Path(f"text/net{suffix}").read_text()


def test_machine_forms(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "net.onnx", "--emit", "llvm"]) == 0
    text = capsys.readouterr().out
    assert "define i32 @small_run" in text
    Path("net.ll").write_text(text)
    assert main(["compile", "net.ll", "--from", "llvm", "--emit", "asm"]) == 0
    assert "small_run:" in capsys.readouterr().out
    assert main(["compile", "net.ll", "--from", "llvm", "--emit", "obj", "-o", "net.o"]) == 0
    assert Path("net.o").read_bytes()[:4] == b"\x7fELF"


def test_stablehlo_is_of_the_graph(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "net.onnx", "--emit", "stablehlo"]) == 0
    direct = capsys.readouterr().out
    assert "stablehlo.dot_general %x" in direct
    assert main(["compile", "net.onnx", "--emit", "graph", "-o", "text/"]) == 0
    assert main(["compile", "text/net.graph.mlir", "--from", "graph", "--emit", "stablehlo"]) == 0
    assert "stablehlo.dot_general %x" in capsys.readouterr().out
    assert main(["compile", "net.onnx", "--emit", "tensor", "-o", "text/"]) == 0
    assert main(["compile", "text/net.tensor.txt", "--from", "tensor", "--emit", "stablehlo"]) != 0
    assert "comes before" in capsys.readouterr().err


def test_onnx_there_and_back(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "net.onnx", "--emit", "onnx"]) != 0
    assert "would be overwritten" in capsys.readouterr().err
    assert main(["compile", "net.onnx", "--emit", "onnx", "-o", "copy.mcc"]) != 0
    assert "name it copy.onnx" in capsys.readouterr().err
    assert main(["compile", "net.onnx", "--emit", "onnx", "-o", "copy.onnx"]) == 0
    x = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    found, wanted = (
        np.asarray(onnxruntime.InferenceSession(name).run(None, {"x": x})[0])
        for name in ("copy.onnx", "net.onnx")
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_dumps_and_times(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "net.onnx", "--dump-dir", "dumps", "--pass-timing"]) == 0
    names = sorted(path.name for path in Path("dumps").iterdir())
    assert names[0] == "001-import-import.txt"
    assert any("lower_graph" in name for name in names)
    assert "lower/lower_graph" in capsys.readouterr().out


def test_reports_have_totals_and_whole_names(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where stdout is no terminal there is room; the compiler's times are asked for apart."""
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["compile", "net.onnx", "--report", "--no-cache"]) == 0
    shown = capsys.readouterr().out
    report = modelcc.load("net.mcc").report()
    assert report is not None and len(report.kernels) > 1
    assert all(kernel.function in shown for kernel in report.kernels)
    (total,) = (line for line in shown.splitlines() if "in all" in line)
    assert f"{report.flops / 1e6:.3f}" in total
    assert "lower/lower_graph" not in shown


def test_verify_agrees(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "net.onnx", "--layers", "--bisect", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["agrees"] and result["layer"] is None and result["culprit"] is None
    assert [d["name"] for d in result["peer"]] == ["y"]


def test_verify_differs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "net.onnx", "--tolerance", "-1", "--layers"]) == 1
    assert "first node that differs: fc0 (mcc.MatMul)" in capsys.readouterr().out


def test_bench(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "net.onnx", "--against", "onnxruntime", "--rounds", "1", "--json"]
    assert main(command) == 0
    printed = json.loads(capsys.readouterr().out)
    engines = printed["engines"]
    assert printed["sizes"] == {"batch": 2}
    assert set(engines) == {"modelcc", "onnxruntime"}
    assert engines["onnxruntime"]["difference"] < 1e-5
    assert all(e["seconds"] > 0 and e["peak_bytes"] > 0 for e in engines.values())


def test_lists(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", "--json"]) == 0
    assert "compute" in json.loads(capsys.readouterr().out)["mcc.Conv"]["facets"]
    assert main(["targets", "--json"]) == 0
    assert "llvm" in json.loads(capsys.readouterr().out)["native"]["forms"]


@pytest.mark.parametrize("command", ["", "compile", "run", "bench", "verify", "ops", "targets"])
def test_help_teaches(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    assert "modelcc " in capsys.readouterr().out
