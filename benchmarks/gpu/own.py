"""modelcc itself: compiled kernels and models, loaded, compared and measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import modelcc
from benchmarks.gpu import torch_peer
from benchmarks.gpu.cases import TOLERANCES as KERNELS
from benchmarks.gpu.cases import Array, Case
from benchmarks.gpu.clock import MissingPeerError, call_seconds
from benchmarks.gpu.entries import TOLERANCES as MODELS
from benchmarks.gpu.entries import Entry, differences_of
from benchmarks.gpu.kernels import artifact, repeated
from benchmarks.gpu.profiles import MOVED, NODES, Kernel, Profile
from modelcc.report.report import StepRow

RUNS = 7
"""Runs of which a profile takes the median; CALLS of whole calls."""
CALLS = 20


@dataclass(frozen=True)
class Own:
    """A compiled artifact loaded under a ``name``, with its inputs, and run once: ``wrong``
    describes errors, if too large.  ``peers`` is PyTorch's name of the device for other engines."""

    name: str
    net: Any
    feeds: Mapping[str, Array]
    error: float
    wrong: str
    peers: str

    def kernel_seconds(self) -> float:
        """By the device's clock, with flushed caches."""
        rows = self.net.report(profile=self.feeds).kernels
        return sum(k.seconds or 0.0 for k in rows if not k.function.startswith(MOVED))

    def call_seconds(self) -> float:
        """Inputs and results stay on a GPU if PyTorch can allocate them there."""
        if self.peers == "cpu":
            return call_seconds(lambda: self.net.run(self.feeds))
        there, finish = self._there(), self._finish()

        def step() -> None:
            self.net.run(there, out="device")
            finish()

        return call_seconds(step)

    def _finish(self) -> Callable[[], None]:
        """Waits for asynchronous calls."""
        if self.peers != "cuda":
            return lambda: None
        wait: Callable[[], None] = torch_peer.torch_on(self.peers).cuda.synchronize
        return wait

    def _there(self) -> dict[str, Any]:
        torch = torch_peer.torch_on(self.peers)
        return {n: torch_peer.tensor_on(torch, self.peers, v) for n, v in self.feeds.items()}

    def profile(self) -> Profile:
        """All kernels by the device's clock, and whole calls."""
        rows = self.net.report(profile=self.feeds, runs=RUNS).kernels
        moved = sum(row.seconds or 0.0 for row in rows if row.function.startswith(MOVED))
        return Profile(self.name, self.error, self._calls(), moved, grouped(rows))

    def _calls(self) -> float | None:
        """The median of calls; None if inputs cannot be placed on the device."""
        given, words, finish = self.feeds, dict[str, str](), lambda: None
        if self.peers != "cpu":
            try:
                given, words, finish = self._there(), {"out": "device"}, self._finish()
            except MissingPeerError:
                return None
        times: list[float] = []
        for _ in range(CALLS + 2):  # the first ones record, and re-record for the inputs' addresses
            begin = perf_counter()
            self.net.run(given, **words)
            finish()
            times.append(perf_counter() - begin)
        return median(times[2:])


def grouped(rows: tuple[StepRow, ...]) -> tuple[Kernel, ...]:
    """Kernels aggregated by function, without transfers."""
    found: dict[str, list[StepRow]] = {}
    for row in rows:
        if not row.function.startswith(MOVED):
            found.setdefault(row.function, []).append(row)
    return tuple(
        Kernel(
            function,
            len(some),
            sum(row.seconds or 0.0 for row in some),
            sum(row.roof or 0.0 for row in some),
            sum(row.flops for row in some),
            sum(row.bytes for row in some),
            " ".join(some[0].source[-NODES:]),
        )
        for function, some in found.items()
    )


def own_kernel(case: Case, folder: Path, device: str, peers: str) -> Own:
    """A kernel, run some times and compared."""
    feeds, net = case.feeds(), modelcc.load(artifact(folder, case), target=device)
    error = repeated(case, feeds, net.run)
    wrong = case.differences(feeds, net.run(feeds)["y"]) if error > KERNELS[case.dtype] else ""
    return Own(case.name, net, feeds, error, wrong, peers)


def own_model(entry: Entry, device: str, peers: str) -> Own:
    """A model, run once and compared."""
    feeds, net = entry.feeds(), modelcc.load(entry.artifact, target=device)
    results = net.run(feeds)
    error = entry.error(results)
    wrong = differences_of(entry, results) if error > MODELS[entry.dtype] else ""
    return Own(entry.name, net, feeds, error, wrong, peers)
