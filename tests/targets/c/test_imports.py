"""Printing C needs no LLVM: it works where llvmlite cannot be imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from tests.small_models import mlp

WITHOUT = """
import sys
sys.modules["llvmlite"] = None
from modelcc.cli.main import main
sys.exit(main())
"""


def _modelcc(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def model(tmp_path: Path) -> str:
    onnx.save(mlp(), tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


def test_c_is_printed(model: str, tmp_path: Path) -> None:
    done = _modelcc("compile", model, "--target", "c", "--emit", "c", "-o", str(tmp_path / "m.c"))
    assert done.returncode == 0, done.stderr
    assert "_run(" in (tmp_path / "m.c").read_text()


def test_a_folder_is_delivered(model: str, tmp_path: Path) -> None:
    done = _modelcc("compile", model, "--emit", "c", "-o", f"{tmp_path / 'out'}/")
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "out").glob("*.c"))


def test_machine_code_does_need_it(model: str, tmp_path: Path) -> None:
    done = _modelcc("compile", model, "--emit", "asm", "-o", str(tmp_path / "m.s"))
    assert done.returncode != 0 and "llvmlite" in done.stderr
