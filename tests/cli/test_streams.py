"""Readers of the output that go, encodings that lack letters, pipes instead of files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_models import mlp

import modelcc
from modelcc.artifact.errors import ArtifactError
from modelcc.ir.errors import ModelError

COMMAND = (sys.executable, "-m", "modelcc")


@pytest.mark.parametrize("arguments", [("ops", "--json"), ("ops",), ("--help",)], ids=" ".join)
def test_a_reader_that_has_gone_is_no_failure(arguments: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, *arguments], stdout=write, stderr=subprocess.PIPE, timeout=300, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_letters_that_the_encoding_lacks_are_escaped(encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    done = subprocess.run(
        [*COMMAND, "ops"], env=environment, capture_output=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"mcc.Conv" in done.stdout.decode(encoding).encode()


def test_models_are_files(tmp_path: Path) -> None:
    """A pipe can be read once, and has no size; nobody waits for one that nothing writes to."""
    os.mkfifo(tmp_path / "net.onnx")
    with pytest.raises(ModelError, match="is a pipe or a device"):
        modelcc.compile(tmp_path / "net.onnx", cache=None)
    os.mkfifo(tmp_path / "net.mcc")
    with pytest.raises(ArtifactError, match="is a pipe or a device"):
        modelcc.load(tmp_path / "net.mcc")
    (tmp_path / "real.onnx").write_bytes(mlp().SerializeToString())
    (tmp_path / "link.onnx").symlink_to("real.onnx")
    modelcc.compile(tmp_path / "link.onnx", threads=1, cache=None)
