"""Paths that are no file of a model, whatever its format."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import modelcc

SAID = {
    "missing": r"cannot read .*: No such file.*\n.*hint: check the path",
    "folder": r"is a folder\n.*hint: give the path",
    "pipe": r"is a pipe or a device\n.*hint: write the model to a file first",
}


@pytest.mark.parametrize("kind", SAID)
@pytest.mark.parametrize("suffix", ["onnx", "tflite"])
def test_what_is_no_file(tmp_path: Path, kind: str, suffix: str) -> None:
    pytest.importorskip(suffix)
    path = tmp_path / f"m.{suffix}"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(modelcc.ModelError, match=SAID[kind]):
        modelcc.compile(path)
