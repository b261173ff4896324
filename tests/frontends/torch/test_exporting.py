"""Modules and files of torch.export compile, and refusals say what stands in the way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
from click.testing import CliRunner

torch: Any = pytest.importorskip("torch")

import modelcc  # noqa: E402
from modelcc.cli.main import cli  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Rows(torch.nn.Module):
    def forward(self, x: Any, named: dict[str, Any], *, scale: Any) -> Any:
        return torch.relu(x) * scale + named["row"][:, None]


def arguments(n: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (torch.randn(n, 4), {"row": torch.randn(n)}), {"scale": torch.tensor(2.0)}


def test_dimensions_are_called_as_the_user_calls_them() -> None:
    rows = torch.export.Dim("rows", min=2, max=64)
    args, kwargs = arguments(3)
    shapes = {"x": {0: rows}, "named": {"row": {0: rows}}, "scale": None}
    net = modelcc.compile(Rows(), args, kwargs, dynamic_shapes=shapes, cache=None)
    assert [(dim.name, dim.low, dim.high) for dim in net.dims] == [("rows", 2, 64)]
    args, kwargs = arguments(7)
    ours = net(args[0], args[1]["row"], kwargs["scale"])
    np.testing.assert_allclose(ours, Rows()(*args, **kwargs).numpy(), rtol=1e-6)
    with pytest.raises(modelcc.InputError, match="rows = 2 to 64"):
        args, kwargs = arguments(65)
        net(args[0], args[1]["row"], kwargs["scale"])


def test_shapes_in_the_order_of_arguments_and_without_names() -> None:
    auto = torch.export.Dim.AUTO
    model = torch.nn.Linear(4, 3)
    net = modelcc.compile(model, (torch.randn(3, 4),), dynamic_shapes=({0: auto},), cache=None)
    assert [dim.name for dim in net.dims] == ["input_d0"]
    x = torch.randn(9, 4)
    np.testing.assert_allclose(net(x), model(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_programs_and_files_compile_in_python_and_in_the_shell(tmp_path: Path) -> None:
    model, x = torch.nn.Linear(4, 3), torch.randn(2, 4)
    program = torch.export.export(model, (x,))
    torch.export.save(program, tmp_path / "m.pt2")
    wanted = model(x).detach().numpy()
    for source in (program, tmp_path / "m.pt2"):
        np.testing.assert_allclose(modelcc.compile(source, cache=None)(x), wanted, rtol=1e-5)
    command = ["compile", str(tmp_path / "m.pt2"), "--no-cache"]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
    np.testing.assert_allclose(modelcc.load(tmp_path / "m.mcc")(x), wanted, rtol=1e-5)


class Branching(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            return x
        return x + 1


class Raising(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x + torch.randn(7)


def line_of(module: Any, below: int) -> str:
    """The place of a line of its ``forward``, as errors tell it."""
    return rf".*test_exporting\.py:{module.forward.__code__.co_firstlineno + below}"


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a branch on data": (
        lambda: modelcc.compile(Branching(), (torch.randn(3),)),
        rf"Branching, {line_of(Branching, 1)}: torch.export refuses it: .*data-dependent",
    ),
    "shapes that do not fit": (
        lambda: modelcc.compile(Raising(), (torch.randn(3),)),
        rf"Raising, {line_of(Raising, 1)}: torch.export refuses it: .*broadcast",
    ),
    "no examples": (
        lambda: modelcc.compile(Branching()),
        r"a module alone does not tell its inputs\n.*hint: give example inputs",
    ),
    "examples in no tuple": (
        lambda: modelcc.compile(Branching(), torch.randn(3)),
        r"example inputs are a tensor, no tuple of them\n.*hint: give example inputs",
    ),
    "a function": (
        lambda: modelcc.compile(torch.export.export(Rows(), *arguments(3)), (torch.randn(3),)),
        r"only a torch\.nn\.Module is exported",
    ),
    "another dimension": (
        lambda: modelcc.compile(
            torch.export.export(torch.nn.ReLU(), (torch.randn(3),)), dims={"batch": 3}
        ),
        r"there is no dimension 'batch'\n.*hint: dimensions: none",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    act, said = REFUSED[name]
    with pytest.raises(modelcc.ModelError, match=rf"(?s){said}"):
        act()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("text.pt2", r"text\.pt2: this is not a file of torch\.export"),
        ("archive.pt2", r"archive\.pt2: PyTorch cannot read it"),
        ("missing.pt2", r"cannot read .*missing\.pt2: No such file"),
    ],
)
def test_files_that_are_none_of_pytorch(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "text.pt2").write_bytes(b"no archive")
    with ZipFile(tmp_path / "archive.pt2", "w") as archive:
        archive.writestr("archive/readme", "")
    with pytest.raises(modelcc.ModelError, match=said):
        modelcc.compile(tmp_path / name)


def test_other_models_do_not_load_torch() -> None:
    code = (
        "import sys, modelcc\n"
        "try: modelcc.compile('missing.onnx')\n"
        "except modelcc.ModelError: pass\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pt2") / "net.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(8, 3).eval(), (torch.randn(4, 8),)), path)
    return path


def test_a_file_is_verified_by_the_reference_interpreter(file: Path) -> None:
    result = modelcc.verify(file, cache=None)
    assert result.agrees and result.reference and not result.peer


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("inspect",), "only ONNX models and artifacts"),
        (("bench", "--against", "onnxruntime"), "runs ONNX models only"),
    ],
)
def test_what_is_for_onnx_alone_says_so(file: Path, command: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(cli, [command[0], str(file), *command[1:]])
    assert result.exit_code != 0 and words in f"{result.output} {result.exception}"
