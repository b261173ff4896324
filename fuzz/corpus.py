"""The models that are mutated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx

from conformance.cases import Case, collect

LARGEST = 6 << 20
"""Maximum model size in bytes: copies of larger ones cost more than they find."""


def suite_models(count: int | None = None) -> list[bytes]:
    """Serialised models of the backend suite, evenly sampled if limited to ``count``."""
    cases = [case for case in collect() if case.kind != "real"]
    step = 1 if count is None else max(1, len(cases) // count)
    return [data for case in cases[::step] if (data := _serialised(case))]


def _serialised(case: Case) -> bytes:
    try:
        return case.load().model.SerializeToString(deterministic=True)
    except (FileNotFoundError, KeyError):
        return b""  # a case of the suite whose model is not in the wheel


def real_models(folder: Path) -> list[bytes]:
    """The files of trained models in ``folder``, recursively."""
    paths = sorted(folder.rglob("*.onnx"))
    return [path.read_bytes() for path in paths if path.stat().st_size <= LARGEST]


def operators(models: Sequence[bytes]) -> tuple[tuple[str, str], ...]:
    """Domain and name of every operator that the models use, in order."""
    found: set[tuple[str, str]] = set()
    for data in models:
        graph = onnx.load_from_string(data).graph
        found |= {(node.domain, node.op_type) for node in graph.node}
    return tuple(sorted(found))
