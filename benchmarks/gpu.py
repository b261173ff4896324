"""Models on an NVIDIA GPU: ``python -m benchmarks.gpu FOLDER``.

First every model's results against what was expected, then median times of a call, taken in turns
with ONNX Runtime on the same GPU and, for models of the zoo, PyTorch, eager and compiled, where
these are installed.  Inputs and results lie in the host's memory for all of them.

A machine that has only the runtime wants what ``--prepare`` writes elsewhere: for each model the
artifact, and inputs and expected results as ``.npz``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import geometric_mean, median
from time import perf_counter

import numpy as np

import modelcc
from modelcc.ir.errors import Error

Step = Callable[[], object]
Arrays = Mapping[str, "np.ndarray"]
MODELS = ("mlp", "mnist_cnn", "ds_cnn", "resnet50", "convnext_tiny", "vit_base_patch16_224",
          "bert_base", "gpt2_prefill", "gpt2_decode", "llama_prefill", "llama_decode")  # fmt: skip
TOLERANCE = 2e-3
"""Of the largest number of a result: sums are in another order."""

ROUNDS, ROUND_SECONDS = 15, 0.1
_RESULT = "result:"


def main(arguments: Sequence[str] | None = None) -> int:
    """1 if a model fails or gives another result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="cuda:sm_90a", help="what --prepare compiles for")
    parser.add_argument("--models", help="names with commas")
    parser.add_argument("--prepare", action="store_true", help="compile, and write what to expect")
    parser.add_argument("--check", action="store_true", help="results only, no times")
    given = parser.parse_args(arguments)
    names = given.models.split(",") if given.models else list(MODELS)
    if given.prepare:
        for name in names:
            prepare(given.folder / f"{name}.onnx", given.target)
        return 0
    found = [name for name in names if (given.folder / f"{name}.npz").exists()]
    right = [name for name in found if is_right(given.folder / f"{name}.mcc")]
    if not given.check and right:
        show({name: times(given.folder / f"{name}.mcc") for name in right})
    return int(not found or right != found)


def prepare(path: Path, target: str) -> None:
    """The artifact of a model, and its results on the processor by ONNX Runtime."""
    feeds = import_module("benchmarks.feeds").feeds_for(path, {})
    runtime = import_module("onnxruntime")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    results = dict(zip(names, session.run(None, feeds), strict=True))
    artifact = path.with_suffix(".mcc")
    command = [sys.executable, "-m", "modelcc", "compile", path, "--target", target, "-o", artifact]
    subprocess.run(list(map(str, command)), check=True)
    kept = {**feeds, **{_RESULT + name: value for name, value in results.items()}}
    np.savez(path.with_suffix(".npz"), **kept)


def _kept(artifact: Path) -> tuple[Arrays, Arrays]:
    """Inputs and expected results."""
    with np.load(artifact.with_suffix(".npz")) as found:
        kept = {name: found[name] for name in found.files}
    feeds = {name: value for name, value in kept.items() if not name.startswith(_RESULT)}
    return feeds, {n.removeprefix(_RESULT): v for n, v in kept.items() if n not in feeds}


def is_right(artifact: Path) -> bool:
    """Whether a model gives what was expected; says so."""
    feeds, wanted = _kept(artifact)
    try:
        got = modelcc.load(artifact, target="cuda").run(feeds)
    except Error as error:
        print(f"{artifact.stem:28} FAILS  {error}")
        return False
    worst = max(_error(got[name], value) for name, value in wanted.items())
    verdict = "right" if worst <= TOLERANCE else "WRONG"
    print(f"{artifact.stem:28} {verdict}  {worst:.1e}", flush=True)
    return worst <= TOLERANCE


def _error(got: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, as a part of the largest number."""
    difference = np.abs(got.astype(np.float64) - wanted.astype(np.float64)).max(initial=0.0)
    return float(difference / max(np.abs(wanted.astype(np.float64)).max(initial=0.0), 1e-30))


def times(artifact: Path) -> Mapping[str, float]:
    """Median milliseconds of a call, by engine."""
    feeds, _ = _kept(artifact)
    model = modelcc.load(artifact, target="cuda")
    steps: dict[str, Step] = {"modelcc": lambda: model.run(feeds)}
    steps |= _onnxruntime(artifact.with_suffix(".onnx"), feeds)
    steps |= _torch(artifact.stem, feeds)
    found: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            step()
            count, start = 0, perf_counter()
            while (elapsed := perf_counter() - start) < ROUND_SECONDS or not count:
                step()
                count += 1
            found[name].append(elapsed / count * 1e3)
    return {name: median(taken) for name, taken in found.items()}


def _onnxruntime(path: Path, feeds: Arrays) -> dict[str, Step]:
    if not path.exists() or find_spec("onnxruntime") is None:
        return {}
    runtime = import_module("onnxruntime")
    provider = "CUDAExecutionProvider"
    if provider not in runtime.get_available_providers():
        return {}
    session = runtime.InferenceSession(str(path), providers=[provider])
    return {"onnxruntime": lambda: session.run(None, feeds)}


def _torch(name: str, feeds: Arrays) -> dict[str, Step]:
    """Eager, and compiled by inductor with its tuning."""
    if find_spec("torch") is None or find_spec("timm") is None:
        return {}
    torch = import_module("torch")
    if not torch.cuda.is_available():
        return {}
    known = {m.name: m for m in import_module("benchmarks.zoo.catalogue").MODELS}
    if name not in known:
        return {}
    module = import_module("benchmarks.zoo.build").build(known[name]).cuda()
    tuned = torch.compile(module, mode="max-autotune")

    def step(run: Callable[..., object]) -> Step:
        def call() -> None:
            with torch.no_grad():
                run(*(torch.from_numpy(value).cuda() for value in feeds.values()))
                torch.cuda.synchronize()

        return call

    return {"torch": step(module), "torch.compile": step(tuned)}


def show(rows: Mapping[str, Mapping[str, float]]) -> None:
    """Markdown: milliseconds, and how many times as fast as the best of the others modelcc is."""
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    print(f"| ms | {' | '.join(names)} | best other / modelcc |")
    print("|---|" + "---:|" * (len(names) + 1))
    ratios: list[float] = []
    for model, row in rows.items():
        others = [taken for name, taken in row.items() if name != "modelcc"]
        ratio = min(others) / row["modelcc"] if others else float("nan")
        ratios += [ratio] if others else []
        shown = " | ".join(f"{row[name]:.3f}" if name in row else "" for name in names)
        print(f"| {model} | {shown} | {ratio:.2f} |")
    if ratios:
        print(f"geometric mean {geometric_mean(ratios):.2f}, least {min(ratios):.2f}")


if __name__ == "__main__":
    raise SystemExit(main())
