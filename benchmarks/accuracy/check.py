"""One model: compiled cold and from cache, run at each size, against ONNX Runtime."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

import modelcc
from benchmarks.accuracy.subjects import Arrays, Subject
from benchmarks.accuracy.truth import Truth
from modelcc.runtime.devices.device import open_device
from modelcc.verification.comparison import compare_all

THREADS = 2
"""Threads of the compiled model and of ONNX Runtime."""

TARGETS = {"llvm": "native"}
"""The target that a back end belongs to, where it has another name."""


@dataclass(frozen=True)
class Errors:
    """At one size: shapes of the inputs, worst error of each output relative to its largest
    magnitude, and the milliseconds of a run (the best of a few).

    ``outputs`` are errors against ONNX Runtime; ``own`` is the worst one against the model in f64
    and ``peer`` that of ONNX Runtime against it (None if there is no f64 reference).
    """

    shapes: Mapping[str, tuple[int, ...]]
    outputs: Mapping[str, float]
    milliseconds: float
    own: float | None = None
    peer: float | None = None

    @property
    def worst(self) -> float:
        """The maximum over all outputs."""
        return max(self.outputs.values(), default=0.0)


@dataclass(frozen=True)
class Checked:
    """Results of one back end on one model: seconds, bytes, and errors at each size.

    ``device`` is the driver's name of the device, if there is one.
    """

    backend: str
    device: str
    cold: float
    cached: float
    arena: int
    bound: int
    sizes: tuple[Errors, ...]


def check(
    subject: Subject, backend: str, truths: Sequence[Arrays | None]
) -> tuple[Checked, list[Arrays]]:
    """The measurements at the first sizes, for which ``truths`` has f64 references where known, and
    the outputs at each."""
    target = TARGETS.get(backend, backend)
    with tempfile.TemporaryDirectory() as cache:
        begin = time.perf_counter()
        model = modelcc.compile(subject.path, target, threads=THREADS, cache=cache)
        cold = time.perf_counter() - begin
        begin = time.perf_counter()
        modelcc.compile(subject.path, target, threads=THREADS, cache=cache)
        cached = time.perf_counter() - begin
    peer = Peer(subject.path)
    report = model.report()
    rows: list[Errors] = []
    outputs: list[Arrays] = []
    for number, truth in enumerate(truths):
        feeds = subject.feeds(number)
        outputs.append(model.run(feeds))
        theirs = peer.run(feeds)
        rows.append(
            Errors(
                {name: value.shape for name, value in feeds.items()},
                relative_errors(outputs[-1], theirs),
                milliseconds(model, feeds),
                _from(truth, outputs[-1]),
                _from(truth, theirs),
            )
        )
    device = device_name(backend)
    bytes = report.arena, report.lower_bound
    return Checked(backend, device, cold, cached, *bytes, tuple(rows)), outputs


def truths_of(subject: Subject, sizes: int) -> list[Arrays | None]:
    """Results of the model in f64 at the first ``sizes`` sizes, None where unavailable."""
    exact = Truth(subject.path)
    return [exact.run(subject.feeds(number)) for number in range(min(sizes, subject.sizes))]


def _from(truth: Arrays | None, values: Arrays) -> float | None:
    """The largest error of ``values``, if ``truth`` is known."""
    if truth is None:
        return None
    rounded = {name: truth[name].astype(value.dtype) for name, value in values.items()}
    return max(relative_errors(values, rounded).values(), default=0.0)


def device_name(backend: str) -> str:
    """The driver's name of the device of ``opencl:1:c``, say; empty for CPUs."""
    kind, *words = backend.split(":")
    if kind not in ("opencl", "webgpu", "metal"):
        return ""
    index = next((int(word) for word in words if word.isdecimal()), 0)
    return open_device(kind, index).name


def static_milliseconds(subject: Subject) -> float:
    """The time of a run at the first size with all dimensions static."""
    feeds = subject.feeds(0)
    named = modelcc.import_model(subject.path)
    dims = {
        str(extent): size
        for name in named.inputs
        for extent, size in zip(named.types[name].shape, feeds[name].shape, strict=True)
        if str(extent) in named.dims
    }
    return milliseconds(modelcc.compile(subject.path, threads=THREADS, dims=dims), feeds)


def relative_errors(got: Mapping[str, np.ndarray], wanted: Arrays) -> dict[str, float]:
    """By output; infinite where the shape, type or a non-finite value differs."""
    missing = {name: float("inf") for name in wanted if name not in got}
    found = compare_all(got, {name: wanted[name] for name in got})
    return missing | {d.name: float("inf") if d.problem else d.relative for d in found}


def milliseconds(model: modelcc.Model, feeds: Arrays) -> float:
    """Of the best run in about a fifth of a second, at least three runs."""
    times: list[float] = []
    while len(times) < 3 or (sum(times) < 0.2 and len(times) < 100):
        begin = time.perf_counter()
        model.run(feeds)
        times.append(time.perf_counter() - begin)
    return 1e3 * min(times)


class Peer:
    """ONNX Runtime on the same model."""

    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = THREADS
        options.log_severity_level = 3
        # Else sums of u8 times i8 saturate on processors without VNNI.
        options.add_session_config_entry("session.x64quantprecision", "1")
        self._session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )

    def run(self, feeds: Arrays) -> Arrays:
        """Outputs by name."""
        names = [output.name for output in self._session.get_outputs()]
        return dict(zip(names, map(np.asarray, self._session.run(names, feeds)), strict=True))
