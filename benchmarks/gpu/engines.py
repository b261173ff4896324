"""The worker processes: engines by name, opened for a row and then measured on request."""

from __future__ import annotations

import faulthandler
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.gpu import onnxruntime_peer, operators, torch_peer, xla_peer
from benchmarks.gpu.cases import Case, cases
from benchmarks.gpu.clock import Measure, MissingPeerError
from benchmarks.gpu.entries import Entry, entries
from benchmarks.gpu.own import own_kernel, own_model
from benchmarks.gpu.profiles import Profile
from benchmarks.gpu.turns import Failed, Opened, Task

KERNELS: Mapping[str, tuple[str, ...]] = {
    "product": ("modelcc", "cublas", "xla"),
    "layer": ("modelcc", "inductor"),
    "softmax": ("modelcc", "eager", "inductor", "xla"),
    "layer_norm": ("modelcc", "eager", "inductor", "xla"),
    "transpose": ("modelcc", "eager", "xla"),
    "attention": ("modelcc", "flash", "cudnn", "fa3", "xla"),
    "causal": ("modelcc", "flash", "cudnn", "fa3", "xla"),
}
"""Engines for single kernels."""

MODELS = ("modelcc", "torch", "torch.compile", "max-autotune", "xla", "onnxruntime", "tensorrt")


@dataclass(frozen=True)
class Ready:
    """An engine opened for a row: its answer, and its measurement."""

    answer: Opened | Failed
    measure: Measure = lambda: 0.0
    profile: Callable[[], Profile] | None = None


def serve(connection: Connection, folder: Path, target: str, device: str) -> None:
    """Answers ``("open", engine, task)`` by :class:`Opened` or :class:`Failed`, as ``"check"``,
    after which there is nothing to measure; ``"measure"`` by seconds, ``"profile"`` by a
    :class:`Profile`, ``"forget"`` by nothing."""
    faulthandler.enable()
    ready: dict[tuple[str, Task], Ready] = {}
    while True:
        kind, engine, task = connection.recv()
        try:
            match kind:
                case "check":
                    connection.send(opened(engine, task, folder, target, device).answer)
                case "open":
                    ready[engine, task] = opened(engine, task, folder, target, device)
                    connection.send(ready[engine, task].answer)
                case "measure":
                    connection.send(ready[engine, task].measure())
                case "profile":
                    profile = ready[engine, task].profile
                    connection.send(Failed("it has none") if profile is None else profile())
                case _:
                    ready.pop((engine, task), None)
                    torch_peer.forget()
                    connection.send(None)
        except MissingPeerError as error:
            connection.send(Failed(str(error), missing=kind == "open"))
        except Exception as error:  # any engine may raise anything: it is reported, not handled
            words = f"{type(error).__name__}: {error}".strip().splitlines()
            connection.send(Failed(words[0], trace=traceback.format_exc()))


def opened(engine: str, task: Task, folder: Path, target: str, device: str) -> Ready:
    """A row's engine, compared with the reference if it uses the same weights."""
    peers = "cuda" if device.startswith("cuda") else "cpu"
    match task.section:
        case "machine":
            return Ready(Opened(), torch_peer.copy(peers))
        case "operator":
            return Ready(operators.checked(task.name, device if peers == "cpu" else target))
        case "kernel":
            case = next(case for case in cases("all") if case.name == task.name)
            return _kernel(engine, case, folder, device, peers)
        case _:
            entry = next(entry for entry in entries(folder) if entry.name == task.name)
            return _model(engine, entry, device, peers)


def _kernel(engine: str, case: Case, folder: Path, device: str, peers: str) -> Ready:
    if engine == "xla":
        return Ready(Opened(), xla_peer.kernel(case, peers))
    if engine != "modelcc":
        return Ready(Opened(), torch_peer.kernel(engine, case, peers))
    own = own_kernel(case, folder, device, peers)
    return Ready(Opened(own.error, trace=own.wrong), own.kernel_seconds, own.profile)


def _model(engine: str, entry: Entry, device: str, peers: str) -> Ready:
    match engine:
        case "modelcc":
            own = own_model(entry, device, peers)
            return Ready(Opened(own.error, trace=own.wrong), own.call_seconds, own.profile)
        case "xla":
            error, measure = xla_peer.model(entry, peers)
        case "onnxruntime" | "tensorrt":
            error, measure = onnxruntime_peer.model(engine, entry, peers)
        case _:
            return Ready(Opened(), torch_peer.model(engine, entry, peers))
    return Ready(Opened(error), measure)
