"""Every op of the catalogue on its samples, compiled and run on the device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.gpu.cases import Array
from benchmarks.gpu.turns import Failed, Opened
from conformance.sample_graphs import cases, sample_graph
from modelcc.driver import compile_model
from modelcc.ir.graph_interpreter import interpret
from modelcc.ops.samples import sizes
from modelcc.options import Options
from modelcc.runtime.devices.device_program import CODE

TOLERANCES = {"f8": 1e-8, "f4": 1e-4, "f2": 1e-2}
"""Relative to the largest magnitude; 0.125 for narrower dtypes."""


def names() -> Iterator[str]:
    """All samples, the first one of each op before the second ones."""
    found = [(number, type(op).__name__) for op, number, named in cases() if not named]
    yield from (f"{kind}-{number}" for number, kind in sorted(found, key=lambda one: one[0]))


def checked(name: str, target: str) -> Opened | Failed:
    """Compares it with the reference; notes say whether kernels of it ran on the device."""
    kind, _, number = name.rpartition("-")
    op = next(op for op, n, _ in cases() if (type(op).__name__, n) == (kind, int(number)))
    sample = type(op).samples[int(number)]
    graph, feeds = sample_graph(op, sample)
    graph = graph.substitute(sizes(op, sample))
    compiled = compile_model(graph, Options(target=target))
    found = compiled.target.load(compiled.artifact, 1).run(feeds)
    wanted = interpret(graph, feeds)
    worst = max((error(found[n], wanted[n]) for n in graph.outputs), default=0.0)
    on_device = bool(compiled.artifact.objects.get(CODE))
    return Failed(f"WRONG by {worst:.0e}") if worst > 1 else Opened(worst, {"device": on_device})


def error(found: Array, wanted: Array) -> float:
    """The error as a fraction of the tolerance."""
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return np.inf
    if wanted.dtype.kind in "biu":
        return 0.0 if np.array_equal(found, wanted) else np.inf
    a, b = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (found, wanted))
    sound = np.isfinite(b)
    if not np.array_equal(a[~sound], b[~sound], equal_nan=True):
        return np.inf
    part = wanted.dtype.itemsize // (2 if wanted.dtype.kind == "c" else 1)
    allowed = TOLERANCES.get(f"f{part}", 0.125) * np.abs(b[sound]).max(initial=1e-30)
    worst = float((np.abs(a[sound] - b[sound]) / allowed).max(initial=0.0))
    return worst if np.isfinite(worst) else np.inf
