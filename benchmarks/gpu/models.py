"""Whole models: made where the GPU is, checked, and timed with inputs that are there already."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import ml_dtypes
import numpy as np
import onnx

import modelcc
from benchmarks.feeds import feeds_for
from benchmarks.gpu import peers
from benchmarks.gpu.compiling import compile_file
from benchmarks.gpu.results import Row
from benchmarks.gpu.weights import grown, narrowed, seeded

ENDING = ".seeded.onnx"
BATCHES = (1, 32)
TOLERANCES = {"f32": 2e-3, "f16": 3e-2, "bf16": 8e-2}
"""Of the largest number of a result, through a whole network."""

ROUNDS, ROUND_SECONDS = 9, 0.05
_RESULT = "result:"


@dataclass(frozen=True)
class Entry:
    """A model in ``folder`` at a batch; its type is the end of its name."""

    folder: Path
    stem: str
    batch: int

    @property
    def dtype(self) -> str:
        """Of its floats."""
        end = self.stem.rpartition("_")[2]
        return end if end in ("f16", "bf16") else "f32"

    @property
    def name(self) -> str:
        """Of its row."""
        return f"{self.stem} x{self.batch}"

    @property
    def artifact(self) -> Path:
        """Where the compiled model is, with what to feed and to expect beside it."""
        return self.folder / f"{self.stem}_x{self.batch}.mcc"


def prepare(path: Path, folder: Path) -> None:
    """Small files of a model in f32, f16 and bf16, without its large weights."""
    model = seeded(path)
    onnx.save(model, str(folder / f"{path.stem}{ENDING}"))
    for name, kind in (("f16", onnx.TensorProto.FLOAT16), ("bf16", onnx.TensorProto.BFLOAT16)):
        onnx.save(narrowed(model, kind), str(folder / f"{path.stem}_{name}{ENDING}"))


def entries(folder: Path) -> list[Entry]:
    """All that was prepared, batch by batch."""
    stems = sorted(path.name.removesuffix(ENDING) for path in folder.glob(f"*{ENDING}"))
    return [Entry(folder, stem, batch) for batch in BATCHES for stem in stems]


def build(entry: Entry, target: str) -> None:
    """Weights, the compiled model, inputs, and results of the processor by modelcc: one process."""
    model = grown(onnx.load(str(entry.folder / f"{entry.stem}{ENDING}")))
    whole = entry.artifact.with_suffix(".onnx")
    onnx.save(model, str(whole))
    dims = {d.dim_param: entry.batch for v in model.graph.input
            for d in v.type.tensor_type.shape.dim if d.dim_param}  # fmt: skip
    one = feeds_for(whole, {})
    feeds = {n: np.concatenate([v] * entry.batch) if dims else v for n, v in one.items()}
    wanted = modelcc.compile(whole, target="native", dims=dims).run(feeds)
    compile_file(whole, target, entry.artifact, dims)
    kept = {n: _plain(v) for n, v in feeds.items()}
    kept |= {_RESULT + n: _plain(v).astype(np.float32) for n, v in wanted.items()}
    np.savez(entry.artifact.with_suffix(".npz"), **kept)
    whole.unlink()


def _plain(value: Any) -> Any:
    """NumPy's files have no bf16."""
    return value.astype(np.float32) if value.dtype == ml_dtypes.bfloat16 else value


def start_builds(folder: Path, target: str, workers: int) -> dict[Entry, Future[str]]:
    """All models on their way, beside what goes on; what each says that fails."""
    pool = ThreadPoolExecutor(workers)

    def built(entry: Entry) -> str:
        if entry.artifact.with_suffix(".npz").exists():
            return ""
        command = [sys.executable, "-m", "benchmarks.gpu", str(folder), "--target", target,
                   "--build", entry.stem, str(entry.batch)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True)
        return done.stderr.strip().splitlines()[-1] if done.returncode else ""

    return {entry: pool.submit(built, entry) for entry in entries(folder)}


def _kept(entry: Entry) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """What to feed, in the model's type, and to expect."""
    with np.load(entry.artifact.with_suffix(".npz")) as found:
        kept = {name: found[name] for name in found.files}
    wanted = {n.removeprefix(_RESULT): v for n, v in kept.items() if n.startswith(_RESULT)}
    narrow = entry.dtype == "bf16"
    feeds = {
        name: value.astype(ml_dtypes.bfloat16) if narrow and value.dtype == np.float32 else value
        for name, value in kept.items()
        if not name.startswith(_RESULT)
    }
    return feeds, wanted


def failed(entry: Entry, fault: str) -> Row:
    """One that was not compiled."""
    return Row("model", entry.name, fault=fault)


def checked(entry: Entry, device: str) -> Row:
    """Its error; no time yet."""
    feeds, wanted = _kept(entry)
    try:
        got = modelcc.load(entry.artifact, target=device).run(feeds)
    except modelcc.Error as error:
        return Row("model", entry.name, fault=str(error))
    worst = max(_error(got[name], value) for name, value in wanted.items())
    fault = "" if worst <= TOLERANCES[entry.dtype] else "WRONG"
    return Row("model", entry.name, error=worst, fault=fault)


def _error(got: Any, wanted: Any) -> float:
    difference = np.abs(got.astype(np.float64) - wanted).max(initial=0.0)
    error = float(difference / max(np.abs(wanted).max(initial=0.0), 1e-30))
    return error if np.isfinite(error) else np.inf


def timed(entry: Entry, device: str, row: Row, torch: Any) -> Row:
    """Median seconds of a call, in turns with PyTorch's; inputs and results stay on the GPU."""
    feeds, _ = _kept(entry)
    model = modelcc.load(entry.artifact, target=device)
    steps: dict[str, peers.Step] = {"modelcc": lambda: model.run(feeds)}
    if torch is not None:
        there = {name: peers.on_gpu(torch, value) for name, value in feeds.items()}
        steps["modelcc"] = lambda: model.run(there, out="device")
        steps |= peers.model_steps(torch, entry.stem, entry.dtype, feeds)
    return row.with_times(_in_turns(steps), {})


def _in_turns(steps: Mapping[str, peers.Step]) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            step()
            count, start = 0, perf_counter()
            while (elapsed := perf_counter() - start) < ROUND_SECONDS or not count:
                step()
                count += 1
            found[name].append(elapsed / count)
    return {name: median(taken) for name, taken in found.items()}
