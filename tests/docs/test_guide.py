"""The user guide is true: its programs and commands run, its generated pages are up to date."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import modelcc
from docs.generate import PAGES as GENERATED
from docs.generate import page as generated
from modelcc.cli.main import cli
from tests.packages import described

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
TOP = ("README", "ARCHITECTURE", "CONTRIBUTING")
GUIDE = [page for page in PAGES if page.name not in GENERATED]
EXTRAS = ("jax", "torch")
"""Pages that need the package of their name."""
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the guide's ``model.onnx`` and ``x.npy``, and no cache."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=shape).astype(np.float32) for shape in ((8, 16), (16, 3))]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w1"], ["h"], "fc1"),
            helper.make_node("Relu", ["h"], ["r"], "relu"),
            helper.make_node("MatMul", ["r", "w2"], ["y"], "fc2"),
        ],
        "guide",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(w, name) for w, name in zip(weights, ("w1", "w2"), strict=True)],
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", np.ones((2, 8), np.float32))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODELCC_CACHE_DIR", "")
    monkeypatch.setenv("PYTHONPATH", str(Path(modelcc.__file__).parents[1]))  # for its processes
    monkeypatch.setenv("MODELCC_NUM_THREADS", "1")
    monkeypatch.syspath_prepend(described(ROOT, tmp_path / "installed")[1])
    return tmp_path


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_programs_and_commands_of_the_guide_run(page: Path, config: Path) -> None:
    if page.stem in EXTRAS:
        pytest.importorskip(page.stem)
    names: dict[str, object] = {}
    for kind, text in BLOCK.findall(page.read_text("utf-8")):
        if kind == "python":
            exec(compile(text, page.name, "exec", dont_inherit=True), names)
            continue
        for line in text.splitlines():
            command, *arguments = shlex.split(line)
            assert command == "modelcc", line
            result = CliRunner().invoke(cli, arguments)
            assert result.exit_code == 0, f"{line}\n{result.output}\n{result.exception!r}"


@pytest.mark.parametrize("name", sorted(GENERATED))
def test_generated_pages_are_up_to_date(name: str) -> None:
    assert (ROOT / "docs" / name).read_text("utf-8") == generated(name), "run `make docs`"


@pytest.mark.parametrize("page", [*PAGES, *(ROOT / f"{name}.md" for name in TOP)])
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_tour_holds(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "docs" / "tour.py"))
    assert "every step gave the same result" in capsys.readouterr().out
