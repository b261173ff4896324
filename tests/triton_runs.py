"""Triton source and arrays to results, by Triton's interpreter in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from modelcc.driver import pipeline
from modelcc.emit.emission import emit
from modelcc.feeds.npz import write_npz
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.types import Array
from modelcc.levels.text import write_constants
from modelcc.options import Options
from modelcc.pipeline import before_block, run_stages
from modelcc.targets.base import BuildConfig, TargetOptions
from modelcc.targets.registry import make_target

RUNNER = Path(__file__).parent / "triton_runner.py"
OPTIONS = Options(target="triton")
TARGET = make_target("triton", TargetOptions())

needs_triton = pytest.mark.skipif(
    not (find_spec("triton") and find_spec("torch")), reason="needs triton and torch"
)


@dataclass(frozen=True, eq=False)
class Job:
    """A model and what it is given."""

    name: str
    model: object
    inputs: Sequence[Array]


def text_of(model: object) -> str:
    """The Python file."""
    return emit(model, None, "triton", TARGET, OPTIONS, BuildConfig()).contents.decode()


def fused(model: object) -> TensorProgram:
    """The program that kernels are made of."""
    return run_stages(before_block(pipeline(TARGET, OPTIONS, BuildConfig()), "schedule"), model)


def results(jobs: Sequence[Job], folder: Path) -> Mapping[str, list[Array] | str]:
    """By name, what each job computes, or what was said instead."""
    for job in jobs:
        place = folder / job.name
        place.mkdir()
        emission = emit(job.model, None, "triton", TARGET, OPTIONS, BuildConfig())
        (place / "model.py").write_bytes(emission.contents)
        if emission.constants:
            write_constants(place / "model.npz", emission.constants)
        write_npz(place / "inputs.npz", {f"x{n}": a for n, a in enumerate(job.inputs)})
    places = [str(folder / job.name) for job in jobs]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, str(RUNNER), *places]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return {job.name: _result(folder / job.name) for job in jobs}


def _result(place: Path) -> list[Array] | str:
    failed = place / "error.txt"
    if failed.exists():
        return failed.read_text()
    with np.load(place / "outputs.npz") as arrays:
        return [arrays[f"y{n}"] for n in range(len(arrays.files))]
