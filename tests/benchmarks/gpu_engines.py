"""Engines in tests of the benchmark of GPUs: each does what the name of its row says."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.gpu.profiles import Kernel, Profile
from benchmarks.gpu.turns import Failed, Opened

ASKED = "asked"
"""The file that lists all questions."""


def serve(connection: Connection, folder: Path, target: str, device: str) -> None:
    """As :func:`benchmarks.gpu.engines.serve`; ``target`` is what is done instead of failing."""
    while True:
        kind, engine, task = connection.recv()
        with (folder / ASKED).open("a") as file:
            file.write(f"{kind} {engine} {task.name}\n")
        if target == "lost":
            connection.send(Failed("the GPU is lost"))
        elif engine == "cublas":
            connection.send(Failed("cuBLAS is not here", missing=True))
        elif kind == "measure":
            _crash(engine == "flash")
            connection.send(2.0 if engine == "modelcc" else 3.0)
        elif kind == "forget":
            connection.send(None)
        elif kind == "profile":
            kernel = Kernel("k0", 2, 4e-5, 1e-5, 1000, 2000, "Softmax#0")
            connection.send(Profile(task.name, 1e-6, 5e-5, 1e-5, (kernel,)))
        else:
            _crash("product" in task.name and target != "well")
            if "attention" in task.name and target != "well":
                time.sleep(600)
            if "decode" in task.name and target != "well":
                failed = Failed("LaunchError: the GPU did not do its work", trace="line 7\nlost")
                connection.send(failed)
                continue
            wrong = "softmax" in task.name and target != "well"
            connection.send(Opened(0.5 if wrong else 1e-6))


def _crash(really: bool) -> None:
    if really:
        os._exit(3)
