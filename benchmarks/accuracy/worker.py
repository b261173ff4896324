"""The worker process of one model; prints its result as JSON on the last line."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from benchmarks.accuracy.check import check, relative_errors, static_milliseconds, truths_of
from benchmarks.accuracy.quantised import steps_apart
from benchmarks.accuracy.subjects import Arrays, Subject, declared, light, real, zoo

SETS = {"zoo": zoo, "real": real}


def find(kind: str, path: Path) -> Subject:
    """The subject whose file is ``path``."""
    subjects = light() if kind == "light" else SETS[kind](path.parent)
    return declared(next(subject for subject in subjects if subject.path == path))


def between(one: list[Arrays], other: list[Arrays]) -> float:
    """The largest difference of two back ends over all sizes and outputs."""
    pairs = zip(one, other, strict=True)
    return max(max(relative_errors(a, b).values(), default=0.0) for a, b in pairs)


def quantised_steps(subject: Subject, outputs: list[Arrays]) -> list[object] | None:
    """Differences of quantised tensors at each size; None if there are none."""
    found = [steps_apart(subject.path, subject.feeds(n), free) for n, free in enumerate(outputs)]
    return [asdict(steps) for steps in found if steps is not None] or None


def main() -> None:
    """``kind path backends sizes``."""
    kind, path, backends, sizes = sys.argv[1:5]
    subject = find(kind, Path(path))
    rows: list[object] = []
    outputs: list[list[Arrays]] = []
    truths = truths_of(subject, int(sizes))
    for backend in backends.split(","):
        checked, found = check(subject, backend, truths)
        rows.append(asdict(checked))
        outputs.append(found)
    result = {"backends": rows, "difference": between(*outputs) if len(outputs) == 2 else None}
    result["steps"] = quantised_steps(subject, outputs[0])
    if int(sizes) > 1 and subject.sizes > 1:
        result["static"] = static_milliseconds(subject)
    print(json.dumps(result, default=np.ndarray.item))


if __name__ == "__main__":
    main()
