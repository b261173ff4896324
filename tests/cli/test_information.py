"""``inspect``, ``cache``, ``version`` and ``ops``: what they say, for people and as JSON."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_models import mlp

import modelcc
from modelcc.cli import main
from modelcc.report.model_facts import facts_of

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODELCC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MODELCC_NUM_THREADS", "1")
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "net.onnx").write_bytes(mlp("batch").SerializeToString())
    return tmp_path


def branching() -> bytes:
    """An If whose branches have a node and a weight each, and a weight outside."""
    info = helper.make_tensor_value_info
    bodies = [
        helper.make_graph(
            [helper.make_node(op, ["x", "c"], ["y"])],
            op,
            [],
            [info("y", TensorProto.FLOAT, [4])],
            [numpy_helper.from_array(np.ones(4, np.float32), "c")],
        )
        for op in ("Add", "Mul")
    ]
    node = helper.make_node("If", ["p"], ["z"], then_branch=bodies[0], else_branch=bodies[1])
    graph = helper.make_graph(
        [node],
        "branching",
        [info("p", TensorProto.BOOL, []), info("x", TensorProto.FLOAT, [4])],
        [info("z", TensorProto.FLOAT, [4])],
        [numpy_helper.from_array(np.ones(3, np.int64), "unused")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.metadata_props.add(key="author", value="somebody")
    return model.SerializeToString()


def test_inspect_an_onnx_file(folder: Path, capsys: Capture) -> None:
    Path("if.onnx").write_bytes(branching())
    assert main(["inspect", "if.onnx", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["ops"] == {"If": 1, "Add": 1, "Mul": 1} and facts["subgraphs"] == 2
    assert facts["opsets"] == {"ai.onnx": 17} and facts["metadata"] == {"author": "somebody"}
    assert facts["inputs"] == {"p": "bool[]", "x": "float[4]"}
    assert facts["weights"]["by_type"] == {"float": 32, "int64": 24}
    assert main(["inspect", "net.onnx"]) == 0
    text = capsys.readouterr().out
    for part in ("float[batch, 6]", "batch", "ai.onnx"):
        assert part in text
    assert max(map(len, text.splitlines())) <= 80


def test_inspect_an_artifact_without_its_code(folder: Path, capsys: Capture) -> None:
    assert main(["compile", "net.onnx", "-q"]) == 0
    assert main(["inspect", "net.mcc", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    net = modelcc.load("net.mcc")
    assert facts["sha256"] == net.digest == hashlib.sha256(Path("net.mcc").read_bytes()).hexdigest()
    assert facts["bytes"] == Path("net.mcc").stat().st_size
    assert facts["inputs"] == {"x": "f32[batch, 6]"} and facts["machine"]["cpu"]
    assert {"manifest.json"} <= {member["name"] for member in facts["members"]}
    assert main(["inspect", "net.mcc"]) == 0
    assert net.digest in capsys.readouterr().out.replace("\n", "").replace(" ", "")


def test_inspect_tells_the_constraints_of_an_artifact(folder: Path, capsys: Capture) -> None:
    given, shape, result = (
        helper.make_tensor_value_info(name, kind, extents)
        for name, kind, extents in (
            ("x", TensorProto.FLOAT, ["n", 4]),
            ("s", TensorProto.INT64, [2]),
            ("y", TensorProto.FLOAT, ["a", "b"]),
        )
    )
    node = helper.make_node("Reshape", ["x", "s"], ["y"], "fold")
    graph = helper.make_graph([node], "demanding", [given, shape], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    Path("demanding.onnx").write_bytes(model.SerializeToString())
    assert main(["compile", "demanding.onnx", "-q"]) == 0
    facts: dict[str, Any] = dict(facts_of(Path("demanding.mcc")))
    assert facts["checks"] and all(text.startswith("fold: ") for text in facts["checks"])
    assert json.loads(json.dumps(facts)) == facts
    assert main(["inspect", "demanding.mcc"]) == 0
    assert facts["checks"][0].split()[0] in capsys.readouterr().out


@pytest.mark.parametrize("name", ["none.onnx", "none.mcc", "text.onnx", "text.mcc"])
def test_inspect_refuses_other_files(name: str, folder: Path, capsys: Capture) -> None:
    Path("text.onnx").write_text("no model")
    Path("text.mcc").write_text("no model")
    assert main(["inspect", name]) == 2
    assert name in capsys.readouterr().err


def test_cache(folder: Path, capsys: Capture) -> None:
    assert main(["compile", "net.onnx", "-q"]) == 0
    assert main(["cache", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    there = [path for path in (folder / "cache").rglob("*") if path.is_file()]
    assert facts["folder"] == str(folder / "cache") and facts["artifacts"]["bytes"] > 0
    assert facts["bytes"] <= sum(path.stat().st_size for path in there)
    assert main(["cache", "--trim", "1GiB", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["removed"]["bytes"] == 0
    assert main(["cache", "--clear"]) == 0
    assert "removed" in capsys.readouterr().err
    assert main(["cache", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--trim", "much"], "500MB"), (["--trim", "1", "--clear"], "exclude")],
)
def test_cache_refuses(arguments: list[str], says: str, folder: Path, capsys: Capture) -> None:
    assert main(["cache", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_version(capsys: Capture) -> None:
    assert main(["version", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["libraries"]["numpy"] == np.__version__ and facts["llvm"].count(".") == 2
    assert main(["version"]) == 0
    assert facts["processor"] in capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 120])
def test_ops_fit_the_terminal(width: int, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["ops"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    at = lines.index("mcc.Relu")
    assert lines[at + 1].strip() and "compute" in lines[at + 2]


def test_inputs_given_twice_or_of_objects_are_refused(folder: Path, capsys: Capture) -> None:
    np.save("x.npy", np.zeros((2, 6), np.float32))
    np.save("objects.npy", np.array([{}], object), allow_pickle=True)
    np.savez("objects.npz", allow_pickle=True, x=np.array([{}], object))
    Path("pickle.npy").write_bytes(b"\x80\x04N.")
    assert main(["run", "net.onnx", "-i", "x.npy", "-i", "x=x.npy"]) == 2
    assert "'x' is given twice" in capsys.readouterr().err
    for name in ("x=objects.npy", "objects.npz", "x=pickle.npy"):
        assert main(["run", "net.onnx", "-i", name]) == 2
        said = capsys.readouterr().err
        assert name.removeprefix("x=") in said and "allow_pickle" not in said
