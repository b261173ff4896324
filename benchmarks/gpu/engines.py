"""What runs in the processes: engines by name, opened for a row and then measured on request."""

from __future__ import annotations

from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path

import modelcc
from benchmarks.gpu import onnxruntime_peer, operators, torch_peer, xla_peer
from benchmarks.gpu.cases import Case, cases
from benchmarks.gpu.clock import Measure, MissingPeerError, call_seconds
from benchmarks.gpu.entries import Entry, entries
from benchmarks.gpu.kernels import artifact
from benchmarks.gpu.turns import Failed, Opened, Task

KERNELS: Mapping[str, tuple[str, ...]] = {
    "product": ("modelcc", "cublas", "xla"),
    "softmax": ("modelcc", "eager", "inductor", "xla"),
    "layer_norm": ("modelcc", "eager", "inductor", "xla"),
    "attention": ("modelcc", "flash", "cudnn", "fa3", "xla"),
    "causal": ("modelcc", "flash", "cudnn", "fa3", "xla"),
}
"""Engines by what a kernel computes."""

MODELS = ("modelcc", "torch", "torch.compile", "max-autotune", "xla", "onnxruntime", "tensorrt")


def serve(connection: Connection, folder: Path, target: str, device: str) -> None:
    """Answers ``("open", engine, task)`` by :class:`Opened` or :class:`Failed`, as ``"check"``,
    after which there is nothing to measure; ``"measure"`` by seconds, ``"forget"`` by nothing."""
    measures: dict[tuple[str, Task], Measure] = {}
    while True:
        kind, engine, task = connection.recv()
        try:
            match kind:
                case "check":
                    connection.send(opened(engine, task, folder, target, device)[0])
                case "open":
                    answer, measures[engine, task] = opened(engine, task, folder, target, device)
                    connection.send(answer)
                case "measure":
                    connection.send(measures[engine, task]())
                case _:
                    del measures[engine, task]
                    torch_peer.forget()
                    connection.send(None)
        except MissingPeerError as error:
            connection.send(Failed(str(error), missing=kind == "open"))
        except Exception as error:  # any engine may raise anything: it is reported, not handled
            words = f"{type(error).__name__}: {error}".strip().splitlines()
            connection.send(Failed(words[0]))


def opened(
    engine: str, task: Task, folder: Path, target: str, device: str
) -> tuple[Opened | Failed, Measure]:
    """A row's engine, compared where it computes with the same weights."""
    peers = "cuda" if device.startswith("cuda") else "cpu"
    match task.section:
        case "machine":
            return Opened(), torch_peer.copy(peers)
        case "operator":
            return operators.checked(task.name, device if peers == "cpu" else target), lambda: 0.0
        case "kernel":
            case = next(case for case in cases("all") if case.name == task.name)
            return _kernel(engine, case, folder, device, peers)
        case _:
            entry = next(entry for entry in entries(folder) if entry.name == task.name)
            return _model(engine, entry, device, peers)


def _kernel(
    engine: str, case: Case, folder: Path, device: str, peers: str
) -> tuple[Opened, Measure]:
    if engine == "xla":
        return Opened(), xla_peer.kernel(case, peers)
    if engine != "modelcc":
        return Opened(), torch_peer.kernel(engine, case, peers)
    feeds, net = case.feeds(), modelcc.load(artifact(folder, case), target=device)

    def measure() -> float:
        """By the device's own clock, its caches cleared before."""
        rows = net.report(profile=feeds).kernels
        return sum(k.seconds or 0.0 for k in rows if not k.function.startswith("transfer"))

    return Opened(case.error(feeds, net.run(feeds)["y"])), measure


def _model(engine: str, entry: Entry, device: str, peers: str) -> tuple[Opened, Measure]:
    match engine:
        case "modelcc":
            return _own(entry, device, peers)
        case "xla":
            error, measure = xla_peer.model(entry, peers)
        case "onnxruntime" | "tensorrt":
            error, measure = onnxruntime_peer.model(engine, entry, peers)
        case _:
            return Opened(), torch_peer.model(engine, entry, peers)
    return Opened(error), measure


def _own(entry: Entry, device: str, peers: str) -> tuple[Opened, Measure]:
    """Inputs and results stay on a GPU where PyTorch can put them there."""
    feeds, net = entry.feeds(), modelcc.load(entry.artifact, target=device)
    error = entry.error(net.run(feeds))

    def measure() -> float:
        if peers == "cpu":
            return call_seconds(lambda: net.run(feeds))
        torch = torch_peer.torch_on(peers)
        there = {name: torch_peer.tensor_on(torch, peers, value) for name, value in feeds.items()}
        return call_seconds(lambda: net.run(there, out="device"))

    return Opened(error), measure
