"""Single kernels, compiled without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path

import onnx.parser

import modelcc
from benchmarks.gpu.cases import Array, Case
from modelcc.artifact.file import write_artifact
from modelcc.driver import compile_model
from modelcc.options import Options

Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]

REPEATED = 20
"""Runs that must be bit-identical to the first one, for results of up to COMPARED bytes in all; two
for larger ones."""
COMPARED = 1 << 28


def artifact(folder: Path, case: Case) -> Path:
    """Path of a case's compiled model."""
    return folder / f"{case.name.replace(' ', '_')}.mcc"


def prepare(folder: Path, case: Case, target: str) -> None:
    """Compiles it, if missing."""
    path = artifact(folder, case)
    if not path.exists():
        model = onnx.parser.parse_model(case.text)
        write_artifact(
            path, compile_model(model, Options(target=target, precision=case.precision)).artifact
        )


def error(folder: Path, case: Case, device: str) -> float:
    """The error of the result on the device."""
    return repeated(case, case.feeds(), modelcc.load(artifact(folder, case), target=device).run)


def repeated(case: Case, feeds: Mapping[str, Array], run: Run) -> float:
    """The error of a result; infinite if repeated runs are not bit-identical."""
    found = run(feeds)["y"]
    bits = found.tobytes()
    times = min(REPEATED, max(2, COMPARED // max(len(bits), 1)))
    same = all(run(feeds)["y"].tobytes() == bits for _ in range(times))
    return case.error(feeds, found) if same else inf
