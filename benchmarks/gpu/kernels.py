"""Kernels one by one, compiled where there is no GPU."""

from __future__ import annotations

from pathlib import Path

import onnx.parser

import modelcc
from benchmarks.gpu.cases import Case
from modelcc.artifact.file import write_artifact
from modelcc.driver import compile_model
from modelcc.options import Options


def artifact(folder: Path, case: Case) -> Path:
    """Where a case's compiled model is."""
    return folder / f"{case.name.replace(' ', '_')}.mcc"


def prepare(folder: Path, case: Case, target: str) -> None:
    """Compile it, if it is not there."""
    path = artifact(folder, case)
    if not path.exists():
        model = onnx.parser.parse_model(case.text)
        write_artifact(path, compile_model(model, Options(target=target)).artifact)


def error(folder: Path, case: Case, device: str) -> float:
    """Of the result on the device."""
    feeds = case.feeds()
    return case.error(feeds, modelcc.load(artifact(folder, case), target=device).run(feeds)["y"])
