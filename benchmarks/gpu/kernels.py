"""Kernels one by one: right or wrong, then how long they take by the device's own clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx.parser

import modelcc
from benchmarks.gpu import peers
from benchmarks.gpu.cases import TOLERANCES, Case
from benchmarks.gpu.compiling import compile_file
from benchmarks.gpu.results import Row


def artifact(folder: Path, case: Case) -> Path:
    """Where a case's compiled model is."""
    return folder / f"{case.name.replace(' ', '_')}.mcc"


def prepare(folder: Path, case: Case, target: str) -> None:
    """Compile it, if it is not there."""
    path = artifact(folder, case)
    if path.exists():
        return
    model = path.with_suffix(".onnx")
    onnx.save(onnx.parser.parse_model(case.text), str(model))
    compile_file(model, target, path, {})
    model.unlink()


def checked(folder: Path, case: Case, device: str) -> Row:
    """Its error; no time yet."""
    feeds = case.feeds()
    try:
        result = modelcc.load(artifact(folder, case), target=device).run(feeds)["y"]
    except modelcc.Error as error:
        return Row("kernel", case.name, fault=str(error))
    found = case.error(feeds, result)
    fault = "" if found <= TOLERANCES[case.dtype] else "WRONG"
    return Row("kernel", case.name, error=found, fault=fault)


def timed(folder: Path, case: Case, device: str, row: Row, torch: Any, bandwidth: float) -> Row:
    """Its time, those of PyTorch's libraries, and the part of ``bandwidth`` that it reaches."""
    report = modelcc.load(artifact(folder, case), target=device).report(profile=case.feeds())
    taken = sum(k.seconds or 0.0 for k in report.kernels if not k.function.startswith("transfer"))
    others = {} if torch is None else peers.kernel_times(torch, case)
    notes = {"TFLOP/s": case.operations / taken * 1e-12, "GB/s": case.bytes / taken * 1e-9}
    if bandwidth:
        notes["of bandwidth"] = case.bytes / taken / bandwidth
    return row.with_times({"modelcc": taken, **others}, notes)
