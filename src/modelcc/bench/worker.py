"""One engine in a separate process, so that its time and memory are isolated.

    python -m modelcc.bench.worker ENGINE MODEL FEEDS.npz OUTPUTS.npz OPTIONS.json

It loads the model, runs it once, writes the outputs and prints a line of JSON; then for each
number read from stdin it runs that often and prints the seconds of each run as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from time import perf_counter
from types import MappingProxyType

import numpy as np

from modelcc.feeds.npz import write_npz
from modelcc.ir.types import Array

Feeds = Mapping[str, Array]
Run = Callable[[Feeds], Mapping[str, Array]]

ENGINES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "modelcc": ("modelcc.bench.runtime_peer", "bench_engine"),
        "onnxruntime": ("modelcc.bench.onnxruntime_peer", "bench_engine"),
    }
)
"""Module and function that loads a model (path, options) into each engine."""


def main(arguments: list[str]) -> None:
    """Serve until stdin ends."""
    engine, model, feeds_path, outputs_path, options = arguments
    with np.load(feeds_path, allow_pickle=False) as archive:
        feeds = {name: archive[name] for name in archive.files}
    module, function = ENGINES[engine]
    start = perf_counter()
    run: Run = getattr(import_module(module), function)(model, json.loads(options))
    loaded = perf_counter()
    results = run(feeds)
    first = perf_counter()
    write_npz(Path(outputs_path), results)
    _reply({"load": loaded - start, "first": first - loaded})
    for line in sys.stdin:
        times: list[float] = []
        for _ in range(int(line)):
            start = perf_counter()
            run(feeds)
            times.append(perf_counter() - start)
        _reply({"times": times, "peak": peak_memory()})


def peak_memory() -> int:
    """Peak resident memory of this process in bytes.

    Not ``ru_maxrss``, which starts at the parent's size.
    """
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _reply(data: Mapping[str, object]) -> None:
    print(json.dumps(data), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
